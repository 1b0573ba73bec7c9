"""Intervals of the AUROC, against plain loops and repeated draws."""

import math

import numpy as np
import pytest

from normscope.evaluation.ranks import auroc, auroc_interval


def test_auroc_interval_equals_plain_loops_with_ties() -> None:
    rng = np.random.default_rng(0)
    score, positive = rng.integers(6, size=60).astype(float), np.arange(60) < 25
    other = rng.integers(6, size=60).astype(float)

    def wins(s: np.ndarray) -> np.ndarray:
        return np.array([[(a > b) + (a == b) / 2 for b in s[~positive]] for a in s[positive]])

    def width(w: np.ndarray) -> float:
        ones, zeros = w.mean(1), w.mean(0)
        return 1.96 * math.sqrt(ones.var(ddof=1) / len(ones) + zeros.var(ddof=1) / len(zeros))

    value, low, high = auroc_interval(score, positive)
    logit = lambda p: math.log(p / (1 - p))  # noqa: E731
    assert value == pytest.approx(wins(score).mean()) == pytest.approx(auroc(score, positive))
    assert logit(high) - logit(value) == pytest.approx(width(wins(score)) / (value * (1 - value)))
    assert logit(high) - logit(value) == pytest.approx(logit(value) - logit(low))
    gain, least, most = auroc_interval(score, positive, beside=other)
    assert gain == pytest.approx(auroc(score, positive) - auroc(other, positive))
    assert most - gain == pytest.approx(width(wins(score) - wins(other)))
    assert gain - least == pytest.approx(most - gain)


def test_auroc_interval_holds_the_truth_as_often_as_it_says() -> None:
    rng = np.random.default_rng(1)
    positive = np.arange(200) < 80
    truth = 0.7602499389065233  # of a shift by one standard deviation: Phi(1 / sqrt 2)
    held = []
    for _ in range(500):
        _, low, high = auroc_interval(rng.normal(size=200) + positive, positive)
        held.append(low <= truth <= high)
    assert 0.92 < np.mean(held) < 0.98


def test_auroc_interval_at_its_ends_and_without_rows() -> None:
    score, positive = np.arange(40.0), np.arange(40) >= 20
    value, low, high = auroc_interval(score, positive)
    assert (value, high) == (1.0, 1.0)
    assert 0.8 < low < 0.9  # twenty of twenty
    assert auroc_interval(-score, positive)[0] == 0
    assert np.isnan(auroc_interval(score, np.zeros(40))).all()
