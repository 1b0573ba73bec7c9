"""Pickles of plain containers and numbers, read without running any code."""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np

from normscope._checks import invalid

_NUMBERS = {f"{kind}{size}" for kind in "iuf" for size in (1, 2, 4, 8)} | {"b1"}


def load(path: Path, advice: str) -> object:
    """The contents of a pickle file of containers, strings, numbers and numpy arrays.

    CIFAR's files, written by Python 2, and those of human labels hold nothing else. Nothing that a
    pickle names is imported or called: the few names that numpy's arrays need stand for functions
    here, and every other is refused. Strings of Python 2 are read as Latin-1.

    Args:
        path: the file.
        advice: what to do if it cannot be read.

    Raises:
        ValueError: if it is missing, damaged, or asks for anything else.
    """
    try:
        data = path.read_bytes()
    except OSError:
        raise invalid(str(path), "a file that can be read", "nothing", advice) from None
    return loads(data, str(path), advice)


def loads(data: bytes, name: str, advice: str) -> object:
    """The contents of a pickle's bytes; see `load`. Errors call it `name`."""
    try:
        return _Plain(io.BytesIO(data), encoding="latin1").load()
    except _RefusedError as refusal:
        constraint = "a pickle of numbers and strings alone"
        raise invalid(name, constraint, f"one that asks for {refusal}", advice) from None
    except Exception:  # damaged pickles raise errors of any kind
        raise invalid(name, "a whole pickle", "a damaged file", advice) from None


class _RefusedError(pickle.UnpicklingError):
    """Holds the name that a pickle asked for."""


class _Plain(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> object:
        try:
            return _ADMITTED[module, name]
        except KeyError:
            raise _RefusedError(ascii(f"{module}.{name}")[1:-1]) from None


class _Number:
    """The dtype of a plain number; arrays of objects or records are refused."""

    def __init__(self, code: str | bytes, *_: object) -> None:
        code = code.decode("ascii") if isinstance(code, bytes) else code
        if code not in _NUMBERS:
            raise _RefusedError(f"an array of {code!a}")
        self.dtype = np.dtype(code)

    def __setstate__(self, state: Any) -> None:
        """Take the byte order; numpy's own dtypes would ignore it, being shared."""
        self.dtype = self.dtype.newbyteorder(state[1])


class _Array(np.ndarray):
    """An array whose state may have any byte order; it has that of this machine."""

    def __setstate__(self, state: Any) -> None:
        *_, shape, number, columns_first, content = state
        super().__setstate__((1, shape, number.dtype, columns_first, content))
        native: Any = number.dtype.newbyteorder("="), False
        if not number.dtype.isnative:
            super().__setstate__((1, shape, *native, self.astype(native[0]).tobytes()))


def _empty(kind: object, shape: object, code: object) -> np.ndarray:
    """An empty array, as numpy's `_reconstruct` makes before the state fills it."""
    if kind is not _NDARRAY or shape != (0,) or code not in ("b", b"b"):
        raise _RefusedError("an unusual array")
    return np.empty(0, np.int8).view(_Array)


def _latin1(text: str, encoding: str) -> bytes:
    """Bytes, as Python 3 writes them where a pickle must suit Python 2."""
    if encoding != "latin1":
        raise _RefusedError("a codec other than latin1")
    return text.encode("latin1")


_NDARRAY = "numpy.ndarray"  # only ever passed on, so it need not be the class
_ADMITTED = {
    ("numpy.core.multiarray", "_reconstruct"): _empty,
    ("numpy._core.multiarray", "_reconstruct"): _empty,
    ("numpy", "ndarray"): _NDARRAY,
    ("numpy", "dtype"): _Number,
    ("_codecs", "encode"): _latin1,
}
