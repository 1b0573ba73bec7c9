"""From a score in [0, 1] to the probability of being right, and its calibration error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

Method = Literal["isotonic", "logistic"]

_FOLDS = 5
_BINS = 15  # Guo et al., 2017
FLAT = "the confidence is flat"
FLAT_WITHIN = 0.05  # probabilities that lie within so little of each other


@dataclass(frozen=True)
class Calibration:
    """A non-decreasing map from scores to probabilities, and its error on held-out rows.

    The reliability curve and `ece` are cross-fitted: each row's probability comes from a map
    fitted to the other four fifths, since on its own rows the isotonic map's error is zero.

    Attributes:
        method: "isotonic" or "logistic".
        n: rows that it was fitted to.
        ece: expected calibration error over 15 equal-width bins (Guo et al., 2017).
        ece_before: that of the score itself, taken as the probability.
        confidence: the mean probability in each bin that has rows, (b,).
        accuracy: the share of right rows there, (b,).
        count: rows there, (b,).
        parameters: corners of the isotonic map, (2, p), or intercept and slope, (2, 1).
    """

    method: Method
    n: int
    ece: float
    ece_before: float
    confidence: np.ndarray
    accuracy: np.ndarray
    count: np.ndarray
    parameters: np.ndarray

    @property
    def flat(self) -> bool:
        """Whether it says much the same of every row: then a small error proves nothing.

        Bins with less than a twentieth of the rows do not count.
        """
        common = self.confidence[20 * self.count >= self.count.sum()]
        return bool(np.ptp(common) < FLAT_WITHIN)

    def probability(self, score: np.ndarray) -> np.ndarray:
        """The probability of being right, (n,), non-decreasing in the score; NaN for NaN."""
        return _mapped(self.method, self.parameters, score)


def calibration(score: np.ndarray, correct: np.ndarray, *, method: Method) -> Calibration:
    """Fit a map from scores, (n,), to whether rows are right, bools, (n,)."""
    fold = np.random.default_rng(0).permutation(len(score)) % _FOLDS
    held_out = np.empty(len(score))
    for i in range(_FOLDS):
        part = fold == i
        parameters = _fitted(method, score[~part], correct[~part])
        held_out[part] = _mapped(method, parameters, score[part])
    ece, confidence, accuracy, count = reliability(held_out, correct)
    return Calibration(
        method=method,
        n=len(score),
        ece=ece,
        ece_before=reliability(score, correct)[0],
        confidence=confidence,
        accuracy=accuracy,
        count=count,
        parameters=_fitted(method, score, correct),
    )


def flat_warning(right: float, ece: float) -> str:
    """What to know of a confidence that is flat."""
    return (
        f"{FLAT}: it says about {right:.2f} of every row. Its small calibration error ({ece:.3f}) "
        "is that of one number, not of knowledge."
    )


def reliability(
    probability: np.ndarray, correct: np.ndarray
) -> tuple[float, np.ndarray, np.ndarray, np.ndarray]:
    """The expected calibration error; mean probability, accuracy and rows of the bins with any.

    >>> reliability(np.array([0.9, 0.9, 0.2]), np.array([True, False, False]))[0].__round__(3)
    0.333
    """
    cell = np.minimum((probability * _BINS).astype(int), _BINS - 1)
    count = np.bincount(cell, minlength=_BINS)
    kept = count > 0
    confidence = np.bincount(cell, probability, minlength=_BINS)[kept] / count[kept]
    accuracy = np.bincount(cell, correct, minlength=_BINS)[kept] / count[kept]
    ece = np.average(np.abs(confidence - accuracy), weights=count[kept])
    return float(ece), confidence, accuracy, count[kept]


def _fitted(method: Method, score: np.ndarray, correct: np.ndarray) -> np.ndarray:
    return _isotonic(score, correct) if method == "isotonic" else _logistic(score, correct)


def _mapped(method: Method, parameters: np.ndarray, score: np.ndarray) -> np.ndarray:
    if method == "isotonic":
        return np.interp(score, *parameters)
    intercept, slope = parameters[:, 0]
    return sigmoid(intercept + slope * score)


def _isotonic(score: np.ndarray, correct: np.ndarray) -> np.ndarray:
    """Corners of the least-squares non-decreasing map, by pooling adjacent violators."""
    distinct, cell, counts = np.unique(score, return_inverse=True, return_counts=True)
    right = np.bincount(cell, correct)
    pools: list[tuple[float, int, int, int]] = []  # right rows, rows, first and last score
    for i, (r, n) in enumerate(zip(right.tolist(), counts.tolist(), strict=True)):
        first = i
        while pools and pools[-1][0] * n >= r * pools[-1][1]:  # its mean is no lower
            before = pools.pop()
            r, n, first = r + before[0], n + before[1], before[2]
        pools.append((r, n, first, i))
    # each pool is flat from its first score to its last, and straight lines join the pools
    ends = [i for pool in pools for i in pool[2:]]
    level = [r / n for r, n, _, _ in pools for _ in range(2)]
    return np.stack([distinct[ends], level])


def _logistic(score: np.ndarray, correct: np.ndarray) -> np.ndarray:
    """Intercept and slope, (2, 1); a falling slope is flattened."""
    w = logistic_weights(score[:, None], correct)
    if w[1] <= 0:
        w = logistic_weights(score[:, None][:, :0], correct)
        w = np.append(w, 0.0)
    return w[:, None]


def logistic_weights(x: np.ndarray, correct: np.ndarray, *, ridge: float = 0.0) -> np.ndarray:
    r"""Intercept and slopes, (1 + c,), by Newton's steps.

    Targets are smoothed by Platt's (1999) prior, so that the best slopes are finite.

    Args:
        x: (n, c).
        correct: bools, (n,).
        ridge: half its multiple of the slopes' squares is added to the loss.
    """
    yes, no = int(correct.sum()), int((~correct).sum())
    target = np.where(correct, (yes + 1) / (yes + 2), 1 / (no + 2))
    x = np.concatenate([np.ones((len(x), 1)), x], 1)
    penalty = np.full(x.shape[1], ridge)
    penalty[0] = 0.0

    def loss(w: np.ndarray) -> float:
        fit = (np.logaddexp(0, x @ w) - target * (x @ w)).sum()
        return float(fit + (penalty * w * w).sum() / 2)

    w = np.zeros(x.shape[1])
    w[0] = np.log(target.mean() / (1 - target.mean()))
    for _ in range(100):
        p = sigmoid(x @ w)
        curvature = (x * (p * (1 - p))[:, None]).T @ x + np.diag(penalty + 1e-9)
        step = np.linalg.solve(curvature, x.T @ (p - target) + penalty * w)
        while loss(w - step) > loss(w) and np.abs(step).max() > 1e-10:
            step = step / 2
        w = w - step
        if np.abs(step).max() < 1e-10:
            break
    return w


def sigmoid(x: np.ndarray) -> np.ndarray:
    """The logistic function, without overflow."""
    return 0.5 * (1 + np.tanh(x / 2))
