"""Embeddings in .npz files, with ids, texts and covariates as members beside them."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import IO

from normscope.scoring.blocks import check_shape, damaged
from normscope.scoring.npy_file import Head, check_column, check_rows, read_head, with_columns
from normscope.scoring.places import Place
from normscope.scoring.raw import BROKEN, Column, RawSource
from normscope.scoring.wanted import Wanted, chosen

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

    def column(name: str, kinds: str) -> tuple[Column, Head]:
        check_column(path, name, heads[name], rows, kinds)
        return Column(lambda: _opened(place, name, heads[name]), heads[name].numbers), heads[name]

    embedding = Column(lambda: _opened(place, name, head), head.numbers, (d,))
    found = RawSource(path, rows, d, str(head.numbers), (), embedding, None, None, {})
    return with_columns(found, replace(wanted, id=wanted.id_among(heads)), column)


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
