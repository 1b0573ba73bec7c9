"""What to train next: the open claims that more seeds would decide, and what that costs."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from normscope.engine import RunSpec
from normscope_paper.harness.claims import Claim
from normscope_paper.harness.ledger import Ledger, StoredRun
from normscope_paper.harness.registry import EXPERIMENTS, load
from normscope_paper.harness.results import SCALES, Results, Scale
from normscope_paper.harness.runner import numbers
from normscope_paper.harness.summary import claims_of
from normscope_paper.harness.sweep import Sweep

MOST_SEEDS = 12  # beyond these a claim counts as one that seeds won't decide
# A half interval of the margin / _SAFETY has an 80 % chance of leaving the mean decided:
# 1 + z(.8) / z(.975).
_SAFETY = 1 + 0.8416 / 1.96


@dataclass(frozen=True)
class Step:
    """An experiment with more seeds, or one that is not trained yet.

    Attributes:
        experiment: its ID.
        scale: of its runs.
        seeds: how many it would have.
        before: how many it has; 0 if it is not trained at this scale.
        decides: sentences of open claims that these seeds would probably decide; for an experiment
            that is not trained, of all that it judges at a smaller scale.
        undecided: how many claims are open, or judged at a smaller scale alone.
        runs: how many are to be trained; of an experiment whose later runs depend on the first, at
            least.
        seconds: what these take together, as far as stored runs show; None if none is alike.
    """

    experiment: str
    scale: Scale
    seeds: int
    before: int
    decides: tuple[str, ...]
    undecided: int
    runs: int
    seconds: float | None

    @property
    def command(self) -> str:
        """What trains it."""
        words = f"normscope reproduce {self.experiment} --scale {self.scale}"
        return f"{words} --seeds {self.seeds}"


class _LackingError(Exception):
    """Runs are missing."""

    def __init__(self, specs: list[RunSpec]) -> None:
        super().__init__()
        self.specs = specs


class _Inventory(Sweep):
    """A sweep that trains nothing."""

    def require(self, datasets: Iterable[str]) -> None:
        """Nothing: no image is read."""

    def runs(self, specs: Sequence[RunSpec], *, weights: bool = False) -> list[StoredRun]:
        """The finished runs, if there are all of them."""
        missing = self.missing(specs, weights=weights)
        if missing:
            raise _LackingError(missing)
        return super().runs(specs, weights=weights)


def seeds_to_decide(claim: Claim, seeds: int) -> int | None:
    """How many seeds would probably decide an open claim; None if that is unknown.

    The interval is taken to shrink with the square root of the seeds, and the mean to stay about
    where it is: at an edge of its region no number of seeds decides. The true noise, and so the
    number, is known roughly: from two seeds within a factor of several.

    Args:
        claim: what is open.
        seeds: behind its interval.

    >>> claim = Claim("x grows", "+", 1.0, (-0.5, 2.5), (0.0, math.inf), "text")
    >>> seeds_to_decide(claim, 2)
    10
    """
    low, high = claim.interval
    least, most = claim.region
    margin = min(abs(claim.value - edge) for edge in (least, most))
    half = (high - low) / 2
    if margin <= 0 or not math.isfinite(half) or half == 0:
        return None
    return max(seeds + 1, math.ceil(seeds * (_SAFETY * half / margin) ** 2))


def plan(
    folder: Path, ledger: Ledger | None, *, scale: Scale, minutes: float = math.inf
) -> list[Step]:
    """Steps in order of claims decided for the time that they take, as many as fit.

    An experiment that is not trained at this scale comes first. Of one that has open claims, the
    number of seeds is taken that decides the most of them for the time. Experiments that train
    without a sweep are left out.

    Args:
        folder: of stored results.
        ledger: finished runs, which need not be trained, and whose times are the estimate.
        scale: what to plan for.
        minutes: how long they may take together.
    """
    steps = []
    for name in EXPERIMENTS:
        if load(name).KIND == "training" and getattr(load(name), "SHARES_RUNS", True):
            best = max(_options(name, folder, ledger, scale), key=_value, default=None)
            steps += [best] if best else []
    steps.sort(key=_value, reverse=True)
    chosen, left = [], 60 * minutes
    for step in steps:
        if (step.seconds or 0.0) <= left:
            chosen.append(step)
            left -= step.seconds or 0.0
    return chosen


def _value(step: Step) -> tuple[bool, float]:
    """Whether it is new, and claims for the second."""
    return step.before == 0, len(step.decides) / max(1.0, step.seconds or 0.0)


def _options(name: str, folder: Path, ledger: Ledger | None, scale: Scale) -> list[Step]:
    path = folder / f"{name}.{scale}.json"
    return _more_seeds(Results.load(path)) if path.is_file() else _new(name, folder, ledger, scale)


def _more_seeds(stored: Results) -> list[Step]:
    """Each number of seeds that decides more; a seed takes as long as those before it."""
    undecided = [c for c in claims_of(stored) if c.verdict == "inconclusive"]
    needs = [(claim, seeds_to_decide(claim, stored.seeds)) for claim in undecided]
    runs, seconds = len(stored.made.runs), stored.made.trained_seconds
    steps = []
    for seeds in sorted({n for _, n in needs if n is not None and n <= MOST_SEEDS}):
        decided = [claim.sentence for claim, n in needs if n is not None and n <= seeds]
        share = (seeds - stored.seeds) / stored.seeds
        name, before = stored.experiment, stored.seeds
        size = round(share * runs), share * seconds
        steps.append(Step(name, stored.scale, seeds, before, tuple(decided), len(undecided), *size))
    return steps


def _new(name: str, folder: Path, ledger: Ledger | None, scale: Scale) -> list[Step]:
    """The experiment as it is trained at first."""
    seeds = load(name).SEEDS[scale]
    try:
        numbers(name, scale, 0, seeds, _Inventory(ledger=ledger))
        missing: list[RunSpec] = []
    except _LackingError as lacking:
        missing = lacking.specs
    times = [_seconds(spec, ledger) for spec in missing]
    known = [seconds for seconds in times if seconds is not None]
    total = sum(known) if len(known) == len(times) else None
    paths = [folder / f"{name}.{smaller}.json" for smaller in reversed(SCALES)]
    judged = next((claims_of(Results.load(path)) for path in paths if path.is_file()), [])
    sentences = tuple(claim.sentence for claim in judged)
    return [Step(name, scale, seeds, 0, sentences, len(judged), len(missing), total)]


def _seconds(spec: RunSpec, ledger: Ledger | None) -> float | None:
    """What a run takes: the median by epoch of stored runs that are most alike."""
    for fields in (("method", "net", "data", "batch"), ("method", "net", "data"), ("net", "data")):
        times = [
            run.made.seconds / run.spec.epochs
            for run in ledger or ()
            if all(getattr(run.spec, field) == getattr(spec, field) for field in fields)
        ]
        if times:
            return spec.epochs * statistics.median(times)
    return None
