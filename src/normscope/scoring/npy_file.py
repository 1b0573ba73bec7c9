"""Embeddings in .npy files, columns in others beside them, and the head that .npz has too."""

from __future__ import annotations

import io
import tokenize
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np

from normscope._checks import invalid
from normscope.scoring.blocks import LONGEST_ID, TIME, check_shape, damaged, id_kind, not_floating
from normscope.scoring.places import Local, Place
from normscope.scoring.raw import BROKEN, Column, RawSource, check_characters
from normscope.scoring.wanted import Wanted

_LONGEST_HEAD = 1 << 16  # bytes; numpy writes 118 for an array
_CALLED = {"U": "a string", "iuU": "an integer or a string", "fiubM": "a number or a time"}
_WIDEST_TEXT = 1 << 16  # bytes of an entry: each row takes as many


class Head(NamedTuple):
    """What an array's head says."""

    shape: tuple[int, ...]
    numbers: np.dtype
    by_columns: bool
    size: int  # bytes of the head itself


def open_npy(place: Place, wanted: Wanted) -> RawSource:
    """The array of a .npy file. A column `length` of z.npy is the array of z.length.npy."""
    path = str(place)
    with place.open() as stream:
        head = read_head(path, stream)
    check_rows(path, head)
    found = plain_source(place, head.size, head.shape, head.numbers, str(head.numbers), exact=True)

    def column(name: str, kinds: str) -> tuple[Column, Head]:
        other = place.beside(f"{place.name.removesuffix('.npy')}.{name}.npy")
        if not other.is_file():
            advice = f"Save the column as {other}."
            raise invalid(path, f"a file with {name!r} beside it", "none", advice)
        with other.open() as stream:
            head = read_head(str(other), stream)
        check_column(str(other), name, head, found.rows, kinds)
        _check_whole(other, head)
        return Column(bytes_from(other, head.size), head.numbers), head

    return with_columns(found, wanted, column)


def read_labels(path: Path, *, rows: int) -> np.ndarray:
    """The array of a .npy file with an integer or a string for each row, (rows,)."""
    place = Local(path)
    if not place.is_file():
        raise invalid("labels", "a .npy file", str(path), "Check its name.")
    with path.open("rb") as stream:
        head = read_head(str(place), stream)
        check_column(str(place), "labels", head, rows, "iuU")
        _check_whole(place, head)
        labels = np.fromfile(stream, head.numbers, rows)
    check_characters(str(place), labels)
    return labels


def _check_whole(place: Place, head: Head) -> None:
    """Refuse a file that is longer or shorter than its array of one value a row."""
    whole, there = head.size + head.shape[0] * head.numbers.itemsize, place.size()
    if there != whole:
        constraint = f"a whole file of {whole:,} bytes"
        raise invalid(str(place), constraint, f"{there:,} bytes", "Write it again.")


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

    embedding = Column(bytes_from(place, start), numbers, (d,))
    return RawSource(str(place), rows, d, shown, (), embedding, None, None, {})


def bytes_from(place: Place, start: int) -> Callable[[], AbstractContextManager[IO[bytes]]]:
    """What opens a file at a byte."""

    @contextmanager
    def opened() -> Iterator[IO[bytes]]:
        with place.open() as stream:
            stream.seek(start)
            yield stream

    return opened


def with_columns(
    source: RawSource, wanted: Wanted, column: Callable[[str, str], tuple[Column, Head]]
) -> RawSource:
    """The source with the columns that are asked for.

    Args:
        source: of rows alone.
        wanted: the columns; none is guessed.
        column: a name, and the kinds of numbers that it may have -> the column, and its head.
    """
    names = {"id": (wanted.id, "iuU"), "text": (wanted.text, "U")}
    found = {key: column(name, kinds) for key, (name, kinds) in names.items() if name is not None}
    given = {name: column(name, "fiubM") for name in wanted.covariates}
    kinds = [f"id: {id_kind(found['id'][1].numbers)}"] if "id" in found else []
    kinds += [name + TIME * (head.numbers.kind == "M") for name, (_, head) in given.items()]
    kinds += [wanted.text] if wanted.text else []
    return replace(
        source,
        beside=tuple(kinds),
        **{key: one for key, (one, _) in found.items()},
        covariates={name: one for name, (one, _) in given.items()},
    )


def check_column(path: str, name: str, head: Head, rows: int, kinds: str) -> None:
    """Refuse an array that is not one value a row, or takes more than values need."""
    if head.shape != (rows,) or head.numbers.kind not in kinds:
        constraint = f"{_CALLED[kinds]} for each of the {rows:,} rows"
        got = f"{head.numbers} {head.shape}"
        raise invalid(f"{name} of {path}", constraint, got, "Save them in the rows' order.")
    widest = _WIDEST_TEXT if kinds == "U" else 4 * LONGEST_ID
    if not 0 < head.numbers.itemsize <= widest:
        got = f"{head.numbers.itemsize:,} bytes a row"
        constraint = f"of at most {widest:,} bytes, and not empty"
        raise invalid(f"{name} of {path}", constraint, got, "Use shorter strings.")
