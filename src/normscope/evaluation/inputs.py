"""Conversion of inputs: arrays or tensors on any device, to float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from normscope._checks import invalid
from normscope._precision import in_float64
from normscope._sphere import safe_norm

Values = np.ndarray | Tensor

_CHUNK = 1 << 21  # numbers that are held in float64 at once: 16 MiB


def column(
    name: str, values: Values, *, rows: int | None = None, missing: bool = False
) -> np.ndarray:
    """Numbers or bools as a float64 array, (n,).

    Args:
        name: its name in errors.
        values: (n,).
        rows: how many there must be, if that is known.
        missing: whether NaN, or no values at all, are allowed.

    >>> column("correct", torch.tensor([True, False]))
    array([1., 0.])
    """
    if isinstance(values, Tensor):
        given = values.detach().cpu().double().numpy()  # numpy knows no bfloat16
    else:
        given = unmasked(np.asanyarray(values))
    if given.ndim != 1 or given.dtype.kind not in "bfiu" or rows not in (None, len(given)):
        constraint = f"numbers of shape ({'n' if rows is None else rows},)"
        raise invalid(name, constraint, described(given), "One number a row.")
    array = given.astype(np.float64)
    if not missing and len(array) == 0:
        raise invalid(name, "at least one number", "none", "There is nothing to measure.")
    if not missing and np.isnan(array).any():
        got = f"{np.isnan(array).sum():,} NaN in {len(array):,} rows"
        raise invalid(name, "free of NaN", got, "Leave these rows out.")
    return array


def zero_one(name: str, values: Values, *, rows: int | None = None) -> np.ndarray:
    """A column of zeros and ones as bools, (n,).

    >>> zero_one("correct", np.array([1, 0]))
    array([ True, False])
    """
    array = column(name, values, rows=rows)
    if not np.isin(array, (0.0, 1.0)).all():
        raise invalid(name, "zeros and ones", "other numbers", "Give each row 0 or 1.")
    return array == 1


def row_norms(name: str, z: Values) -> np.ndarray:
    """The norm of each row, (n,), taken in float64 a chunk at a time.

    Args:
        name: the name of z in errors.
        z: embeddings, (n, d), as `embeddings_of` takes them.

    >>> row_norms("z", np.array([[3.0, 4.0], [0.0, 0.0]], dtype=np.float16))
    array([5., 0.])
    """
    z = embeddings_of(name, z)
    rows = max(1, _CHUNK // z.shape[1])
    norms = np.empty(len(z))  # small parts would lie between freed chunks, and keep these
    for start in range(0, len(z), rows):
        part = in_float64(tensor_of(z[start : start + rows]).detach())
        # contiguous, so that the same row has the same norm to the last bit however it is kept
        norms[start : start + rows] = safe_norm(part.contiguous())[:, 0].cpu().numpy()
    return norms


def embeddings_of(name: str, z: object) -> Values:
    """Embeddings as an array or a tensor of floating-point rows, (n, d), of any floating type.

    Args:
        name: the name of z in errors.
        z: an array or tensor; or a data frame, a column of vectors, or lists of numbers.

    >>> embeddings_of("z", [[1.0, 2.0], [3.0, 4.0]]).shape
    (2, 2)
    """
    array = z if isinstance(z, Tensor) else array_of(z)
    if isinstance(array, Tensor):
        if array.layout != torch.strided or array.is_meta:
            got = "a sparse tensor, or one on no device"
            raise invalid(name, "dense", got, "Pass z.to_dense().")
        floating = array.is_floating_point()
    else:
        floating = isinstance(array, np.ndarray) and array.dtype.kind == "f"
    if array is None or not floating or array.ndim != 2 or array.shape[1] == 0:
        got = described(z if array is None else array)
        raise invalid(name, "floating-point rows (n, d)", got, "Pass raw embeddings.")
    return array


def array_of(z: Any) -> np.ndarray | None:
    """Rows of numbers as an array, also of a column whose entries are vectors; None if ragged."""
    try:
        if hasattr(z, "columns") and {getattr(t, "kind", "") for t in z.dtypes} == {"f"}:
            # pandas' own types, in which a number may be NA, would become objects
            return z.to_numpy(dtype=np.float64, na_value=np.nan)
        array = unmasked(np.asanyarray(z))
        if array.dtype == object and array.ndim == 1 and len(array):
            array = np.stack([np.asarray(row) for row in array])
    except (TypeError, ValueError):
        return None
    return array


def classes_of(labels: object, *, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """The distinct classes, sorted, and which of them each row has, int64, (n,).

    Args:
        labels: whole numbers, bools or strings, (n,), of any kind of column.
        rows: how many there must be.

    >>> classes_of(["cat", "dog", "cat"], rows=3)
    (array(['cat', 'dog'], dtype='<U3'), array([0, 1, 0]))
    """
    if isinstance(labels, Tensor):
        given = np.asarray(labels.detach().cpu().tolist())  # numpy knows no bfloat16
    else:
        given = unmasked(np.asanyarray(labels))
    if given.dtype.kind in "OT" and all(isinstance(label, str) for label in given.flat):
        given = given.astype(str)
    if given.shape != (rows,) or given.dtype.kind not in "biuU":
        constraint = f"a whole number or a string for each of {rows:,} rows"
        raise invalid("labels", constraint, described(given), "Give each row of z its class.")
    classes, codes = np.unique(given, return_inverse=True)
    return classes, codes.astype(np.int64)


def tensor_of(values: Values) -> Tensor:
    """An array as a tensor, without a copy if torch can take it as it is; a tensor as it is.

    >>> tensor_of(np.array([1.0, 2.0], dtype=">f4"))
    tensor([1., 2.])
    """
    if isinstance(values, Tensor):
        return values
    array = np.asarray(values)
    dtype = array.dtype.newbyteorder("=")
    if dtype == np.longdouble:  # which torch doesn't know; what is too large becomes infinite
        dtype = np.dtype(np.float64)
    with np.errstate(over="ignore"):
        native = array.astype(dtype, copy=False)
    return torch.from_numpy(np.require(native, requirements=["C", "W"]))


def unmasked(array: np.ndarray) -> np.ndarray:
    """A masked array's numbers, NaN where masked; as objects if they are not floating.

    >>> unmasked(np.ma.masked_array([1.0, 2.0], mask=[False, True]))
    array([ 1., nan])
    """
    if not isinstance(array, np.ma.MaskedArray):
        return np.asarray(array)
    if not np.ma.is_masked(array):
        return array.data
    found = array.data.astype(array.dtype if array.dtype.kind == "f" else object)  # a copy
    found[np.ma.getmaskarray(array)] = np.nan
    return found


def described(value: object) -> str:
    """The shape and type of an array or tensor, for error messages.

    >>> described(torch.zeros(2, 3)), described(np.zeros(4, dtype=int))
    ('float32 of shape (2, 3)', 'int64 of shape (4,)')
    """
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if shape is None or dtype is None:
        return f"a {type(value).__name__}"
    return f"{str(dtype).removeprefix('torch.')} of shape {tuple(shape)}"
