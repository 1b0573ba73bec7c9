"""Embeddings in .npy files, and the head that members of .npz have too."""

from __future__ import annotations

import io
import tokenize
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, NamedTuple

import numpy as np

from normscope._checks import invalid
from normscope.scoring.blocks import check_shape, damaged, not_floating
from normscope.scoring.places import Place
from normscope.scoring.raw import BROKEN, Column, RawSource
from normscope.scoring.wanted import Wanted

_LONGEST_HEAD = 1 << 16  # bytes; numpy writes 118 for an array


class Head(NamedTuple):
    """What an array's head says."""

    shape: tuple[int, ...]
    numbers: np.dtype
    by_columns: bool
    size: int  # bytes of the head itself


def open_npy(place: Place, wanted: Wanted) -> RawSource:
    """The array of a .npy file."""
    del wanted  # there is nothing beside it
    path = str(place)
    with place.open() as stream:
        head = read_head(path, stream)
    check_rows(path, head)
    return plain_source(place, head.size, head.shape, head.numbers, str(head.numbers), exact=True)


def read_head(path: str, stream: IO[bytes]) -> Head:
    """Parse the head of an array; the stream is at its first entry then.

    numpy would read as many bytes as the head says that it has, which may be four billion.
    """
    try:
        first = stream.read(8)
        width = 2 if first[6:7] == b"\x01" else 4
        length = stream.read(width)
        size = int.from_bytes(length, "little")
        if size > _LONGEST_HEAD:
            raise damaged(path, f"a head of {size:,} bytes")
        whole = io.BytesIO(first + length + stream.read(size))
        version = np.lib.format.read_magic(whole)
        old = version == (1, 0)
        read = np.lib.format.read_array_header_1_0 if old else np.lib.format.read_array_header_2_0
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of heads that Python 2 wrote
            shape, by_columns, numbers = read(whole)
    except (*BROKEN, SyntaxError, MemoryError, tokenize.TokenError) as error:
        raise damaged(path, error) from None
    if any(n < 0 for n in shape):
        raise damaged(path, f"a shape {shape}")
    return Head(shape, numbers, by_columns, 8 + width + size)


def check_rows(path: str, head: Head) -> None:
    """Refuse what is not floating-point rows, one after the other."""
    if head.numbers.kind != "f" or head.numbers.itemsize > 8:
        raise not_floating(path, str(head.numbers))
    if head.by_columns and len(head.shape) == 2:
        advice = "Save np.ascontiguousarray of it."
        raise invalid(path, "stored row by row", "Fortran order", advice)


def plain_source(
    place: Place,
    start: int,
    shape: tuple[int, ...],
    numbers: np.dtype,
    shown: str,
    *,
    exact: bool,
) -> RawSource:
    """Rows that begin at a byte of a file, and end it if `exact`: else some are not in place."""
    rows, d = check_shape(str(place), shape)
    whole, there = start + rows * d * numbers.itemsize, place.size()
    if there < whole or (exact and there > whole):
        constraint = f"a whole file of {whole:,} bytes"
        raise invalid(str(place), constraint, f"{there:,} bytes", "Write it again.")

    @contextmanager
    def opened() -> Iterator[IO[bytes]]:
        with place.open() as stream:
            stream.seek(start)
            yield stream

    embedding = Column(opened, numbers, (d,))
    return RawSource(str(place), rows, d, shown, (), embedding, None, None, {})
