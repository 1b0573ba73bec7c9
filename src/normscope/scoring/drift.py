"""Whether embeddings drift from window to window: norms, neighbours and covariates, tested."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from normscope._checks import invalid
from normscope._sphere import unit
from normscope.confidence import LEAST
from normscope.confidence.measured import COPY
from normscope.confidence.raw import alike, normalised
from normscope.evaluation.bank import Bank
from normscope.evaluation.inputs import tensor_of
from normscope.scoring.arrays import as_source
from normscope.scoring.blocks import OK, TIME, Block, Source
from normscope.scoring.drift_words import moment, verdict_of
from normscope.scoring.reference import Progress
from normscope.scoring.sample import Sample, keys_of
from normscope.scoring.tally import counted, named

ALPHA = 0.05
WINDOWS = 6  # that `drift_by` makes
NORM, NEIGHBOURS, DIRECTION = "norm", "neighbours", "direction"
_DRAWN = 10_000  # rows of a window, at most
_SAMPLE_BYTES = 1 << 28  # of all windows
_NEAR = 5
_LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)
_SAME = 0.9  # the share of shared rows from which windows are one
_COPY_ROWS = 4096  # that are normalised at once


@dataclass(frozen=True)
class Quantity:
    """One quantity of one window.

    Attributes:
        name: "norm"; "neighbours", the mean cosine with the five nearest rows of the first
            window, a copy of the row left out; "direction", where rows lie on the line between
            the mean directions of both windows, in deviations of the first, the line being found
            on other rows; or a covariate's.
        levels: its 5, 25, 50, 75 and 95 % quantiles.
        distance: the largest difference of its distribution function from the first window's,
            from 0 to 1; None for that window itself.
        p: of that distance, before the correction.
        p_corrected: after it.
    """

    name: str
    levels: tuple[float, ...]
    distance: float | None = None
    p: float | None = None
    p_corrected: float | None = None

    @property
    def median(self) -> float:
        """The middle level."""
        return self.levels[len(_LEVELS) // 2]

    @property
    def drifts(self) -> bool:
        """Whether it differs beyond chance."""
        return self.p_corrected is not None and self.p_corrected <= ALPHA


@dataclass(frozen=True)
class Window:
    """A part of the data.

    Attributes:
        name: of its file, or its ends in time.
        rows: all of them.
        drawn: those that were tested.
        left_out: status -> rows that can't be compared.
        quantities: by name.
    """

    name: str
    rows: int
    drawn: int
    left_out: dict[str, int]
    quantities: dict[str, Quantity]

    @property
    def drifts(self) -> bool:
        """Whether any quantity does."""
        return any(quantity.drifts for quantity in self.quantities.values())


@dataclass(frozen=True)
class Drift:
    """What was found: the first window, which others are compared with, and these.

    >>> rng = np.random.default_rng(0)
    >>> found = drift({"old": rng.normal(size=(500, 4)), "new": 2 * rng.normal(size=(500, 4))})
    >>> found.drifts, found.windows[1].quantities["norm"].drifts
    (True, True)
    """

    windows: tuple[Window, ...]
    notes: tuple[str, ...] = ()

    @property
    def drifts(self) -> bool:
        """Whether any window does."""
        return any(window.drifts for window in self.windows)

    @property
    def verdict(self) -> str:
        """It all in a sentence or two."""
        return verdict_of(self)


def drift(
    windows: Mapping[str, object],
    *,
    covariates: Mapping[str, Mapping[str, np.ndarray]] | None = None,
    progress: Progress | None = None,
) -> Drift:
    """Compare later windows of embeddings with the first.

    At most 10,000 rows of each are drawn, evenly and by seed 0: memory does not grow with them.
    Half of those of the first window are the bank that neighbours are looked for in; the other
    half is compared with the other windows. So without drift all are treated alike, which makes
    the test valid. Norms are left out if all windows were normalised.

    Args:
        windows: name -> rows, at least 40 in the first and 20 in the others: a `Source`, as
            `open_embeddings` gives it, with covariates if there are any; or what `as_source` takes.
        covariates: window -> name -> numbers, (n,), where `windows` holds no sources.
        progress: called with the rows read and the rows in all.
    """
    if len(windows) < 2:
        advice = "Name old and new rows."
        raise invalid("windows", "at least two", len(windows), advice)
    given = covariates or {}
    sources = {
        name: rows if isinstance(rows, Source) else as_source(rows, covariates=given.get(name))
        for name, rows in windows.items()
    }
    total = sum(source.rows for source in sources.values())
    drawn = [_Drawn(name) for name in sources]
    most = _most(len(sources), max(source.d for source in sources.values()))
    start = 0
    for window, source in zip(drawn, sources.values(), strict=True):
        window.sample = Sample(most)
        for block in source.blocks():
            window.take(block, start, np.ones(len(block), bool))
            start += len(block)
            if progress is not None:
                progress(start, total)
    return _compared(drawn)


def drift_by(
    source: Source, by: str, *, windows: int = WINDOWS, progress: Progress | None = None
) -> Drift:
    """Compare later rows with the first ones, by a column of times.

    Windows have as many rows each, or one value each if there are no more values than windows.
    Of the times, eight bytes a row are in memory. The source is read twice.

    Args:
        source: with `by` among its covariates.
        by: the column: numbers, or times, which are seconds from 1970 then.
        windows: how many.
        progress: called with the rows read, in both passes, and the rows in all.
    """
    if windows < 2:
        raise invalid("windows", "at least two", windows, "The first is what others are tested by.")
    times = np.empty(source.rows)
    start = 0
    for block in source.blocks():
        times[start : start + len(block)] = block.covariates[by]
        start += len(block)
        if progress is not None:
            progress(start, 2 * source.rows)
    edges, names = _edges(by, times, windows, clock=by + TIME in source.beside)
    found = [_Drawn(name, Sample(_most(len(names), source.d))) for name in names]
    untimed = int(np.isnan(times).sum())
    start = 0
    for block in source.blocks():
        rows = times[start : start + len(block)]
        place = np.searchsorted(edges, rows, side="right")
        rest = {name: column for name, column in block.covariates.items() if name != by}
        part = Block(block.norms, block.status, block.z, None, rest)
        for i, window in enumerate(found):
            window.take(part, start, (place == i) & ~np.isnan(rows))
        start += len(block)
        if progress is not None:
            progress(source.rows + start, 2 * source.rows)
    notes = (f"{untimed:,} rows without {by} are in no window.",) if untimed else ()
    return _compared(found, notes)


@dataclass
class _Drawn:
    """A window's rows as they are read."""

    name: str
    sample: Sample = field(default_factory=lambda: Sample(_DRAWN))
    counts: Counter[int] = field(default_factory=Counter)

    def take(self, block: Block, start: int, mine: np.ndarray) -> None:
        """Look at those rows of a block that are in this window."""
        self.counts.update(counted(block.status[mine]))
        self.sample.take(block, start, mine & (block.status == OK))


