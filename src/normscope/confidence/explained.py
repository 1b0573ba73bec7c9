"""Row by row, what speaks for its being new."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Explained:
    r"""Rows against a reference, part by part; blank (NaN, -1, "", None) if they can't be judged.

    Attributes:
        status: "ok"; "nan", "infinite", "zero" or "covariate" (not finite) without a judgement; or
            "outside", of a covariate beyond the reference's range, judged as at its end, (n,).
        novelty: bits, (n,).
        p_value: $2^{-\mathrm{novelty}}$, (n,).
        speaks: which part speaks for a row with a p-value of at most .05: "small norm", "large
            norm", "neighbours" or "mahalanobis"; else "", (n,).
        bits: those of each part, (n,) each.
        nearest: the row of the reference that is nearest, (n,).
        distance: one less the cosine with it, (n,).
        answer: the neighbours' class, (n,); None without labels.
        confidence: (n,); None without labels or `calibrate`.
    """

    status: np.ndarray
    novelty: np.ndarray
    p_value: np.ndarray
    speaks: np.ndarray
    bits: dict[str, np.ndarray]
    nearest: np.ndarray
    distance: np.ndarray
    answer: np.ndarray | None
    confidence: np.ndarray | None

    def __len__(self) -> int:
        return len(self.status)

    def columns(self) -> dict[str, np.ndarray]:
        """All of it as columns, (n,) each, as a data frame takes them."""
        found = {"status": self.status, "novelty": self.novelty, "p_value": self.p_value}
        found |= {"speaks": self.speaks, **{f"{name} bits": b for name, b in self.bits.items()}}
        found |= {"nearest": self.nearest, "distance": self.distance}
        rest = {"answer": self.answer, "confidence": self.confidence}
        return found | {name: column for name, column in rest.items() if column is not None}


def blank(dtype: np.dtype, rows: int) -> np.ndarray:
    """A column with nothing in it yet: NaN, -1, "" or None.

    >>> blank(np.dtype(float), 1), blank(np.dtype(int), 1)
    (array([nan]), array([-1]))
    """
    nothing = {"f": np.nan, "i": -1, "U": ""}
    return np.full(rows, nothing.get(dtype.kind), dtype)
