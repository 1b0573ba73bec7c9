"""What every reader yields: blocks of rows with their norms and status."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

from normscope._checks import invalid
from normscope._sphere import safe_norm

# Status of a row; its code is its place here. Only "ok" rows have a score.
STATUSES = ("ok", "nan", "infinite", "zero", "ragged", "null", "covariate")
OK, NAN, INFINITE, ZERO, RAGGED, NULL, COVARIATE = range(len(STATUSES))

BLOCK_BYTES = 1 << 22  # read at once: small enough to be summed while in the cache
_MOST_ROWS = 1 << 16
# Sums of squares beyond these may have lost digits, or overflowed.
_SAFE = {np.dtype("f4"): (1e-30, 1e38), np.dtype("f8"): (1e-280, 1e300)}


@dataclass(frozen=True)
class Block:
    """Consecutive rows of a file.

    Attributes:
        norms: (n,), float64; NaN where `status` says that there is none.
        status: places in `STATUSES`, (n,), uint8.
        z: the rows themselves, (n, d), until the next batch is asked for; those that have no
            norm may hold anything.
        ids: integers or strings, (n,), or None where the file has none.
        covariates: name -> (n,), float64.
    """

    norms: np.ndarray
    status: np.ndarray
    z: np.ndarray
    ids: np.ndarray | None = None
    covariates: dict[str, np.ndarray] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.norms)


@dataclass
class Source(ABC):
    """Embeddings in a file, of which only a block is in memory at a time.

    Attributes:
        path: of the file.
        rows: how many there are.
        d: entries of a row.
        dtype: its number format, as its file calls it.
    """

    path: Path
    rows: int
    d: int
    dtype: str

    @abstractmethod
    def blocks(self) -> Iterator[Block]:
        """The rows in order; each call starts from the first."""


def check_shape(path: Path, shape: tuple[int, ...]) -> tuple[int, int]:
    """Rows and columns of a shape (n, d), if there is something to compare."""
    if len(shape) != 2:
        advice = "Give each row one embedding."
        raise invalid(str(path), "embeddings (n, d)", f"{len(shape)}-d {shape}", advice)
    if shape[0] < 2 or shape[1] < 1:
        advice = "There is nothing to compare."
        raise invalid(str(path), "at least two rows of at least one entry", f"{shape}", advice)
    return shape


def block_rows(row_bytes: int) -> int:
    """How many rows to read at once.

    >>> block_rows(1024), block_rows(4), block_rows(1 << 30)
    (4096, 65536, 1)
    """
    return max(1, min(_MOST_ROWS, BLOCK_BYTES // max(1, row_bytes)))


def norms_and_status(z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    r"""$\|z_i\|$ of each row in float64, NaN where there is none, and the row's status.

    Sums of squares are taken in z's own precision, or float32 if that is less; rows whose sum is
    so large or small that digits may be lost are recomputed in float64.

    Args:
        z: floating, (n, d).

    >>> norms, status = norms_and_status(np.array([[3.0, 4.0], [0.0, 0.0], [np.inf, 1.0]]))
    >>> norms, [STATUSES[code] for code in status]
    (array([ 5., nan, nan]), ['ok', 'zero', 'infinite'])
    """
    z = np.asarray(z, np.float64 if z.dtype.itemsize == 8 else np.float32)
    low, high = _SAFE[z.dtype]
    with np.errstate(over="ignore", invalid="ignore"):
        square = np.einsum("ij,ij->i", z, z)
        norms = np.sqrt(square, dtype=np.float64)
        doubtful = np.flatnonzero(~((square > low) & (square < high)))  # NaN is doubtful too
    status = np.zeros(len(z), np.uint8)
    if len(doubtful):
        again = safe_norm(torch.from_numpy(z[doubtful].astype(np.float64)))[:, 0].numpy()
        status[doubtful] = np.select(
            [np.isnan(again), np.isinf(again), again == 0], [NAN, INFINITE, ZERO], OK
        )
        norms[doubtful] = np.where(status[doubtful] == OK, again, np.nan)
    return norms, status
