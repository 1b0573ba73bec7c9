"""95 % confidence intervals: of means over seeds, of shares, of rank correlations."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

from scipy.special import stdtrit

from normscope.evaluation import wilson_interval
from normscope.extend import invalid

Interval = tuple[float, float]
UNKNOWN: Interval = (-math.inf, math.inf)
_FULL = 1 - 1e-9  # a rank correlation of one would have an infinite logarithm


class Spread(NamedTuple):
    """The standard deviation of a number over seeds, and its degrees of freedom."""

    sd: float
    df: int


def t_quantile(df: int) -> float:
    """The 97.5 % quantile of Student's t.

    >>> round(t_quantile(2), 3)
    4.303
    """
    return float(stdtrit(df, 0.975))


def mean_interval(values: Sequence[float], spread: Spread | None = None) -> tuple[float, Interval]:
    """The mean over independent seeds, and its interval by Student's t.

    Args:
        values: one a seed.
        spread: of one value; estimated from the values unless given.

    >>> mean, (low, high) = mean_interval([1.0, 2.0, 3.0, 4.0])
    >>> print(f"{mean} [{low:.2f}, {high:.2f}]")
    2.5 [0.45, 4.55]
    """
    values = [float(v) for v in values]
    if spread is None:
        if len(values) < 2:
            raise invalid("values", "at least two", len(values), "One seed has no interval.")
        spread = Spread(statistics.stdev(values), len(values) - 1)
    mean = statistics.fmean(values)
    half = t_quantile(spread.df) * spread.sd / math.sqrt(len(values))
    return mean, (mean - half, mean + half)


def share_interval(hits: int, cases: int) -> tuple[float, Interval]:
    """A share, and its interval by Wilson's score.

    >>> share, (low, high) = share_interval(3, 20)
    >>> print(f"{share} [{low:.3f}, {high:.3f}]")
    0.15 [0.052, 0.360]
    """
    low, high = wilson_interval(hits, cases)
    return hits / cases, (float(low), float(high))


def rank_interval(rank: float, n: int) -> Interval:
    """Of a rank correlation of n pairs (Fieller et al., 1957), with Student's quantile.

    Four pairs have too few permutations to decide anything; of five, only a full order does.

    >>> print([round(end, 2) for end in rank_interval(0.8, 9)], rank_interval(1.0, 4))
    [0.1, 0.97] (-1.0, 1.0)
    """
    if n <= 4 or math.isnan(rank):
        return -1.0, 1.0
    centre = math.atanh(max(-_FULL, min(_FULL, rank)))
    half = t_quantile(n - 2) * math.sqrt(1.06 / (n - 3))
    return math.tanh(centre - half), math.tanh(centre + half)
