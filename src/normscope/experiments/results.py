"""What an experiment leaves behind: its numbers, where they came from, and what they decide."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from normscope._checks import invalid
from normscope._environment import hardware, versions
from normscope._files import whole_file

Scale = Literal["smoke", "small", "paper"]
SCALES: tuple[Scale, ...] = ("smoke", "small", "paper")
Verdict = Literal["reproduced", "not reproduced", "inconclusive"]
NOT_IN_PAPER = "not in the paper"  # what a claim of our own has for the paper's number


class Noise(NamedTuple):
    """How far a number strays from seed to seed: its standard deviation, known from elsewhere.

    Args:
        deviation: the estimate.
        freedom: its degrees of freedom.
    """

    deviation: float
    freedom: int


@dataclass(frozen=True)
class Claim:
    """One sentence of the paper, put to the test.

    Args:
        sentence: what the paper says, so that it can be true or false.
        paper: its number, as printed.
        value: ours.
        interval: a 95 % confidence interval over seeds; both ends are the value where nothing is
            random.
        region: the values for which the sentence is true, both ends included.
        recipe: which reading of the paper was run.
    """

    sentence: str
    paper: str
    value: float
    interval: tuple[float, float]
    region: tuple[float, float]
    recipe: str

    def __post_init__(self) -> None:
        numbers = (self.value, *self.interval, *self.region)
        if any(math.isnan(x) for x in numbers) or not self.interval[0] <= self.interval[1]:
            raise invalid("interval", "two numbers in order", str(numbers), "Nothing to judge.")

    @classmethod
    def exact(
        cls, sentence: str, value: float, region: tuple[float, float], *, paper: str, recipe: str
    ) -> Claim:
        """A claim on a number in which nothing is random."""
        return cls(sentence, paper, value, (value, value), region, recipe)

    @classmethod
    def over_seeds(
        cls,
        sentence: str,
        values: Sequence[float],
        region: tuple[float, float],
        *,
        paper: str,
        recipe: str,
        noise: Noise | None = None,
        possible: tuple[float, float] = (-math.inf, math.inf),
    ) -> Claim:
        """A claim on the mean of a number that each seed gives.

        `noise` is as in `mean_interval`; what is not `possible` is left out of the interval.
        """
        mean, (low, high) = mean_interval(values, noise)
        interval = max(low, possible[0]), min(high, possible[1])
        return cls(sentence, paper, mean, interval, region, recipe)

    @classmethod
    def jointly(
        cls,
        sentence: str,
        columns: Sequence[Sequence[float]],
        region: tuple[float, float],
        *,
        paper: str,
        recipe: str,
        worst: Literal["largest", "smallest"],
    ) -> Claim:
        """A claim on several numbers at once: on the largest or the smallest, as `worst` says.

        `columns` has, for each number, its value by every seed.
        """
        pick = max if worst == "largest" else min
        every = [mean_interval(column) for column in columns]
        value = pick(mean for mean, _ in every)
        interval = pick(low for _, (low, _) in every), pick(high for _, (_, high) in every)
        return cls(sentence, paper, value, interval, region, recipe)

    @property
    def verdict(self) -> Verdict:
        """Reproduced if the whole interval lies in the region, not if none of it does.

        >>> Claim("x grows", "+", 1.0, (0.5, 1.5), (0.0, math.inf), "text").verdict
        'reproduced'
        >>> Claim("x grows", "+", 1.0, (-0.5, 2.5), (0.0, math.inf), "text").verdict
        'inconclusive'
        """
        (low, high), (least, most) = self.interval, self.region
        if least <= low and high <= most:
            return "reproduced"
        return "not reproduced" if high < least or most < low else "inconclusive"


@dataclass
class Results:
    """The numbers of one run of one experiment; figures and claims come from these alone.

    Args:
        experiment: its ID.
        scale: how large it was.
        seeds: how many, from `seed` on.
        seed: the first.
        data: numbers, strings, and lists and dicts of them.
        provenance: command, versions, hardware, seconds.
    """

    experiment: str
    scale: Scale
    seeds: int
    seed: int
    data: dict[str, Any]
    provenance: dict[str, Any] = field(default_factory=dict)

    def save(self, folder: Path) -> Path:
        """Write `<experiment>.<scale>.json`, whole or not at all."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.experiment}.{self.scale}.json"
        with whole_file(path) as partial:
            partial.write_text(json.dumps(asdict(self), allow_nan=False) + "\n")
        return path

    @classmethod
    def load(cls, path: Path) -> Results:
        """Read what `save` wrote; a file that is something else is refused by name."""
        try:
            stored = json.loads(path.read_text())
            results = cls(**stored)
            results._check()
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            advice = f"{error}. Delete it, or make it anew."
            raise invalid(str(path), "a file that `reproduce` wrote", "another", advice) from error
        return results

    def _check(self) -> None:
        """Refuse what `save` did not write."""
        made = self.provenance
        if not isinstance(made, dict) or not isinstance(self.data, dict) or not self.data:
            raise TypeError("it has no data or provenance")
        texts = (self.experiment, made.get("command"), made.get("hardware"))
        if not all(isinstance(text, str) for text in texts) or self.scale not in SCALES:
            raise TypeError("its experiment, scale, command or hardware is none")
        if type(self.seed) is not int or type(self.seeds) is not int:
            raise TypeError("its seeds are none")
        if not isinstance(made.get("versions"), dict) or not isinstance(made.get("runs", {}), dict):
            raise TypeError("its versions or runs are none")
        runs = made.get("runs", {}).values()
        seconds = [made.get("seconds"), *(run["seconds"] for run in runs)]
        if not all(type(number) in (int, float) for number in seconds):
            raise TypeError("its seconds are none")
        if not all(
            isinstance(run["hardware"], str) and isinstance(run["versions"], dict) for run in runs
        ):
            raise TypeError("hardware or versions of its runs are none")


