"""Which reference norms a norm is compared with, given covariates that affect it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from normscope._checks import invalid
from normscope.evaluation.inputs import Values, array_of, column, described

Covariates = Mapping[str, Values] | Values  # or a data frame

LEAST_ROWS = 50  # in a bin
_MOST_BINS = 64  # each then keeps a thousand of the 65,537 values of the reference
_CHUNK = 1 << 16
# denser at the ends, where a long tail of a covariate has few rows and much length
_KNOTS = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)


def columns_of(
    covariates: Covariates | None, *, rows: int, name: str = "covariates"
) -> dict[str, np.ndarray]:
    """Covariates by name as float64, (n,) each; a 2-d array's are named c0, c1 and so on.

    Columns come as a mapping or a data frame; `name` is theirs in errors.

    >>> sorted(columns_of(np.zeros((5, 2)), rows=5))
    ['c0', 'c1']
    """
    if covariates is None:
        return {}
    if (frame := getattr(covariates, "columns", None)) is not None:
        covariates = {str(key): np.asarray(covariates[key]) for key in frame}
    if not isinstance(covariates, Mapping):
        array = covariates if isinstance(covariates, Tensor) else array_of(covariates)
        if array is None or array.ndim != 2 or len(array) != rows:
            constraint = f"columns by name, or one array ({rows}, c)"
            raise invalid(name, constraint, described(covariates), "One number a row.")
        covariates = {f"c{i}": array[:, i] for i in range(array.shape[1])}
    return {
        str(key): column(f"{name}[{str(key)!r}]", values, rows=rows, missing=True)
        for key, values in covariates.items()
    }


def bin_edges(x: np.ndarray) -> np.ndarray:
    """Inner edges of quantile bins of at least 50 rows each, at most 64; few values, fewer bins.

    >>> bin_edges(np.repeat([1.0, 2.0, 7.0], [100, 100, 3]))
    array([2.])
    """
    ordered = np.sort(x)
    bins = max(1, min(_MOST_BINS, math.isqrt(len(x)), len(x) // LEAST_ROWS))
    levels = np.arange(1, bins) / bins
    edges, taken = [], 0
    for edge in np.unique(np.quantile(ordered, levels, method="higher")):
        below = int(np.searchsorted(ordered, edge))
        if below - taken >= LEAST_ROWS and len(x) - below >= LEAST_ROWS:
            edges.append(float(edge))
            taken = below
    return np.array(edges)


def share_explained(log_norms: np.ndarray, x: np.ndarray) -> float:
    """The correlation ratio: the variance of the bins' means as a share of all, in `bin_edges`.

    Between covariates and norms that are unrelated it is some bins / n, so at most .02.

    >>> x = np.repeat([0.0, 1.0], 100)
    >>> share_explained(3 * x, x)
    1.0
    """
    cell = np.searchsorted(bin_edges(x), x, side="right")
    counts = np.maximum(np.bincount(cell), 1)
    means = np.bincount(cell, log_norms) / counts
    return float(means[cell].var() / log_norms.var())


@dataclass(frozen=True)
class Plain:
    """Compares each norm with the whole reference."""

    @classmethod
    def fit(cls, norms: np.ndarray, x: np.ndarray) -> Plain:
        """There is nothing to fit."""
        del norms, x
        return cls()

    def place(self, norms: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The values to compare, and the part of the reference for each; (n,) each."""
        return norms, np.zeros(len(x), dtype=np.int64)


@dataclass(frozen=True)
class Binned:
    """Compares each norm with those of the reference in the same bin of one covariate.

    Attributes:
        edges: inner ones, ascending, (b - 1,).
    """

    edges: np.ndarray

    @classmethod
    def fit(cls, norms: np.ndarray, x: np.ndarray) -> Binned:
        """Bins of a covariate, x (n, 1); the norms do not matter."""
        del norms
        return cls(bin_edges(x[:, 0]))

    def place(self, norms: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The norms themselves, NaN without a covariate, and their bins; (n,) each."""
        known = np.isfinite(x[:, 0])
        return np.where(known, norms, np.nan), np.searchsorted(self.edges, x[:, 0], side="right")


@dataclass(frozen=True)
class Smooth:
    r"""Compares standardised residuals of the log norm, given several covariates.

    $\log \|z\| = f(x) + e^{g(x) / 2} \epsilon$ with f and g sums of piecewise linear functions of
    the covariates, with knots at quantiles. f, and g for the log of f's squared residuals, are
    fitted by least squares. Covariates are clipped to the reference's range.

    Attributes:
        ends: lowest and highest of each covariate, (2, c).
        moments: its mean and standard deviation, (2, c).
        knots: in standardised units, (knots, c).
        location: the weights of f, (p,).
        spread: those of g, (p,).
    """

    ends: np.ndarray
    moments: np.ndarray
    knots: np.ndarray
    location: np.ndarray
    spread: np.ndarray

    @classmethod
    def fit(cls, norms: np.ndarray, x: np.ndarray) -> Smooth:
        """Fit to norms (n,) and covariates x (n, c), all finite."""
        std = x.std(0)
        moments = np.stack([x.mean(0), np.where(std > 0, std, 1.0)])
        knots = np.quantile((x - moments[0]) / moments[1], _KNOTS, axis=0)
        none = np.zeros(1 + x.shape[1] * (1 + len(_KNOTS)))
        flat = cls(np.stack([x.min(0), x.max(0)]), moments, knots, none, none)
        log_norms = np.log(norms)
        centred = cls(flat.ends, moments, knots, flat._weights(x, log_norms), none)
        squared = centred.place(norms, x)[0] ** 2
        # a residual of zero has no logarithm
        squared = np.maximum(squared, 1e-12 * squared.mean() + np.finfo(float).tiny)
        spread = flat._weights(x, np.log(squared))
        return cls(flat.ends, moments, knots, centred.location, spread)

    def place(self, norms: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The standardised residuals, NaN without all covariates, and zeros; (n,) each."""
        residual = np.full(len(norms), np.nan)
        known = np.flatnonzero(np.isfinite(x).all(1) & np.isfinite(norms))
        for start in range(0, len(known), _CHUNK):
            rows = known[start : start + _CHUNK]
            basis = self._basis(x[rows])
            width = np.exp(basis @ self.spread / 2)
            residual[rows] = (np.log(norms[rows]) - basis @ self.location) / width
        return residual, np.zeros(len(norms), dtype=np.int64)

    def _basis(self, x: np.ndarray) -> np.ndarray:
        u = (np.clip(x, *self.ends) - self.moments[0]) / self.moments[1]  # n c
        bent = np.maximum(u[:, None] - self.knots, 0).reshape(len(x), -1)  # n knots*c
        return np.concatenate([np.ones((len(x), 1)), u, bent], 1)

    def _weights(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Least squares a chunk at a time, with a ridge so small that it only breaks ties."""
        size = len(self.location)
        gram, moment = np.zeros((size, size)), np.zeros(size)
        for start in range(0, len(x), _CHUNK):
            basis = self._basis(x[start : start + _CHUNK])
            gram += basis.T @ basis
            moment += basis.T @ y[start : start + _CHUNK]
        ridge = np.full(size, 1e-6 * len(x))
        ridge[0] = 0.0
        return np.linalg.solve(gram + np.diag(ridge), moment)
