"""What every reader yields: blocks of rows with their norms and status."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import torch

from normscope._checks import invalid
from normscope._sphere import safe_norm

# Status of a row; its code is its place here. Only "ok" and "outside" rows have a score: the
# latter have a covariate beyond the reference's range, and are judged as at its end.
STATUSES = ("ok", "nan", "infinite", "zero", "ragged", "null", "covariate", "outside")
OK, NAN, INFINITE, ZERO, RAGGED, NULL, COVARIATE, OUTSIDE = range(len(STATUSES))

LEFT_OUT = {  # in words
    "nan": "NaN in the embedding",
    "infinite": "infinity in the embedding",
    "zero": "all zero",
    "ragged": "of another length",
    "null": "no embedding",
    "covariate": "a covariate that is not finite",
}

BLOCK_BYTES = 1 << 22  # read at once: small enough to be summed while in the cache
_MOST_ROWS = 1 << 16
LONGEST_ID = 1024  # characters: 65,536 of them are held at once
TEXT_SHOWN = 300  # characters of a row's text
TIME = ": time"  # after the name of a column of times, which are read as seconds from 1970
_UNSIGNED = "unsigned integers of 64 bits"
_AGAIN = "Write it again."
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
        texts: beginnings of strings, (n,), or None.
    """

    norms: np.ndarray
    status: np.ndarray
    z: np.ndarray
    ids: np.ndarray | None = None
    covariates: dict[str, np.ndarray] = field(default_factory=dict)
    texts: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.norms)


@dataclass
class Source(ABC):
    """Embeddings, of which only a block is in memory at a time.

    Attributes:
        path: of the file, as messages show it.
        rows: how many there are.
        d: entries of a row.
        dtype: its number format, as its file calls it.
        beside: what is read beside the embeddings, with its kind where that matters.
    """

    path: str
    rows: int
    d: int
    dtype: str
    beside: tuple[str, ...]

    @abstractmethod
    def blocks(self) -> Iterator[Block]:
        """The rows in order; each call starts from the first."""


def check_shape(path: str, shape: tuple[int, ...]) -> tuple[int, int]:
    """Rows and columns of a shape (n, d), with at least one column if there are rows."""
    if len(shape) != 2:
        advice = "Give each row one embedding."
        raise invalid(path, "embeddings (n, d)", f"{len(shape)}-d {shape}", advice)
    if shape[0] and shape[1] < 1:
        raise too_few(path, shape)
    return shape


def too_few(path: str, shape: tuple[int, int]) -> ValueError:
    """The error for a shape (n, d) without a row of one entry."""
    advice = "There is nothing to score."
    return invalid(path, "at least one row of at least one entry", f"{shape}", advice)


def damaged(path: str, error: Exception | str) -> ValueError:
    """The error for a file whose content breaks off or makes no sense."""
    if isinstance(error, ValueError) and " must be " in str(error):
        return error  # already in the error form
    why = " ".join(str(error).split())[:120] or type(error).__name__
    return invalid(path, "a whole file without pickles", why, "Write it again.")


def not_floating(path: str, kind: str) -> ValueError:
    """The error for embeddings of another kind of number."""
    advice = "Save the model's raw output."
    return invalid(path, "float16, bfloat16, float32 or float64", kind, advice)


def checked_ids(path: str, ids: np.ndarray) -> np.ndarray:
    """Ids as int64, or uint64 as they are, or strings that a file can hold.

    Shards may have integers of different widths; a file that is written has one.

    Args:
        path: in errors.
        ids: integers, or strings as objects, (n,).
    """
    if ids.dtype.kind in "iu":
        return ids.astype(np.uint64 if id_kind(ids.dtype) == _UNSIGNED else np.int64)
    try:
        longest = max(map(len, ids), default=0)
        "".join(ids).encode()
    except (TypeError, UnicodeEncodeError) as error:
        why = " ".join(str(error).split())[:80]
        raise invalid(f"id of {path}", "an integer or a string a row", why, _AGAIN) from None
    if longest > LONGEST_ID:
        constraint = f"of at most {LONGEST_ID:,} characters"
        raise invalid(f"id of {path}", constraint, f"{longest:,}", "Use a shorter name.")
    return ids


def id_kind(numbers: np.dtype) -> str:
    """What ids are, in words: no int64 holds all unsigned integers of 64 bits.

    >>> id_kind(np.dtype("u8")), id_kind(np.dtype("u4")), id_kind(np.dtype("U9"))
    ('unsigned integers of 64 bits', 'integers', 'strings')
    """
    if numbers.kind not in "iu":
        return "strings"
    return _UNSIGNED if numbers.kind == "u" and numbers.itemsize == 8 else "integers"


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
    with np.errstate(over="ignore", invalid="ignore"):  # also of NaN that signals, in a cast
        z = np.asarray(z, np.float64 if z.dtype.itemsize == 8 else np.float32)
        low, high = _SAFE[z.dtype]
        square = np.einsum("ij,ij->i", z, z)
        norms = np.sqrt(square, dtype=np.float64)
        doubtful = np.flatnonzero(~((square > low) & (square < high)))  # NaN is doubtful too
        rows = z[doubtful].astype(np.float64)
    status = np.zeros(len(z), np.uint8)
    if len(doubtful):
        again = safe_norm(torch.from_numpy(rows))[:, 0].numpy()
        status[doubtful] = np.select(
            [np.isnan(again), np.isinf(again), again == 0], [NAN, INFINITE, ZERO], OK
        )
        norms[doubtful] = np.where(status[doubtful] == OK, again, np.nan)
    return norms, status
