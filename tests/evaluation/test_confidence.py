"""Ranks against scikit-learn and SciPy; buckets and their trend against plain loops."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn.metrics import average_precision_score, roc_auc_score

from normscope.evaluation import (
    agreement,
    auroc,
    average_precision,
    kendall,
    monotone_trend,
    norm_buckets,
    spearman,
)


def tied(n: int, levels: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Scores with many ties, and labels of both kinds that they half tell."""
    rng = np.random.default_rng(seed)
    scores = rng.integers(levels, size=n) / 7
    positive = rng.random(n) < 0.2 + 0.6 * scores / scores.max().clip(1e-9)
    positive[:2] = [True, False]
    return scores, positive


@given(st.integers(2, 60), st.integers(1, 40), st.integers(0, 999))
def test_ranks_equal_scikit_learn_and_scipy_with_ties(n: int, levels: int, seed: int) -> None:
    scores, positive = tied(n, levels, seed)
    assert auroc(scores, positive) == pytest.approx(roc_auc_score(positive, scores))
    expected = average_precision_score(positive, scores)
    assert average_precision(scores, positive) == pytest.approx(expected)
    other = np.random.default_rng(seed + 1).integers(5, size=n) - scores
    if len(set(scores)) > 1 and len(set(other)) > 1:
        assert spearman(scores, other) == pytest.approx(stats.spearmanr(scores, other).statistic)
        assert kendall(scores, other) == pytest.approx(stats.kendalltau(scores, other).statistic)


def test_kendall_of_many_rows_equals_scipys() -> None:
    a = np.random.default_rng(0).normal(size=(2, 50_000))
    a[1] += a[0]
    assert kendall(a[0], a[1]) == pytest.approx(stats.kendalltau(a[0], a[1]).statistic, abs=1e-12)
    assert kendall(a[0], -a[0]) == -1


def test_ranks_say_nothing_of_rows_that_are_all_alike() -> None:
    x, same = np.arange(4.0), np.ones(4)
    for value in (auroc(x, same), average_precision(x, 0 * same), spearman(x, same)):
        assert math.isnan(value)
    assert math.isnan(kendall(same, x))
    assert math.isnan(kendall(x[:1], x[:1]))
    assert auroc(same, x > 1) == 0.5


def test_ranks_take_tensors_of_any_type_and_infinite_scores() -> None:
    scores = torch.tensor([-math.inf, 0.5, math.inf], dtype=torch.bfloat16, requires_grad=True)
    positive = torch.tensor([False, True, True])
    assert auroc(scores, positive) == average_precision(scores, positive) == 1


def bucket_loop(norms, values, *, buckets: int, least: int, lowest: float) -> list[tuple]:
    """Edge, rows and mean by the definition: one bucket, one row at a time."""
    found, highest = [], max(norms)
    for b in range(buckets):
        inside = []
        for norm, value in zip(norms, values, strict=True):
            x = (norm - lowest) / (highest - lowest)
            if b / buckets <= x < (b + 1) / buckets or (b == buckets - 1 and x == 1):
                inside.append(value)
        if len(inside) > least:
            found.append((b / buckets, len(inside), sum(inside) / len(inside)))
    return found


@pytest.mark.parametrize("as_coded", [False, True])
def test_norm_buckets_equal_plain_loop(as_coded: bool) -> None:
    rng = np.random.default_rng(3)
    norms = rng.gamma(9.0, size=800)
    correct = rng.random(800) < norms / norms.max()
    found = norm_buckets(norms, correct, buckets=16, least=20, as_coded=as_coded)
    lowest = norms.min() if as_coded else 0.0
    expected = bucket_loop(norms, correct, buckets=16, least=20, lowest=lowest)
    assert 5 < len(expected) < 16
    got = zip(found.edges[:, 0], found.counts, found.accuracy, strict=True)
    np.testing.assert_allclose(list(got), expected)
    np.testing.assert_allclose(found.centres, found.edges[:, 0] + 1 / 32)


def test_norm_buckets_have_wilsons_interval_for_zeros_and_ones() -> None:
    correct = np.repeat([1, 0, 1], [30, 30, 60])
    found = norm_buckets(np.repeat([1.0, 2.0], 60), correct)
    for i, right in enumerate((30, 60)):
        theirs = stats.binomtest(right, 60).proportion_ci(method="wilson")
        assert (found.low[i], found.high[i]) == pytest.approx((theirs.low, theirs.high))