def _compared(drawn: Sequence[_Drawn], notes: tuple[str, ...] = ()) -> Drift:
    """All tests, corrected together."""
    samples = _samples(drawn)
    norms = [rows.norms for _, rows in samples]
    flat = all(alike(of) for of in norms)
    notes += _caveats([window.name for window in drawn], norms, flat=flat)
    notes += tuple(_shared(drawn, [rows.z for _, rows in samples]))
    old, others = _columns(samples, leave_out={NORM} if flat else set())
    tests = [
        (i, name, *_ks(*pair), _levels(pair[1]))
        for i, columns in enumerate(others)
        for name, pair in columns.items()
    ]
    corrected = holm([p for *_, p, _ in tests])
    found = [{name: Quantity(name, _levels(column)) for name, column in old.items()}]
    found += [{} for _ in others]
    for (i, name, distance, p, levels), after in zip(tests, corrected, strict=True):
        found[i + 1][name] = Quantity(name, levels, distance, p, after)
    windows = tuple(
        Window(of.name, of.counts.total(), len(places), named(of.counts), quantities)
        for of, (places, _), quantities in zip(drawn, samples, found, strict=True)
    )
    return Drift(windows, notes)


def _samples(drawn: Sequence[_Drawn]) -> list[tuple[np.ndarray, Block]]:
    """The rows of each window, if there are enough."""
    samples = [window.sample.drawn() for window in drawn]
    for i, (window, (places, _)) in enumerate(zip(drawn, samples, strict=True)):
        least = LEAST if i else 2 * LEAST
        if len(places) < least:
            constraint = f"at least {least} rows that are finite and not zero"
            raise invalid(window.name, constraint, len(places), "Give it more.")
    _check_alike(drawn, samples[0][1], [rows for _, rows in samples[1:]])
    return samples