def rounded(values: Any, digits: int = 5) -> Any:
    """Nested lists, arrays or tensors as lists of numbers with so many significant digits.

    >>> rounded([[1.23456789, 2], (3.0,)], digits=3)
    [[1.23, 2], [3.0]]
    """
    if hasattr(values, "tolist"):
        values = values.tolist()
    if isinstance(values, Mapping):
        return {key: rounded(value, digits) for key, value in values.items()}
    if isinstance(values, (list, tuple)):
        return [rounded(value, digits) for value in values]
    return float(f"{values:.{digits}g}") if isinstance(values, float) else values


def mean_interval(
    values: Sequence[float], noise: Noise | None = None
) -> tuple[float, tuple[float, float]]:
    """The mean, and its 95 % confidence interval by Student's t.

    Args:
        values: of independent seeds.
        noise: of one value; unless given, taken from the values.

    >>> mean, (low, high) = mean_interval([1.0, 2.0, 3.0, 4.0])
    >>> print(f"{mean} [{low:.2f}, {high:.2f}]")
    2.5 [0.45, 4.55]
    """
    values = [float(v) for v in values]
    if noise is None:
        if len(values) < 2:
            raise invalid("values", "at least two", len(values), "One seed has no interval.")
        noise = Noise(statistics.stdev(values), len(values) - 1)
    mean = statistics.fmean(values)
    half = t_quantile(noise.freedom) * noise.deviation / math.sqrt(len(values))
    return mean, (mean - half, mean + half)


def share_interval(hits: int, cases: int) -> tuple[float, tuple[float, float]]:
    """A share, and its 95 % confidence interval by Wilson's score, which stays within 0 and 1.

    >>> share, (low, high) = share_interval(3, 20)
    >>> print(f"{share} [{low:.3f}, {high:.3f}]")
    0.15 [0.052, 0.360]
    """
    z = statistics.NormalDist().inv_cdf(0.975)
    share, spread = hits / cases, z**2 / cases
    middle = (share + spread / 2) / (1 + spread)
    half = z / (1 + spread) * math.sqrt(share * (1 - share) / cases + spread / (4 * cases))
    low, high = middle - half if hits else 0.0, middle + half if hits < cases else 1.0
    return share, (low, high)


def t_quantile(degrees: int) -> float:
    """The 97.5 % quantile of Student's t, to three digits."""
    exact = (12.706, 4.303, 3.182, 2.776, 2.571)  # the expansion below is poor for so few
    if degrees <= len(exact):
        return exact[degrees - 1]
    z = statistics.NormalDist().inv_cdf(0.975)  # Cornish and Fisher (Abramowitz, Stegun 26.7.5)
    return (
        z
        + (z**3 + z) / (4 * degrees)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * degrees**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * degrees**3)
    )


def provenance(command: str, seconds: float, *, gpu: bool) -> dict[str, Any]:
    """Where and with what the numbers were made."""
    return {
        "command": command,
        "seconds": round(seconds, 2),
        "versions": versions(),
        "hardware": hardware(gpu=gpu),
    }
