"""Rows to be judged, with what says whether they can be."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from normscope._checks import invalid
from normscope.confidence.covariates import Covariates, columns_of
from normscope.evaluation.inputs import Values, embeddings_of, row_norms

# "outside": a covariate beyond the reference's range; the row is judged as one at its end
STATUSES = ("ok", "nan", "infinite", "zero", "covariate", "outside")
_OK, _NAN, _INFINITE, _ZERO, _COVARIATE, _OUTSIDE = range(len(STATUSES))


@dataclass(frozen=True)
class Rows:
    """Checked rows.

    Attributes:
        z: raw, (n, d).
        norms: (n,).
        names: of the covariates, in order.
        x: the covariates, (n, c).
        code: places in `STATUSES`, (n,).
    """

    z: Values
    norms: np.ndarray
    names: tuple[str, ...]
    x: np.ndarray
    code: np.ndarray

    def __len__(self) -> int:
        return len(self.norms)

    def take(self, places: np.ndarray) -> Rows:
        """Some of the rows; all of them are not copied."""
        if len(places) == len(self):
            return self
        at = torch.from_numpy(places).to(self.z.device) if isinstance(self.z, Tensor) else places
        return Rows(self.z[at], self.norms[places], self.names, self.x[places], self.code[places])

    @property
    def status(self) -> np.ndarray:
        """Strings, (n,)."""
        return np.array(STATUSES)[self.code]

    @property
    def usable(self) -> np.ndarray:
        """Which can be judged, bools, (n,)."""
        return (self.code == _OK) | (self.code == _OUTSIDE)

    def beyond(self, ends: np.ndarray) -> Rows:
        """The rows, those with a covariate beyond `ends`, (2, c), marked as outside."""
        outside = ((self.x < ends[0]) | (self.x > ends[1])).any(1)
        code = np.where((self.code == _OK) & outside, _OUTSIDE, self.code)
        return replace(self, code=code)

    @property
    def is_outside(self) -> np.ndarray:
        """Which have a covariate beyond the reference's range, bools, (n,)."""
        return self.code == _OUTSIDE

    @property
    def outside(self) -> int:
        """How many have a covariate beyond the reference's range."""
        return int(self.is_outside.sum())


def rows_of(
    name: str, z: object, covariates: Covariates | None, *, names: tuple[str, ...] | None = None
) -> Rows:
    """Check embeddings and covariates.

    Args:
        name: the name of z in errors.
        z: as `embeddings_of` takes it.
        covariates: as `columns_of` takes them.
        names: those that there must be, in their order; None takes any.
    """
    rows = embeddings_of(name, z)
    norms = row_norms(name, rows)
    called = "bad_covariates" if name == "known_bad" else "covariates"
    columns = columns_of(covariates, rows=len(norms), name=called)
    names = tuple(columns) if names is None else names
    if set(columns) != set(names):
        constraint = ", ".join(names) or "left out, as they were in fit"
        got = ", ".join(columns) or "none"
        raise invalid(called, constraint, got, "Give those that it was fitted with.")
    x = np.stack([columns[c] for c in names], 1) if names else np.empty((len(norms), 0))
    bad = [np.isnan(norms), np.isinf(norms), norms == 0, ~np.isfinite(x).all(1)]
    code = np.select(bad, [_NAN, _INFINITE, _ZERO, _COVARIATE], _OK)
    return Rows(rows, norms, names, x, code)


def all_usable(name: str, rows: Rows, *, least: int) -> Rows:
    """The rows, if there are enough and each can be judged."""
    counts = {s: int((rows.code == i).sum()) for i, s in enumerate(STATUSES[:5]) if i != _OK}
    if any(counts.values()):
        said = {"covariate": "with a covariate that is not finite", "nan": "NaN"}
        got = ", ".join(f"{n:,} {said.get(s, s)}" for s, n in counts.items() if n)
        constraint = "of finite rows that are not zero, and so their covariates"
        raise invalid(name, constraint, f"{got} of {len(rows.code):,} rows", "Leave these out.")
    if len(rows.code) < least:
        raise invalid(name, f"at least {least} rows", len(rows.code), "Give it more.")
    return rows
