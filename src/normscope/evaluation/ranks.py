"""How well one order agrees with another, in numpy alone; the scores' scale does not matter.

All refuse NaN, and return NaN where undefined: with one kind of rows only, or all of them tied.
"""

from __future__ import annotations

import math

import numpy as np

from normscope.evaluation.inputs import Values, column, zero_one


def auroc(scores: Values, positive: Values) -> float:
    """The chance that a positive row scores above a negative one; a tie counts as one half.

    Args:
        scores: (n,), infinity allowed.
        positive: bools, or zeros and ones, (n,).

    >>> auroc(np.array([0.1, 0.4, 0.4, 0.8]), np.array([False, True, False, True]))
    0.875
    """
    return auroc_of_counts(*_counts(scores, positive))


def average_precision(scores: Values, positive: Values) -> float:
    r"""The area under precision and recall as a step function, $\sum_i (R_i - R_{i-1}) P_i$.

    i runs over the distinct scores from the highest on, so that tied rows come in together.

    Args:
        scores: (n,), infinity allowed.
        positive: bools, or zeros and ones, (n,).

    >>> average_precision(np.array([0.9, 0.5, 0.1]), np.array([True, False, True]))
    0.8333333333333333
    """
    return average_precision_of_counts(*_counts(scores, positive))


def spearman(a: Values, b: Values) -> float:
    """The correlation of the ranks; tied values share their mean rank.

    >>> spearman(np.array([1.0, 2.0, 3.0]), np.array([10.0, 1000.0, 100.0]))
    0.5
    """
    x = column("a", a)
    y = column("b", b, rows=len(x))
    u, v = (_mid_ranks(c) - (len(c) + 1) / 2 for c in (x, y))
    scale = math.sqrt(float(u @ u) * float(v @ v))
    return float(u @ v) / scale if scale else math.nan


def kendall(a: Values, b: Values) -> float:
    r"""Kendall's $\tau_b$, in $O(n \log n)$: pairs in the same order less those in the opposite.

    The difference is divided by $\sqrt{(n_0 - n_a)(n_0 - n_b)}$: of all $n_0$ pairs, those that
    are not tied in a, and those that are not in b.

    >>> kendall(np.array([1.0, 2.0, 3.0]), np.array([1.0, 3.0, 2.0]))
    0.3333333333333333
    """
    x = column("a", a)
    y = column("b", b, rows=len(x))
    x, y = (np.unique(c, return_inverse=True)[1] for c in (x, y))
    order = np.lexsort((y, x))
    pairs = len(x) * (len(x) - 1) // 2
    both = x * (int(y.max()) + 1) + y
    tied_x, tied_y, tied = (_tied_pairs(c) for c in (x, y, both))
    scale = math.sqrt((pairs - tied_x) * (pairs - tied_y))
    opposite = _inversions(y[order])  # tied in a: b ascends, so none of these is counted
    return (pairs - tied_x - tied_y + tied - 2 * opposite) / scale if scale else math.nan


def auroc_of_counts(positive: np.ndarray, negative: np.ndarray) -> float:
    """`auroc` from the number of positive and negative rows at each distinct score, ascending."""
    pairs = float(positive.sum()) * float(negative.sum())
    below = np.cumsum(negative) - negative / 2
    return float((positive * below).sum()) / pairs if pairs else math.nan


def average_precision_of_counts(positive: np.ndarray, negative: np.ndarray) -> float:
    """`average_precision` from the numbers of rows at each distinct score, ascending."""
    found = np.cumsum(positive[::-1])
    retrieved = np.maximum(np.cumsum((positive + negative)[::-1]), 1)  # none: none found either
    if not found[-1]:
        return math.nan
    return float((positive[::-1] * (found / retrieved)).sum() / found[-1])


def _counts(scores: Values, positive: Values) -> tuple[np.ndarray, np.ndarray]:
    """The number of positive rows and of negative ones at each distinct score, ascending."""
    s = column("scores", scores)
    yes = zero_one("positive", positive, rows=len(s))
    distinct, cell = np.unique(s, return_inverse=True)
    ones = np.bincount(cell[yes], minlength=len(distinct))
    return ones, np.bincount(cell, minlength=len(distinct)) - ones


def _mid_ranks(x: np.ndarray) -> np.ndarray:
    _, cell, counts = np.unique(x, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[cell]


def _tied_pairs(x: np.ndarray) -> int:
    counts = np.unique(x, return_counts=True)[1]
    return int((counts * (counts - 1) // 2).sum())


def _inversions(x: np.ndarray) -> int:
    """Pairs that stand in descending order, of whole numbers from zero on.

    Two numbers differ first at some bit. So, from the highest bit on, those that agree in all
    bits above stand together in their order, and each zero counts the ones before it.
    """
    total, place = 0, np.arange(len(x))
    for bit in reversed(range(int(x.max()).bit_length())):
        key = x >> bit
        one = key & 1
        sizes = np.bincount(key)
        first = np.cumsum(sizes) - sizes
        start = first[key - one]
        ones = np.cumsum(one) - one
        ones -= ones[start]
        total += int(ones[one == 0].sum())
        moved = np.empty_like(x)
        moved[first[key] + np.where(one, ones, place - start - ones)] = x
        x = moved
    return total
