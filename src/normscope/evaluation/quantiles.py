"""A sample kept small: how many of it lie below a value."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Quantiles:
    """A sorted sample, or so many of its values at equal steps of rank, both ends among them.

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

    def counts(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """How many of the sample are below x, and how many are at most x; NaN for NaN.

        Exact if all of the sample is kept; else within half a step of rank, and exact beyond its
        ends.

        >>> Quantiles.of(np.array([1.0, 2.0, 2.0]), most=9).counts(np.array([0.0, 2.0, 3.0]))
        (array([0., 1., 3.]), array([0., 3., 3.]))
        """
        ranks = _ranks(self.total, len(self.values))
        # after j kept values: those up to the last of them, and half of those before the next
        between = (ranks[:-1] + 1 + ranks[1:]) / 2
        below = np.concatenate([[0.0], between, [float(self.total)]])
        first = np.searchsorted(self.values, x)
        last = first.copy()
        # only a kept value itself has another place on its right: few rows, and the search is slow
        tied = np.flatnonzero(self.values[np.minimum(first, len(self.values) - 1)] == x)
        last[tied] = np.searchsorted(self.values, x[tied], "right")
        left, right = below[first], below[last]
        left[np.isnan(x)] = right[np.isnan(x)] = np.nan
        return left, right


def _ranks(total: int, kept: int) -> np.ndarray:
    return np.linspace(0, total - 1, kept).round().astype(np.int64)
