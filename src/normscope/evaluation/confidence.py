"""Does the norm say how sure the network is? Buckets, their trend, and rank agreement."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from normscope._checks import invalid
from normscope.evaluation.inputs import Values, column
from normscope.evaluation.ranks import auroc, kendall, spearman

_Z = 1.959963984540054  # of the normal distribution, for 95 %


@dataclass(frozen=True)
class Buckets:
    """Statistics of the rows in each bucket of norms that has enough, lowest norms first.

    Attributes:
        edges: lower and upper edge in scaled norms, (b, 2).
        centres: their middles, (b,).
        counts: rows, (b,).
        accuracy: the mean of `correct`, (b,).
        std: its standard deviation within the bucket, (b,).
        low: lower end of the mean's 95 % interval, (b,).
        high: its upper end, (b,).
    """

    edges: np.ndarray
    centres: np.ndarray
    counts: np.ndarray
    accuracy: np.ndarray
    std: np.ndarray
    low: np.ndarray
    high: np.ndarray


@dataclass(frozen=True)
class Trend:
    """Whether the buckets rise.

    Attributes:
        statistic: standard normal if there is no trend; positive where accuracy rises with norm.
        p_value: two-sided.
        rising: the share of neighbouring buckets of which the upper one has the higher mean.
    """

    statistic: float
    p_value: float
    rising: float


@dataclass(frozen=True)
class Agreement:
    """The norm against being right, measured four ways; NaN where undefined.

    Attributes:
        auroc: of the norm for being right; NaN unless `correct` is of zeros and ones, both.
        spearman: rank correlation.
        kendall: tau-b.
        buckets: the paper's.
        trend: of the buckets.
    """

    auroc: float
    spearman: float
    kendall: float
    buckets: Buckets
    trend: Trend


def norm_buckets(
    norms: Values,
    correct: Values,
    *,
    buckets: int = 20,
    least: int = 50,
    as_coded: bool = False,
) -> Buckets:
    r"""The mean of `correct` by the norm: the paper's figure of norms as confidence.

    Norms are divided by their maximum, and [0, 1] by equal-width buckets, closed below (the last
    one on both sides). Zeros and ones get Wilson's 95 % interval. Other values, such as the
    entropy of human labels, get the normal one, $\pm 1.96\, s / \sqrt n$.

    Args:
        norms: (n,), none negative.
        correct: whether each row is right, or any finite value to average, (n,).
        buckets: the paper has 20.
        least: only buckets with more rows than this are kept; the paper has 50.
        as_coded: scale norms to [0, 1] from their minimum, as the published code does.

    Paper: Figure "norm_as_confidence".

    >>> found = norm_buckets(np.array([1.0, 1.1, 3.9, 4.0]), np.array([0, 1, 1, 1]), least=1)
    >>> found.edges.round(2).tolist(), found.accuracy.tolist()
    ([[0.25, 0.3], [0.95, 1.0]], [0.5, 1.0])
    """
    x = column("norms", norms)
    values = column("correct", correct, rows=len(x))
    if not np.isfinite(x).all() or x.min() < 0 or x.max() == 0:
        raise invalid("norms", "finite and not negative", "others, or all zero", "Pass |z|.")
    if not np.isfinite(values).all():
        raise invalid("correct", "finite", "infinity", "Leave these rows out.")
    for name, value in (("buckets", buckets), ("least", least)):
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise invalid(name, "a positive integer", value, "The paper has 20 and 50.")
    least_norm = x.min() if as_coded else 0.0
    # norms that are all alike stand at the top either way
    width = x.max() - least_norm
    scaled = (x - least_norm) / width if width else np.ones_like(x)
    cell = np.minimum((scaled * buckets).astype(int), buckets - 1)
    counts = np.bincount(cell, minlength=buckets)
    kept = np.flatnonzero(counts > least)
    n = counts[kept]
    mean = np.bincount(cell, values, minlength=buckets)[kept] / n
    deviation = values - np.bincount(kept, mean, minlength=buckets)[cell]
    std = np.sqrt(np.bincount(cell, deviation**2, minlength=buckets)[kept] / n)
    if np.isin(values, (0.0, 1.0)).all():
        low, high = wilson_interval(np.rint(mean * n), n)
    else:
        low, high = _normal(mean, std, n)
    edges = np.stack([kept, kept + 1], 1) / buckets
    return Buckets(edges, edges.mean(1), n, mean, std, low, high)


def monotone_trend(buckets: Buckets) -> Trend:
    r"""The Cochran-Armitage test for a trend over the buckets, weighted by their counts.

    With t a bucket's centre, m its mean, N rows in all and $\bar m$ their mean, the statistic is
    $\sum n t (m - \bar m) / \sqrt{\sigma^2 \sum n (t - \bar t)^2}$, where $\sigma^2$ is the
    variance of all rows; for zeros and ones it is $\bar m (1 - \bar m)$, and the test Cochran's
    and Armitage's. It is the score test of a straight line: it tests for a trend, not for any
    difference between buckets, and small ones weigh little. `rising` shows how many steps agree.
    All fields are NaN with fewer than two buckets.

    >>> right = np.repeat([0, 1, 0, 1, 1], [40, 60, 10, 90, 0])
    >>> trend = monotone_trend(norm_buckets(np.repeat([0.3, 1.0], 100), right))
    >>> round(trend.statistic, 3), trend.rising
    (4.899, 1.0)
    """
    n, t, mean = buckets.counts, buckets.centres, buckets.accuracy
    if len(n) < 2:
        return Trend(math.nan, math.nan, math.nan)
    overall = float(np.average(mean, weights=n))
    variance = float(np.average(buckets.std**2 + (mean - overall) ** 2, weights=n))
    away = t - np.average(t, weights=n)
    scale = math.sqrt(variance * float((n * away**2).sum()))
    statistic = float((n * away * (mean - overall)).sum()) / scale if scale else 0.0
    p_value = math.erfc(abs(statistic) / math.sqrt(2))
    return Trend(statistic, p_value, float((np.diff(mean) > 0).mean()))


def agreement(norms: Values, correct: Values, *, as_coded: bool = False) -> Agreement:
    """All of this module's measures of how norms go with being right.

    Args:
        norms: (n,), none negative.
        correct: whether each row is right, or any finite value, (n,).
        as_coded: for the buckets, as in `norm_buckets`.

    >>> agreement(np.arange(100.0), np.arange(100) >= 50).auroc
    1.0
    """
    buckets = norm_buckets(norms, correct, as_coded=as_coded)
    values = column("correct", correct)
    binary = np.isin(values, (0.0, 1.0)).all()
    return Agreement(
        auroc=auroc(norms, values) if binary else math.nan,
        spearman=spearman(norms, values),
        kendall=kendall(norms, values),
        buckets=buckets,
        trend=monotone_trend(buckets),
    )


def wilson_interval(hits: Values | int, cases: Values | int) -> tuple[np.ndarray, np.ndarray]:
    """95 % confidence intervals of shares by Wilson's score, which stay within 0 and 1.

    Args:
        hits: of the cases, (b,) or a number.
        cases: at least one each.

    >>> low, high = wilson_interval(3, 20)
    >>> print(f"{low:.3f} to {high:.3f}")
    0.052 to 0.360
    """
    hits, n = np.asarray(hits, float), np.asarray(cases, float)
    share, shrink = hits / n, 1 + _Z**2 / n
    centre = (share + _Z**2 / (2 * n)) / shrink
    half = _Z / shrink * np.sqrt(share * (1 - share) / n + (_Z / (2 * n)) ** 2)
    return np.where(hits > 0, centre - half, 0.0), np.where(hits < n, centre + half, 1.0)


def _normal(mean: np.ndarray, std: np.ndarray, n: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    half = _Z * std / np.sqrt(n - 1)  # n - 1: std is that of these rows, not of all like them
    return mean - half, mean + half
