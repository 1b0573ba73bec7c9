"""Where a score lies among those of held-out rows of the reference: its p-value, in bits."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np

from normscope.confidence.covariates import Plain, Smooth
from normscope.confidence.reference import left_out_residuals, tenths

_TAIL = 0.05  # the share of held-out rows whose excess says how the tail goes on
_LEAST = 1e-6  # of the scale, where scores, logarithms, are all alike


@dataclass(frozen=True)
class HeldOut:
    r"""Scores of m held-out rows, higher for newer ones; with covariates, given these.

    The p-value of a score s among the held-out $s_i$ is $(1 + \#\{i : s_i \ge s\}) / (m + 1)$ at
    each $s_i$, and straight between: up to the highest, nowhere below the conformal p-value. So
    another row that is scored like them has $p \le a$ with probability a at most, for every a
    from 1 / (m + 1) on. Beyond the highest it goes on falling, exponentially, by the mean excess
    in the upper twentieth. That orders very new rows; it is no probability.

    Attributes:
        way: how covariates are taken out.
        scores: the distinct ones, ascending, (q,).
        p: their p-values, (q,).
        scale: the mean excess.
    """

    way: Plain | Smooth
    scores: np.ndarray
    p: np.ndarray
    scale: float

    @classmethod
    def of(cls, scores: np.ndarray, x: np.ndarray | None = None) -> HeldOut:
        """From scores, (m,), and covariates, (m, c), if there are any.

        >>> 2 ** -HeldOut.of(np.arange(9.0)).bits(np.array([-1.0, 7.0, 8.0]))
        array([1. , 0.3, 0.2])
        """
        way: Plain | Smooth = Plain()
        if x is not None and x.shape[1]:
            way = Smooth.fit(np.exp(scores), x)
            scores = left_out_residuals(np.exp(scores), x)
        distinct, counts = np.unique(scores, return_counts=True)
        at_least = counts[::-1].cumsum()[::-1]
        p = (1 + at_least) / (len(scores) + 1)
        return cls(way, distinct, p, _mean_excess(np.sort(scores)))

    def bits(self, scores: np.ndarray, x: np.ndarray | None = None) -> np.ndarray:
        """Minus the binary logarithm of the p-values, (n,); NaN where a score or covariate is."""
        if isinstance(self.way, Smooth) and x is not None:
            scores = self.way.place(np.exp(scores), x)[0]
        return self._bits(scores)

    def left_out(self, scores: np.ndarray, x: np.ndarray | None = None) -> np.ndarray:
        """`bits` of the held-out rows themselves, each tenth among the others.

        Among all rows none is beyond the highest, as a new row can be.
        """
        if isinstance(self.way, Smooth) and x is not None:
            scores = left_out_residuals(np.exp(scores), x)
        found = np.empty(len(scores))
        for held in tenths(len(scores)):
            found[held] = HeldOut.of(scores[~held])._bits(scores[held])
        return found

    def _bits(self, scores: np.ndarray) -> np.ndarray:
        within = -np.log2(np.interp(scores, self.scores, self.p))
        beyond = np.maximum(scores - self.scores[-1], 0)
        return within + beyond / (self.scale * np.log(2))

    def arrays(self) -> dict[str, np.ndarray]:
        """All of it, for a file."""
        fields = {f"way.{name}": value for name, value in asdict(self.way).items()}
        return {"scores": self.scores, "p": self.p, "scale": np.array(self.scale), **fields}

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray]) -> HeldOut:
        """Rebuild it from `arrays`."""
        fields = below("way", arrays)
        way = Smooth(**fields) if fields else Plain()
        return cls(way, arrays["scores"], arrays["p"], float(arrays["scale"]))


def _mean_excess(ordered: np.ndarray) -> float:
    """How far the upper twentieth (five at least) lies above where it begins, on average."""
    few = min(len(ordered) - 1, max(5, round(_TAIL * len(ordered))))
    excess = float((ordered[-few:] - ordered[-few - 1]).mean())
    spread = float(ordered[-1] - ordered[0])
    return max(excess, 1e-3 * spread, _LEAST)


@dataclass(frozen=True)
class TwoSided:
    """Where a norm lies among those of the reference: small and large ones are both unusual.

    Attributes:
        small: p-values of norms so small.
        large: of norms so large.
    """

    small: HeldOut
    large: HeldOut

    @classmethod
    def of(cls, scores: np.ndarray, x: np.ndarray | None = None) -> TwoSided:
        """From the logarithms of norms, (m,), and covariates, (m, c), if there are any."""
        return cls(HeldOut.of(-scores, x), HeldOut.of(scores, x))

    def bits(self, scores: np.ndarray, x: np.ndarray | None = None) -> np.ndarray:
        """Minus the binary logarithm of twice the smaller p-value, at least zero, (n,)."""
        return _either(self.small.bits(-scores, x), self.large.bits(scores, x))

    def left_out(self, scores: np.ndarray, x: np.ndarray | None = None) -> np.ndarray:
        """`bits` of the held-out rows themselves, given covariates by a fit to the others."""
        return _either(self.small.left_out(-scores, x), self.large.left_out(scores, x))

    def arrays(self) -> dict[str, np.ndarray]:
        """All of it, for a file."""
        sides = {"small": self.small, "large": self.large}
        return {f"{k}.{n}": v for k, side in sides.items() for n, v in side.arrays().items()}

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray]) -> TwoSided:
        """Rebuild it from `arrays`."""
        return cls(*(HeldOut.from_arrays(below(side, arrays)) for side in ("small", "large")))


def _either(small: np.ndarray, large: np.ndarray) -> np.ndarray:
    return np.maximum(np.maximum(small, large) - 1, 0.0)


def below(name: str, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The arrays whose names begin with this one and a point, without it.

    >>> below("a", {"a.b": np.ones(1), "c": np.ones(1)})
    {'b': array([1.])}
    """
    start = f"{name}."
    return {k.removeprefix(start): v for k, v in arrays.items() if k.startswith(start)}
