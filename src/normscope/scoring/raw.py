"""Rows that lie in a file as plain numbers, read into one buffer, again and again.

Pages of a mapped file would count as memory.
"""

from __future__ import annotations

import lzma
import math
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import IO

import numpy as np

from normscope.scoring.blocks import (
    TEXT_SHOWN,
    Block,
    Source,
    block_rows,
    checked_ids,
    damaged,
    norms_and_status,
)

# what reading raises: zip files that are damaged, encrypted, or packed in an unknown way
BROKEN = (
    *(OSError, EOFError, ValueError, KeyError, TypeError, IndexError, OverflowError),
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, RuntimeError, NotImplementedError),
)

_LASTS = {"W": 604_800, "D": 86_400, "h": 3600, "m": 60}  # seconds
_TICKS = {unit: 1e3 ** (i + 1) for i, unit in enumerate(("ms", "us", "ns", "ps", "fs", "as"))}


@dataclass(frozen=True)
class Column:
    """One value or one embedding a row, in a stream of its own.

    Attributes:
        opened: gives the stream, at the first row.
        numbers: how one entry lies there; two bytes as an integer if it is a bfloat16.
        shape: of a row: (d,) or ().
    """

    opened: Callable[[], AbstractContextManager[IO[bytes]]]
    numbers: np.dtype
    shape: tuple[int, ...] = ()

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return math.prod(self.shape) * self.numbers.itemsize


@dataclass
class RawSource(Source):
    """Columns that are read side by side, a block of each at a time.

    Attributes:
        embedding: the rows.
        id: integers or strings, or None.
        text: strings, or None.
        covariates: name -> numbers.
    """

    embedding: Column
    id: Column | None
    text: Column | None
    covariates: dict[str, Column]

    def blocks(self) -> Iterator[Block]:
        """The rows in order, read into one buffer for each column."""
        named = {"id": self.id, "text": self.text}
        beside = {key: column for key, column in named.items() if column is not None}
        columns = [self.embedding, *beside.values(), *self.covariates.values()]
        n = min(self.rows, block_rows(sum(column.row_bytes for column in columns)))
        with ExitStack() as stack:
            readers = [_Reader(self.path, column, n, stack) for column in columns]
            for start in range(0, self.rows, n):
                z, *values = (reader.next(min(n, self.rows - start)) for reader in readers)
                z = _widened(z)
                norms, status = norms_and_status(z)
                given = dict(zip([*beside, *self.covariates], values, strict=True))
                ids, texts = (self._words(given.pop(key, None)) for key in ("id", "text"))
                if ids is not None:
                    ids = checked_ids(self.path, ids)
                if texts is not None:
                    texts = np.array([text[:TEXT_SHOWN] for text in texts], object)
                columns_given = {name: _number(v) for name, v in given.items()}
                yield Block(norms, status, z, ids, columns_given, texts)

    def _words(self, values: np.ndarray | None) -> np.ndarray | None:
        """Strings as objects, which take what they need."""
        if values is None or values.dtype.kind in "iu":
            return values
        check_characters(self.path, values)
        return values.astype(object)


class _Reader:
    """Rows of one column, one block after the other."""

    def __init__(self, path: str, column: Column, rows: int, stack: ExitStack) -> None:
        self._path, self._column = path, column
        self._buffer = np.empty((rows, *column.shape), column.numbers)
        try:
            self._stream = stack.enter_context(column.opened())
        except BROKEN as error:
            raise damaged(path, error) from None

    def next(self, rows: int) -> np.ndarray:
        """The next rows, of the column's shape."""
        block = self._buffer[:rows]
        view = block.reshape(-1).view(np.uint8)
        try:
            while len(view) and (got := self._stream.readinto(view)):  # pyright: ignore[reportAttributeAccessIssue]
                view = view[got:]
        except BROKEN as error:
            raise damaged(self._path, error) from None
        if len(view):
            raise damaged(self._path, "one that ends too soon")
        return block


def check_characters(path: str, values: np.ndarray) -> None:
    """Refuse strings with codes of no character, of which numpy would make strings all the same."""
    if values.dtype.kind == "U" and len(values):
        codes = values.view(f"{values.dtype.byteorder}u4")
        if codes.max() > sys.maxunicode:
            raise damaged(path, f"a character of code {codes.max():,}")


def _widened(block: np.ndarray) -> np.ndarray:
    """Two-byte integers as the float32 whose upper half they are; all else as it is."""
    if block.dtype.kind == "u":
        return (block.astype(np.uint32) << 16).view(np.float32)
    return block


def _number(values: np.ndarray) -> np.ndarray:
    """Numbers as float64; times as seconds from 1970, NaN where there is none."""
    if values.dtype.kind != "M":
        return values.astype(np.float64)
    unit, count = np.datetime_data(values.dtype)
    if unit in ("Y", "M"):
        return _number(values.astype("datetime64[D]"))
    # not by casts, which overflow in years far away
    seconds = values.astype(np.int64) * float(count * _LASTS.get(unit, 1)) / _TICKS.get(unit, 1)
    return np.where(np.isnat(values), np.nan, seconds)
