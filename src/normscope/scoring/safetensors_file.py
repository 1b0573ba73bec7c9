"""Embeddings in .safetensors files."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from normscope.scoring.blocks import damaged, not_floating
from normscope.scoring.npy_file import (
    Head,
    bytes_from,
    check_column,
    plain_source,
    with_columns,
)
from normscope.scoring.places import Local, Place
from normscope.scoring.raw import BROKEN, Column, RawSource
from normscope.scoring.wanted import Wanted, chosen

_FLOATS = {"F16": "<f2", "BF16": "<u2", "F32": "<f4", "F64": "<f8"}
_COLUMNS = {"F16": "<f2", "F32": "<f4", "F64": "<f8", "BOOL": "?"}
_COLUMNS |= {f"{kind.upper()}{8 * n}": f"<{kind}{n}" for kind in "iu" for n in (1, 2, 4, 8)}
_LONGEST_HEAD = 100_000_000  # bytes; the library's own limit


def open_safetensors(place: Place, wanted: Wanted) -> RawSource:
    """A tensor of two dimensions, with columns of numbers as tensors of one beside it.

    The file starts with the length of its head in eight bytes, then the head as JSON. The library
    checks the head: that the tensors fill the file, each as many bytes as its shape takes.
    """
    path = str(place)
    start, content = _checked_head(place)
    content.pop("__metadata__", None)
    wanted.check(path, content)
    fitting = [
        name for name, t in content.items() if t["dtype"] in _FLOATS and len(t["shape"]) == 2
    ]
    name = wanted.column or chosen(path, content, fitting, ("embeddings", "embedding"))
    tensor = content[name]
    kind, shape, (first, _) = tensor["dtype"], tuple(tensor["shape"]), tensor["data_offsets"]
    if kind not in _FLOATS:
        raise not_floating(path, kind)
    found = plain_source(place, start + first, shape, np.dtype(_FLOATS[kind]), kind, exact=False)

    def column(name: str, kinds: str) -> tuple[Column, Head]:
        beside = content[name]
        numbers = np.dtype(_COLUMNS.get(beside["dtype"], "V1"))
        head = Head(tuple(beside["shape"]), numbers, False, start + beside["data_offsets"][0])
        check_column(path, name, head, found.rows, kinds)
        return Column(bytes_from(place, head.size), numbers), head

    return with_columns(found, wanted, column)


def _checked_head(place: Place) -> tuple[int, dict[str, Any]]:
    """Where the tensors start, and name -> dtype, shape and data_offsets."""
    from safetensors import SafetensorError, safe_open

    try:
        with place.open() as stream:
            length = stream.read(8)
            size = int.from_bytes(length, "little")
            if len(length) < 8 or size > min(_LONGEST_HEAD, place.size() - 8):
                raise damaged(str(place), f"a head of {size:,} bytes")
            head = stream.read(size)
        with _on_disk(place, length + head) as path, safe_open(path, "numpy"):
            return 8 + size, json.loads(head)
    except (*BROKEN, SafetensorError) as error:
        raise damaged(str(place), error) from None


@contextmanager
def _on_disk(place: Place, head: bytes) -> Iterator[Path]:
    """The file itself, or one with its head and length that takes no space."""
    if isinstance(place, Local):
        yield place.path
        return
    folder = Path(tempfile.mkdtemp())
    try:
        with (folder / "head.safetensors").open("wb") as stream:
            stream.write(head)
            stream.truncate(place.size())
        yield folder / "head.safetensors"
    finally:
        shutil.rmtree(folder)