def test_norm_buckets_have_the_normal_interval_for_other_values() -> None:
    entropy = np.random.default_rng(0).exponential(size=200)
    found = norm_buckets(np.ones(200), entropy)
    half = 1.959964 * entropy.std(ddof=1) / math.sqrt(200)
    assert found.high[0] == pytest.approx(entropy.mean() + half)
    assert found.low[0] == pytest.approx(entropy.mean() - half)


def test_norm_buckets_keep_only_those_with_more_than_the_least() -> None:
    norms = np.repeat([0.2, 0.5, 1.0], [50, 51, 3])
    found = norm_buckets(norms, np.ones(104))
    assert found.counts.tolist() == [51]
    assert math.isnan(monotone_trend(found).p_value)
    assert len(norm_buckets(norms, np.ones(104), least=60).counts) == 0


def test_monotone_trend_is_the_cochran_armitage_test_and_a_correlation() -> None:
    rng = np.random.default_rng(1)
    norms = rng.random(2000) * 3
    for values in ((rng.random(2000) < 0.4 + norms / 9).astype(float), rng.random(2000) - norms):
        found = norm_buckets(norms, values)
        n, t, mean = found.counts, found.centres, found.accuracy
        trend = monotone_trend(found)
        assert len(n) == 20
        # Cochran-Armitage is the root of N times the correlation of bucket and value
        cell = np.minimum((norms / norms.max() * 20).astype(int), 19)
        r = np.corrcoef(cell, values)[0, 1]
        assert trend.statistic == pytest.approx(math.sqrt(2000) * r)
        assert trend.p_value == pytest.approx(2 * stats.norm.sf(abs(trend.statistic)))
        assert trend.rising == np.mean([b > a for a, b in pairwise(mean)])
        if set(values) == {0.0, 1.0}:
            p = values.mean()
            top = (t * n * (mean - p)).sum()
            bottom = p * (1 - p) * ((n * t**2).sum() - (n * t).sum() ** 2 / n.sum())
            assert trend.statistic == pytest.approx(top / math.sqrt(bottom))


def test_monotone_trend_finds_none_where_there_is_none() -> None:
    rng = np.random.default_rng(5)
    p_values = [
        monotone_trend(norm_buckets(rng.random(1500), rng.random(1500) < 0.7)).p_value
        for _ in range(200)
    ]
    assert stats.kstest(p_values, "uniform").pvalue > 0.01
    flat = monotone_trend(norm_buckets(rng.random(1500), np.ones(1500)))
    assert (flat.statistic, flat.p_value, flat.rising) == (0, 1, 0)


def test_agreement_gathers_what_the_others_say() -> None:
    rng = np.random.default_rng(2)
    norms = rng.gamma(9.0, size=3000)
    correct = rng.random(3000) < norms / norms.max()
    found = agreement(torch.tensor(norms), torch.tensor(correct))
    assert found.auroc == auroc(norms, correct) > 0.6
    assert found.spearman == spearman(norms, correct)
    assert found.kendall == kendall(norms, correct)
    assert found.trend == monotone_trend(norm_buckets(norms, correct))
    assert found.trend.rising > 0.7
    entropy = agreement(norms, rng.random(3000) - norms)
    assert math.isnan(entropy.auroc)
    assert entropy.spearman < -0.9


def test_confidence_refuses_wrong_arguments_in_one_line() -> None:
    x = np.ones(60)
    nan = np.where(np.arange(60) < 2, np.nan, 1.0)
    cases = [
        (lambda: auroc(nan, x), "scores must be free of NaN, got '2 NaN in 60 rows'"),
        (lambda: auroc(x, 2 * x), "positive must be zeros and ones"),
        (lambda: auroc(x, x[:3]), r"positive must be numbers of shape \(60,\), got 'float64 of"),
        (lambda: auroc(x[:, None], x), r"scores must be numbers of shape \(n,\)"),
        (lambda: kendall(x[:0], x[:0]), "a must be at least one number"),
        (lambda: spearman(np.array(["a"]), x[:1]), "a must be numbers"),
        (lambda: norm_buckets(nan, x), "norms must be free of NaN"),
        (lambda: norm_buckets(x, nan), "correct must be free of NaN"),
        (lambda: norm_buckets(-x, x), "norms must be finite and not negative"),
        (lambda: norm_buckets(0 * x, x), "norms must be finite and not negative"),
        (lambda: norm_buckets(x, x * np.inf), "correct must be finite"),
        (lambda: norm_buckets(x, x, buckets=0), "buckets must be a positive integer, got 0"),
        (lambda: norm_buckets(x, x, least=True), "least must be a positive integer, got True"),
    ]
    for call, message in cases:
        with pytest.raises(ValueError, match=message) as error:
            call()
        assert "\n" not in str(error.value)
