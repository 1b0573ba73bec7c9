"""Embeddings in .npz files, with ids, texts and covariates as members beside them."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

import numpy as np

from normscope._checks import invalid
from normscope.scoring.blocks import LONGEST_ID, TIME, check_shape, damaged
from normscope.scoring.npy_file import Head, check_rows, read_head
from normscope.scoring.places import Place
from normscope.scoring.raw import BROKEN, Column, RawSource
from normscope.scoring.wanted import Wanted, chosen

_WIDEST_TEXT = 1 << 16  # bytes of an entry: each row takes as many
_MOST_MEMBERS = 10_000


def open_npz(place: Place, wanted: Wanted) -> RawSource:
    """A member of a .npz file, stored or deflated."""
    path = str(place)
    heads = _heads(place)
    wanted.check(path, heads)
    fitting = [
        name for name, head in heads.items() if head.numbers.kind == "f" and len(head.shape) == 2
    ]
    usual = ("embeddings", "embedding", f"{wanted.split}_embeddings")
    name = wanted.column or chosen(path, heads, fitting, usual)
    head = heads[name]
    rows, d = check_shape(path, head.shape)
    check_rows(path, head)

    def beside(name: str, kinds: str) -> Column:
        _check_column(path, name, heads[name], rows, kinds)
        return Column(lambda: _opened(place, name, heads[name]), heads[name].numbers)

    id_name = wanted.id_among(heads)
    found = [] if id_name is None else [f"id: {_kind(heads[id_name].numbers)}"]
    given = [c + TIME * (heads[c].numbers.kind == "M") for c in wanted.covariates]
    return RawSource(
        path,
        rows,
        d,
        str(head.numbers),
        (*found, *given, *([wanted.text] if wanted.text else [])),
        Column(lambda: _opened(place, name, head), head.numbers, (d,)),
        None if id_name is None else beside(id_name, "iuU"),
        None if wanted.text is None else beside(wanted.text, "U"),
        {name: beside(name, "fiubM") for name in wanted.covariates},
    )


def _heads(place: Place) -> dict[str, Head]:
    """The head of each array in the file."""
    heads = {}
    try:
        with place.open() as file, zipfile.ZipFile(file) as packed:
            members = [info for info in packed.infolist() if info.filename.endswith(".npy")]
            if len(members) > _MOST_MEMBERS:
                raise damaged(str(place), f"{len(members):,} members")
            for info in members:
                with packed.open(info) as stream:
                    heads[info.filename.removesuffix(".npy")] = read_head(str(place), stream)
    except BROKEN as error:
        raise damaged(str(place), error) from None
    return heads


@contextmanager
def _opened(place: Place, name: str, head: Head) -> Iterator[IO[bytes]]:
    with (
        place.open() as file,
        zipfile.ZipFile(file) as packed,
        packed.open(f"{name}.npy") as stream,
    ):
        stream.read(head.size)
        yield stream


def _check_column(path: str, name: str, head: Head, rows: int, kinds: str) -> None:
    """Refuse a member that is not one value a row, or takes more than values need."""
    if head.shape != (rows,) or head.numbers.kind not in kinds:
        constraint = f"one value for each of the {rows:,} rows"
        got = f"{head.numbers} {head.shape}"
        raise invalid(f"{name} of {path}", constraint, got, "Save them in the rows' order.")
    widest = _WIDEST_TEXT if kinds == "U" else 4 * LONGEST_ID
    if not 0 < head.numbers.itemsize <= widest:
        got = f"{head.numbers.itemsize:,} bytes a row"
        raise invalid(
            f"{name} of {path}",
            f"of at most {widest:,} bytes, and not empty",
            got,
            "Use shorter strings.",
        )


def _kind(numbers: np.dtype) -> str:
    return "integers" if numbers.kind in "iu" else "strings"
