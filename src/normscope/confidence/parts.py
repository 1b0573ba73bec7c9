"""The parts of trust: each is a p-value among held-out rows of the reference."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from normscope.confidence.delivered import Bits
from normscope.confidence.held_out import HeldOut, TwoSided, below
from normscope.confidence.measured import COPY, Measured

Given = tuple[np.ndarray, np.ndarray | None]

_NEAR = 5  # neighbours, whose mean distance is the part's score
_FLOOR = 1e-3  # of the usual distance: below it, distances count as equal
_COPIES = 0.05  # of the rows have an equal: worth saying
_ORDER = ("norm", "norm_given", "neighbours", "mahalanobis")


@dataclass(frozen=True)
class Parts:
    """Where rows lie among held-out ones, part by part.

    Attributes:
        held_out: by part; the norm's has two sides.
        floor: the least distance to neighbours that counts.
    """

    held_out: dict[str, HeldOut | TwoSided]
    floor: float

    @classmethod
    def of(cls, usual: Measured, x: np.ndarray, *, raw: bool) -> Parts:
        """From held-out rows.

        Args:
            usual: what is measured of them.
            x: their covariates, (n, c).
            raw: whether norms carry anything.
        """
        distance = _near(usual)
        some = distance[distance > 0]
        floor = _FLOOR * float(np.median(some)) if len(some) else _FLOOR
        scores = _scores(usual, floor)
        held_out: dict[str, HeldOut | TwoSided] = {}
        if raw:
            held_out["norm"] = TwoSided.of(scores["norm"])
            if x.shape[1]:
                held_out["norm_given"] = TwoSided.of(scores["norm"], x)
        for name in ("neighbours", "mahalanobis"):
            held_out[name] = HeldOut.of(scores[name], x)
        return cls(held_out, floor)

    @staticmethod
    def warnings(usual: Measured) -> list[str]:
        """Caveats on what is measured of held-out rows."""
        nearest = usual.near.distance[:, 0].double().numpy()
        spread = _near(usual)
        lines = []
        copies = float((nearest < COPY).mean())
        if copies > _COPIES:
            lines.append(
                f"{copies:.0%} of the reference's rows have a copy in it: rows without one look "
                "newer than they are. Leave copies out"
            )
        if spread.std() <= 1e-3 * spread.mean():
            lines.append("the distance to neighbours is flat: it is the same for every row")
        return lines

    @property
    def rule(self) -> tuple[str, ...]:
        """The parts that are used if nothing speaks for others: all that covariates allow."""
        return tuple(name for name in self.held_out if name != "norm" or not self._given)

    @property
    def _given(self) -> bool:
        return "norm_given" in self.held_out

    def bits(self, rows: Measured, x: np.ndarray) -> Bits:
        """Minus the binary logarithm of the p-values, by part, (n,) each."""
        return {name: held.bits(*given) for name, held, given in self._each(rows, x)}

    def left_out(self, usual: Measured, x: np.ndarray) -> Bits:
        """`bits` of the held-out rows themselves, given covariates by a fit to the others."""
        return {name: held.left_out(*given) for name, held, given in self._each(usual, x)}

    def ranks(self, rows: Measured, x: np.ndarray) -> dict[str, np.ndarray]:
        """From 0 to 1, (n,) each: the share of held-out rows of smaller norm, or newer."""
        found = {}
        for name, held, (score, given) in self._each(rows, x):
            if isinstance(held, TwoSided):
                held, score = held.small, -score
            found[name] = 2.0 ** -held.bits(score, given)
        return found

    def _each(self, rows: Measured, x: np.ndarray) -> Iterator[tuple[str, Any, Given]]:
        """Each part, its held-out rows, and the scores and covariates to look up there."""
        scores = _scores(rows, self.floor)
        for name, held in self.held_out.items():
            score = scores[name.removesuffix("_given")]
            yield name, held, (score, None if name == "norm" else x)

    def loudest(self, used: tuple[str, ...], rows: Measured, x: np.ndarray) -> np.ndarray:
        """Which of the parts that are used has the smallest p-value, and a norm's side, (n,)."""
        bits = self.bits(rows, x)
        names = np.array(used)[np.argmax([bits[name] for name in used], axis=0)]
        ranks = self.ranks(rows, x)
        for name in used:
            if name.startswith("norm"):
                side = np.where(ranks[name] < 0.5, "small norm", "large norm")
                names = np.where(names == name, side, names)
        return names

    def arrays(self) -> dict[str, np.ndarray]:
        """All of it, for a file."""
        packed = {"floor": np.array(self.floor)}
        for name, held in self.held_out.items():
            packed |= {f"{name}.{key}": value for key, value in held.arrays().items()}
        return packed

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray]) -> Parts:
        """Rebuild them from `arrays`."""
        names = dict.fromkeys(key.split(".")[0] for key in arrays if key != "floor")
        held_out: dict[str, HeldOut | TwoSided] = {}
        for name in _ORDER:
            if name in names:
                kind = TwoSided if name.startswith("norm") else HeldOut
                held_out[name] = kind.from_arrays(below(name, arrays))
        return cls(held_out, float(arrays["floor"]))


def _near(rows: Measured) -> np.ndarray:
    return rows.near.distance[:, :_NEAR].double().mean(1).numpy()


def _scores(rows: Measured, floor: float) -> dict[str, np.ndarray]:
    """Logarithms of the norm and of both distances, (n,) each."""
    return {
        "norm": np.log(rows.norms),
        "neighbours": np.log(np.maximum(_near(rows), floor)),
        "mahalanobis": np.log(np.maximum(rows.mahalanobis, np.finfo(float).tiny)) / 2,
    }