def _columns(
    samples: Sequence[tuple[np.ndarray, Block]], leave_out: set[str]
) -> tuple[dict[str, np.ndarray], list[dict[str, tuple[np.ndarray, np.ndarray]]]]:
    """What the first window has, and what is compared of it and each other one."""
    places, first = samples[0]
    banked = _half(places)
    known = _directions(first.z[banked])
    bank = Bank.of(known, way="exact")
    held = _directions(first.z[~banked])

    def columns(rows: Block, at: np.ndarray, directions: torch.Tensor) -> dict[str, np.ndarray]:
        given = {name: column[at] for name, column in rows.covariates.items()}
        found = {NORM: rows.norms[at], NEIGHBOURS: _similarity(bank, directions), **given}
        return {name: column for name, column in found.items() if name not in leave_out}

    old = columns(first, ~banked, held)
    others = []
    for at, rows in samples[1:]:
        directions = _directions(rows.z)
        new = columns(rows, np.ones(len(at), bool), directions)
        half = torch.from_numpy(_half(at))
        line = directions[half].double().mean(0) - known.double().mean(0)
        ends = (held.double() @ line).numpy(), (directions[~half].double() @ line).numpy()
        scale = ends[0].std() or 1.0
        along = tuple((end - ends[0].mean()) / scale for end in ends)
        others.append({**{k: (old[k], new[k]) for k in old}, DIRECTION: along})
    return old, others


