"""The probability that a row's answer is right, by what is measured of it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from normscope.confidence.calibration import (
    FLAT_WITHIN,
    flat_warning,
    logistic_weights,
    reliability,
    sigmoid,
)
from normscope.confidence.verdict import Finding, Interval, in_words
from normscope.evaluation.ranks import auroc_interval

Features = dict[str, np.ndarray]  # by part, (n,): what should be surer is higher

_FOLDS = 5
_RIDGE = 1.0
_FEWEST = 5  # right rows, and wrong ones: fewer than one a fold


@dataclass(frozen=True)
class Sureness:
    """A logistic model of being right, and how good it is on rows held out.

    Attributes:
        names: the parts that it uses.
        moments: mean and standard deviation of each, (2, c).
        weights: intercept and slopes, (1 + c,).
        n: rows that it was fitted to.
        right: the share of right ones.
        auroc: of rows held out, with its 95 % interval.
        ece: expected calibration error of rows held out.
        spread: the range that nine tenths of the held-out probabilities lie in.
    """

    names: tuple[str, ...]
    moments: np.ndarray
    weights: np.ndarray
    n: int
    right: float
    auroc: Interval
    ece: float
    spread: float

    @property
    def flat(self) -> bool:
        """Whether it says much the same of every row: then its calibration proves nothing."""
        return self.spread < FLAT_WITHIN or not self.auroc[1] > 0.5

    def probability(self, features: Features) -> np.ndarray:
        """The probability of being right, (n,); NaN where a feature is."""
        return _probability(_matrix(features, self.names), self.moments, self.weights)

    def __str__(self) -> str:
        """What it is, in a sentence."""
        if not self.names:
            return (
                f"Confidence is the share of right rows, {self.right:.1%}, for every row: too few "
                "are right, or too few wrong, to learn more."
            )
        value, low, high = self.auroc
        by = in_words(self.names)
        return (
            f"Confidence is the probability of being right by {by}: AUROC {value:.3f} "
            f"[{low:.3f}, {high:.3f}] and calibration error {self.ece:.3f} on rows held out, of "
            f"which {self.right:.1%} are right."
        )

    def warning(self) -> str | None:
        """What to know of a model that is flat."""
        return flat_warning(self.right, self.ece) if self.flat else None

    def said(self) -> dict[str, Any]:
        """What is not an array, for a file."""
        return {k: v for k, v in asdict(self).items() if k not in ("moments", "weights")}


def sureness(features: Features, correct: np.ndarray) -> tuple[Sureness, tuple[Finding, ...]]:
    """The model of least cross-validated log loss, and what each part is worth.

    Candidates are each part alone, all together, and all but one.

    Args:
        features: by part, (n,) each, finite.
        correct: bools, (n,).
    """
    every = tuple(features)
    fewest = min(correct.sum(), (~correct).sum())
    candidates = {(): None} if fewest < _FEWEST else _candidates(every)
    fold = np.random.default_rng(0).permutation(len(correct)) % _FOLDS
    held = {c: _held_out(_matrix(features, c), correct, fold) for c in candidates}
    best = min(held, key=lambda c: _log_loss(held[c], correct))
    x = _matrix(features, best)
    low, high = np.quantile(held[best], [0.05, 0.95])
    model = Sureness(
        best,
        *_fitted(x, correct),
        n=len(correct),
        right=float(correct.mean()),
        auroc=auroc_interval(held[best], correct),
        ece=reliability(held[best], correct)[0],
        spread=float(high - low),
    )
    findings = []
    for part in every if fewest >= _FEWEST else ():
        rest = tuple(name for name in every if name != part)
        adds = auroc_interval(held[every], correct, beside=held[rest]) if rest else None
        auroc = auroc_interval(features[part], correct)
        findings.append(Finding(part, "right", auroc, adds, used=part in best))
    return model, tuple(findings)


def _candidates(every: tuple[str, ...]) -> dict[tuple[str, ...], None]:
    """Each alone, all but one, and all; each once."""
    but_one = [tuple(name for name in every if name != part) for part in every]
    chosen = [*((name,) for name in every), *but_one, every]
    return {names: None for names in chosen if names}


def _matrix(features: Features, names: tuple[str, ...]) -> np.ndarray:
    rows = len(next(iter(features.values())))
    return np.stack([features[name] for name in names], 1) if names else np.empty((rows, 0))


def _held_out(x: np.ndarray, correct: np.ndarray, fold: np.ndarray) -> np.ndarray:
    """Each row's probability by a fit to the other four fifths, (n,)."""
    p = np.empty(len(x))
    for i in range(_FOLDS):
        held = fold == i
        p[held] = _probability(x[held], *_fitted(x[~held], correct[~held]))
    return p


def _fitted(x: np.ndarray, correct: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    std = x.std(0)
    moments = np.stack([x.mean(0), np.where(std > 0, std, 1.0)])
    return moments, logistic_weights((x - moments[0]) / moments[1], correct, ridge=_RIDGE)


def _probability(x: np.ndarray, moments: np.ndarray, weights: np.ndarray) -> np.ndarray:
    return sigmoid(weights[0] + (x - moments[0]) / moments[1] @ weights[1:])


def _log_loss(p: np.ndarray, correct: np.ndarray) -> float:
    taken = np.clip(np.where(correct, p, 1 - p), 1e-12, 1.0)
    return float(-np.log(taken).mean())
