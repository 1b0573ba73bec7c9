"""Selective prediction: the risk at each coverage."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from normscope.evaluation.inputs import Values, column, zero_one


@dataclass(frozen=True)
class RiskCoverage:
    """The share of wrong answers among the surest rows.

    Attributes:
        coverage: the share of rows answered, 1/n to 1, (n,).
        risk: the share of wrong ones among these, (n,).
        aurc: the mean risk over all coverages; lower is better.
        oracle_aurc: that of a confidence which puts all right rows before the wrong ones.
        random_aurc: expected for an uninformative confidence: the risk at coverage 1.
    """

    coverage: np.ndarray
    risk: np.ndarray
    aurc: float
    oracle_aurc: float
    random_aurc: float


def risk_coverage(confidence: Values, correct: Values) -> RiskCoverage:
    """The risk of answering the surest row, the two surest, and so on to all of them.

    Rows of equal confidence count as if in random order: each is as wrong as they are on average.
    So the order in which rows are given does not matter.

    Args:
        confidence: (n,), infinity allowed; only its order matters.
        correct: bools, or zeros and ones, (n,).

    >>> risk_coverage(np.array([3.0, 2.0, 1.0]), np.array([True, False, True])).risk.round(3)
    array([0.   , 0.5  , 0.333])
    """
    sure = column("confidence", confidence)
    wrong = ~zero_one("correct", correct, rows=len(sure))
    _, cell, counts = np.unique(-sure, return_inverse=True, return_counts=True)
    expected = np.repeat(np.bincount(cell, wrong) / counts, counts)
    answered = np.arange(1, len(sure) + 1)
    risk = np.cumsum(expected) / answered
    best = np.cumsum(np.sort(wrong)) / answered
    return RiskCoverage(
        coverage=answered / len(sure),
        risk=risk,
        aurc=float(risk.mean()),
        oracle_aurc=float(best.mean()),
        random_aurc=float(wrong.mean()),
    )
