"""A compressed sample, to count how many of its values lie below a given one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

_CELLS = 4  # of the grid, for each kept value: most cells then hold one or none
_STEPS = 8  # from a cell's first value on, before the rest is searched for


@dataclass(frozen=True)
class Quantiles:
    """A sorted sample, or some of its values at equal steps of rank, both ends among them.

    Attributes:
        values: sorted, (q,).
        total: how many the sample had.
    """

    values: np.ndarray
    total: int

    @classmethod
    def of(cls, sample: np.ndarray, *, most: int) -> Quantiles:
        """The quantiles of a sample, (n,), all of it if it has no more than `most`."""
        kept = _ranks(len(sample), min(len(sample), most))
        return cls(np.sort(sample)[kept], len(sample))

    def sound(self) -> bool:
        """Whether these can be quantiles: finite, sorted, and no more than there were."""
        values = self.values
        if values.dtype != np.float64 or values.ndim != 1 or not 1 <= len(values) <= self.total:
            return False
        return bool(np.isfinite(values).all() and (np.diff(values) >= 0).all())

    def counts(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """How many of the sample are below x, and how many are at most x; NaN for NaN.

        Exact if all of the sample is kept; else within half a step of rank, and exact beyond its
        ends.

        >>> Quantiles.of(np.array([1.0, 2.0, 2.0]), most=9).counts(np.array([0.0, 2.0, 3.0]))
        (array([0., 1., 3.]), array([0., 3., 3.]))
        """
        first = self._place(x)
        last = first.copy()
        # only kept values have another place on their right: few rows, and the search is slow
        tied = np.flatnonzero(self.values[np.minimum(first, len(self.values) - 1)] == x)
        last[tied] = np.searchsorted(self.values, x[tied], "right")
        left, right = self._below[first], self._below[last]
        unknown = np.isnan(x)
        left[unknown] = right[unknown] = np.nan
        return left, right

    @cached_property
    def _below(self) -> np.ndarray:
        """How many of the sample lie below what has j kept values below it, (q + 1,)."""
        ranks = _ranks(self.total, len(self.values))
        # after j kept values: those up to the last of them, and half of those before the next
        between = (ranks[:-1] + 1 + ranks[1:]) / 2
        return np.concatenate([[0.0], between, [float(self.total)]])

    def _place(self, x: np.ndarray) -> np.ndarray:
        """How many kept values are below each x: `np.searchsorted`.

        Takes a fifth of its time if values are spread, and hardly longer if most share a cell, as
        with one value far from all others.
        """
        scale, start, ended = self._grid
        within = np.fmin(np.fmax(x, self.values[0]), self.values[-1])  # where NaN is, the least
        place = start[_cell(within - self.values[0], scale, len(start))]
        for _ in range(_STEPS):
            further = ended[place] < x
            if not further.any():
                return place
            place += further
        rest = np.flatnonzero(ended[place] < x)  # many values share a cell
        place[rest] = np.searchsorted(self.values, x[rest])
        return place

    @cached_property
    def _grid(self) -> tuple[float, np.ndarray, np.ndarray]:
        """Cells per unit, how many values lie in lower cells than each, and values with an end."""
        cells = _CELLS * len(self.values)
        with np.errstate(all="ignore"):
            scale = cells / (self.values[-1] - self.values[0])
        scale = scale if np.isfinite(scale) else 0.0  # all alike: one cell
        start = np.searchsorted(_cell(self.values - self.values[0], scale, cells), np.arange(cells))
        return scale, start, np.append(self.values, np.inf)


def _cell(beyond: np.ndarray, scale: float, cells: int) -> np.ndarray:
    """The cell of a value this far above the smallest; monotone, so lower cells hold less."""
    if scale == 0:  # all are in one cell, and some may be infinitely far beyond
        return np.zeros(len(beyond), np.intp)
    return np.minimum((beyond * scale).astype(np.intp), cells - 1)


def _ranks(total: int, kept: int) -> np.ndarray:
    return np.linspace(0, total - 1, kept).round().astype(np.int64)