def _half(places: np.ndarray) -> np.ndarray:
    """Half of the rows, drawn by their numbers, bools, (n,)."""
    half = np.zeros(len(places), bool)
    half[np.argsort(keys_of(places, seed=1))[: len(places) // 2]] = True
    return half


def _caveats(names: list[str], norms: list[np.ndarray], *, flat: bool) -> tuple[str, ...]:
    if flat:
        return ("Norms are not compared: they are the same for all rows of a window.",)
    here = [name for name, of in zip(names, norms, strict=True) if normalised(of)]
    lines = f"Rows of {', '.join(here)} were normalised, and others were not."
    return (lines,) if here else ()


def _shared(drawn: Sequence[_Drawn], rows: list[np.ndarray]) -> Iterator[str]:
    """What to know of rows that are in a later window and in the first; the same rows are refused.

    They do not vary as drawn rows do, so that the tests may take chance for drift.
    """
    old, first = drawn[0], _as_bytes(rows[0])
    drawn_share = len(first) / old.counts.total()
    for new, z in zip(drawn[1:], rows[1:], strict=True):
        shared = int(np.isin(_as_bytes(z), first).sum())
        if shared > _SAME * drawn_share * len(z):
            advice = "Drift is tested between different rows."
            raise invalid(new.name, f"of other rows than {old.name}", "the same ones", advice)
        if shared:
            yield (
                f"{shared:,} of the {len(z):,} tested rows of {new.name} are tested rows of "
                f"{old.name} too. The tests are for different rows: leave these out of one of them."
            )


def _as_bytes(z: np.ndarray) -> np.ndarray:
    """Each row as one value, (n,)."""
    z = np.ascontiguousarray(z)
    return z.view(np.dtype((np.void, z.dtype.itemsize * z.shape[1])))[:, 0]


def _check_alike(drawn: Sequence[_Drawn], first: Block, others: Sequence[Block]) -> None:
    for window, rows in zip(drawn[1:], others, strict=True):
        if rows.z.shape[1] != first.z.shape[1]:
            constraint = f"of {first.z.shape[1]} columns, as {drawn[0].name} is"
            raise invalid(window.name, constraint, rows.z.shape[1], "Both come from one network.")
        if set(rows.covariates) != set(first.covariates):
            got = ", ".join(rows.covariates) or "none"
            constraint = f"with {', '.join(first.covariates) or 'no covariates'}"
            raise invalid(window.name, constraint, got, "Give all windows the same.")


def _directions(z: np.ndarray) -> torch.Tensor:
    parts = [z[start : start + _COPY_ROWS] for start in range(0, len(z), _COPY_ROWS)]
    return torch.cat([unit(tensor_of(part).double())[0].float() for part in parts])


def _similarity(bank: Bank, directions: torch.Tensor) -> np.ndarray:
    """The mean cosine with the five nearest rows of the bank, (n,); one copy is left out.

    So rows that are in both windows do not look nearer than others.
    """
    near = bank.nearest(directions, k=_NEAR + 1).distance.double()
    copied = near[:, :1] < COPY
    return 1 - near[:, 1:].where(copied, near[:, :-1]).mean(1).numpy()


def _levels(x: np.ndarray) -> tuple[float, ...]:
    known = x[np.isfinite(x)]
    if not len(known):
        return (math.nan,) * len(_LEVELS)
    return tuple(map(float, np.quantile(known, _LEVELS)))


def _ks(old: np.ndarray, new: np.ndarray) -> tuple[float, float]:
    """Kolmogorov and Smirnov's distance, and its p-value for many rows, a little high for few.

    NaN is a value, below all others, so that a covariate that is missing more often drifts too.
    """
    from scipy.special import kolmogorov  # slow to import

    old, new = (np.sort(np.where(np.isnan(x), -np.inf, x)) for x in (old, new))
    at = np.concatenate([old, new])
    shares = (np.searchsorted(x, at, side="right") / len(x) for x in (old, new))
    distance = float(np.abs(np.subtract(*shares)).max())
    rows = len(old) * len(new) / (len(old) + len(new))
    return distance, float(kolmogorov(np.sqrt(rows) * distance))


def holm(p: Sequence[float]) -> list[float]:
    """P-values after Holm's correction (1979): at most `a` of them is below `a` by chance alone.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    order = np.argsort(p)
    scaled = np.array(p)[order] * (len(p) - np.arange(len(p)))
    found = np.empty(len(p))
    found[order] = np.minimum(np.maximum.accumulate(scaled), 1.0)
    return found.tolist()


def _edges(
    by: str, times: np.ndarray, windows: int, *, clock: bool
) -> tuple[np.ndarray, list[str]]:
    """The first time of each window but the first, and the windows' names."""
    known = times[~np.isnan(times)]
    values = np.unique(known)
    if len(values) < 2:
        got = f"{len(values)} values"
        raise invalid(by, "a column of at least two times", got, "Name another column.")
    if len(values) <= windows:
        starts = values
    else:
        starts = np.unique(np.sort(known)[np.arange(windows) * len(known) // windows])
    ends = [*(values[np.searchsorted(values, starts[1:]) - 1]), values[-1]]
    shown = [[moment(end, clock=clock) for end in pair] for pair in zip(starts, ends, strict=True)]
    called = "" if clock else f"{by} "
    return starts[1:], [called + (a if a == b else f"{a} to {b}") for a, b in shown]


def _most(windows: int, d: int) -> int:
    """Rows to draw of each window: all of them take 256 MiB at most."""
    return max(2 * LEAST, min(_DRAWN, _SAMPLE_BYTES // (4 * d * windows)))
