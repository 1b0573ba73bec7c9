"""Reference norms, whole or as quantiles, with or without covariates."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from normscope._checks import invalid
from normscope.confidence.covariates import LEAST_ROWS, Binned, Plain, Smooth
from normscope.confidence.quantiles import Quantiles
from normscope.confidence.raw import WAY_OUT, alike
from normscope.evaluation.inputs import Values, column

LEAST = 20  # rows
_MOST = 65_537  # values that are kept: half a megabyte
_FOLDS = 10
_WAYS = {"plain": Plain, "binned": Binned, "smooth": Smooth}

Way = Literal["plain", "binned", "smooth"]


@dataclass(frozen=True)
class ReferenceNorms:
    """Norms by the part that a row is compared with: one, or one for each bin of a covariate."""

    way: Plain | Binned | Smooth
    parts: list[Quantiles]

    @classmethod
    def of(cls, norms: np.ndarray, x: np.ndarray, *, way: Way) -> ReferenceNorms:
        """From norms, (m,), above zero, and covariates, (m, c), all finite."""
        place = _WAYS[way].fit(norms, x)
        values, cell = place.place(norms, x)
        if way == "smooth":
            values = left_out_residuals(norms, x)
        parts = int(cell.max()) + 1
        kept = [Quantiles.of(values[cell == i], most=_MOST // parts) for i in range(parts)]
        return cls(place, kept)

    def counts(self, norms: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """How many of the rows that each is compared with are below it, up to it, and in all.

        NaN for norms that are not finite or not above zero, and for unknown covariates.
        """
        usable = np.isfinite(norms) & (norms > 0)
        values, cell = self.way.place(np.where(usable, norms, np.nan), x)
        below, up_to = (np.full(len(norms), np.nan) for _ in range(2))
        for i, part in enumerate(self.parts):
            rows = slice(None) if len(self.parts) == 1 else np.flatnonzero(cell == i)
            below[rows], up_to[rows] = part.counts(values[rows])
        return below, up_to, np.array([float(part.total) for part in self.parts])[cell]

    def arrays(self) -> dict[str, Any]:
        """All of it, for a file."""
        return {
            "way": type(self.way).__name__.lower(),
            "values": np.concatenate([part.values for part in self.parts]),
            "sizes": [len(part.values) for part in self.parts],
            "totals": [part.total for part in self.parts],
            **{f"way.{name}": value for name, value in asdict(self.way).items()},
        }

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray]) -> ReferenceNorms:
        """Rebuild the reference from `arrays`."""
        fields = {k.removeprefix("way."): v for k, v in arrays.items() if k.startswith("way.")}
        ends = np.cumsum(arrays["sizes"])
        values = np.split(arrays["values"], ends[:-1])
        parts = [Quantiles(v, int(n)) for v, n in zip(values, arrays["totals"], strict=True)]
        if ends[-1] != len(arrays["values"]) or not all(part.sound() for part in parts):
            raise invalid("values", "sorted parts of these sizes", "others", "The file is damaged.")
        return cls(_WAYS[str(arrays["way"])](**fields), parts)


def left_out_residuals(norms: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Residuals of each row given by a fit to the others, a tenth of the rows at a time.

    Those of a fit to the row itself are too small: new rows would look newer than they are.
    """
    values = np.empty(len(norms))
    for held in tenths(len(norms)):
        values[held] = Smooth.fit(norms[~held], x[~held]).place(norms[held], x[held])[0]
    return values


def tenths(rows: int) -> Iterator[np.ndarray]:
    """Which rows are held out, bools, (rows,): a tenth at a time, each row once."""
    fold = np.random.default_rng(0).permutation(rows) % _FOLDS
    yield from (fold == i for i in range(_FOLDS))


def reference_norms(norms: Values) -> np.ndarray:
    """Reference norms as float64, (m,), after validation."""
    usual = column("norms", norms, missing=True)
    bad = {
        "NaN": np.isnan(usual),
        "infinite": np.isinf(usual),
        "zero": usual == 0,
        "negative": np.isfinite(usual) & (usual < 0),
    }
    counts = {kind: int(rows.sum()) for kind, rows in bad.items()}
    if any(counts.values()):
        got = ", ".join(f"{n:,} {kind}" for kind, n in counts.items() if n)
        got = f"{got} of {len(usual):,} rows"
        raise invalid("reference", "of finite norms above zero", got, "Leave these rows out.")
    if len(usual) < LEAST:
        raise invalid("reference", f"at least {LEAST} rows", len(usual), "Give it more.")
    if alike(usual):
        got = f"norms that are all {usual[0]:.4g}: they carry nothing"
        raise invalid("reference", "raw", got, WAY_OUT)
    return usual


def chosen_way(conditional: str | None, *, columns: int, rows: int) -> Way:
    """How to compare: as `conditional` says, or by the number of covariates."""
    if conditional not in (None, "binned", "smooth"):
        raise invalid("conditional", "binned or smooth", conditional, "None chooses one.")
    if columns == 0:
        if conditional is not None:
            raise invalid("conditional", "None without covariates", conditional, "Give covariates.")
        return "plain"
    if rows < 4 * LEAST_ROWS:
        constraint = f"given with at least {4 * LEAST_ROWS} rows"
        raise invalid("covariates", constraint, rows, "Give more rows, or leave them out.")
    if conditional == "binned" and columns > 1:
        advice = "Bins are of one covariate. Choose smooth."
        raise invalid("conditional", f"smooth with {columns} covariates", conditional, advice)
    if conditional is None:
        return "binned" if columns == 1 else "smooth"
    return "binned" if conditional == "binned" else "smooth"
