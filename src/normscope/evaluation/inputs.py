"""Conversion of inputs: arrays or tensors on any device, to float64."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from normscope._checks import invalid
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
        given = np.asarray(values)
    if given.ndim != 1 or given.dtype.kind not in "bfiu" or rows not in (None, len(given)):
        constraint = f"numbers of shape ({'n' if rows is None else rows},)"
        raise invalid(name, constraint, described(values), "One number a row.")
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
        z: embeddings, (n, d), of any floating type.

    >>> row_norms("z", np.array([[3.0, 4.0], [0.0, 0.0]], dtype=np.float16))
    array([5., 0.])
    """
    if isinstance(z, Tensor):
        floating = z.is_floating_point()
    else:
        floating = isinstance(z, np.ndarray) and z.dtype.kind == "f"
    if not floating or z.ndim != 2 or z.shape[1] == 0:
        raise invalid(name, "floating-point rows (n, d)", described(z), "Pass raw embeddings.")
    rows = max(1, _CHUNK // z.shape[1])
    norms = np.empty(len(z))  # small parts would lie between freed chunks, and keep these
    for start in range(0, len(z), rows):
        part = tensor_of(z[start : start + rows]).detach().double()
        # contiguous, so that the same row has the same norm to the last bit however it is kept
        norms[start : start + rows] = safe_norm(part.contiguous())[:, 0].cpu().numpy()
    return norms


def tensor_of(values: Values) -> Tensor:
    """An array as a tensor, without a copy if torch can take it as it is; a tensor as it is.

    >>> tensor_of(np.array([1.0, 2.0], dtype=">f4"))
    tensor([1., 2.])
    """
    if isinstance(values, Tensor):
        return values
    array = np.asarray(values)
    native = array.astype(array.dtype.newbyteorder("="), copy=False)
    return torch.from_numpy(np.require(native, requirements=["C", "W"]))


def described(value: object) -> str:
    """The shape and type of an array or tensor, for error messages.

    >>> described(torch.zeros(2, 3)), described(np.zeros(4, dtype=int))
    ('float32 of shape (2, 3)', 'int64 of shape (4,)')
    """
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if shape is None or dtype is None:
        return f"a {type(value).__name__}"
    return f"{str(dtype).removeprefix('torch.')} of shape {tuple(shape)}"
