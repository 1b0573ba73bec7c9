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


def auroc_interval(
    scores: Values, positive: Values, *, beside: Values | None = None
) -> tuple[float, float, float]:
    r"""`auroc` and its 95 % interval; or, with `beside`, how much it exceeds that score's.

    By the variance of each row's placement among the rows of the other kind (DeLong et al., 1988).
    The interval of one AUROC is taken on the logit scale, so that it stays within 0 and 1.

    Args:
        scores: (n,), infinity allowed.
        positive: bools, or zeros and ones, (n,).
        beside: another score of the same rows, (n,).

    >>> rng = np.random.default_rng(0)
    >>> positive = np.arange(400) < 200
    >>> [round(x, 2) for x in auroc_interval(rng.normal(size=400) + positive, positive)]
    [0.79, 0.74, 0.83]
    """
    s = column("scores", scores)
    yes = zero_one("positive", positive, rows=len(s))
    if min(yes.sum(), (~yes).sum()) < 2:
        return math.nan, math.nan, math.nan
    ones, zeros = _placements(s, yes)
    value = float(ones.mean())
    if beside is not None:
        other = _placements(column("beside", beside, rows=len(s)), yes)
        ones, zeros = ones - other[0], zeros - other[1]
        value = float(ones.mean())
    width = 1.96 * math.sqrt(ones.var(ddof=1) / len(ones) + zeros.var(ddof=1) / len(zeros))
    if beside is not None:
        return value, value - width, value + width
    if not 0 < value < 1:  # as of so many rows that all went one way
        edge = 0.05 ** (1 / min(len(ones), len(zeros)))
        return (value, edge, 1.0) if value else (value, 0.0, 1 - edge)
    logit, width = math.log(value / (1 - value)), width / (value * (1 - value))
    low, high = (1 / (1 + math.exp(-(logit + side))) for side in (-width, width))
    return value, low, high


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


def _placements(s: np.ndarray, yes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The share of negative rows below each positive one, and of positive ones above each other."""
    ranks = _mid_ranks(s)
    ones, zeros = s[yes], s[~yes]
    below = (ranks[yes] - _mid_ranks(ones)) / len(zeros)
    return below, 1 - (ranks[~yes] - _mid_ranks(zeros)) / len(ones)


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
