"""Embeddings in .jsonl files: an object a line, with the embedding as a list of numbers."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import numpy as np

from normscope._checks import invalid
from normscope.scoring.places import Place
from normscope.scoring.tables import (
    TableSource,
    arrow_errors,
    open_table,
    text_schema,
    with_pyarrow,
)
from normscope.scoring.wanted import Wanted

_CHUNK = 1 << 22  # bytes of text at once
_LONGEST_LINE = 1 << 26
_DEEPEST = 100


def open_jsonl(place: Place, wanted: Wanted) -> TableSource:
    """The fields of a .jsonl file, as the first lines have them; all numbers are float64.

    It is read twice: rows are counted first.
    """
    path = str(place)
    pyarrow = with_pyarrow("jsonl")
    with arrow_errors(path):
        first = next(_chunks(place), b"")
        schema = _parsed(first, None).schema if first else pyarrow.schema([])
        schema = text_schema(schema, wanted)
    rows = sum(sum(map(bool, map(bytes.strip, chunk.splitlines()))) for chunk in _chunks(place))

    def records(columns: list[str], n: int) -> Iterator[Any]:
        del n
        kept = pyarrow.schema([schema.field(name) for name in columns])
        for chunk in _chunks(place):
            if chunk.strip():
                yield from _parsed(chunk, kept).to_batches()

    return open_table(path, schema, rows, records, wanted)


def lists_of(cells: list[str | None]) -> Any:
    """Cells with JSON lists, or nothing, as an array of lists.

    >>> lists_of(["[1, 2.5]", None]).to_pylist()
    [[1.0, 2.5], None]
    """
    import pyarrow

    lines = "".join(f'{{"z": {" ".join(cell.split()) if cell else "null"}}}\n' for cell in cells)
    kind = pyarrow.schema([("z", pyarrow.list_(pyarrow.float64()))])
    found = _parsed(lines.encode(), kind).column(0).combine_chunks()
    if len(found) != len(cells):
        raise pyarrow.ArrowInvalid("a cell with more than one list")
    return found


def _parsed(lines: bytes, schema: Any) -> Any:
    """A table of lines; without a schema, of all fields as they are found."""
    from pyarrow import json

    _check_depth(lines)
    return json.read_json(
        io.BytesIO(lines),
        read_options=json.ReadOptions(use_threads=False, block_size=len(lines) + 1),
        parse_options=json.ParseOptions(
            explicit_schema=schema,
            unexpected_field_behavior="infer" if schema is None else "ignore",
        ),
    )


def _check_depth(lines: bytes) -> None:
    """Refuse values in values in values: Arrow reads them by recursion, and would crash."""
    import pyarrow

    for line in lines.splitlines():
        if line.count(b"[") + line.count(b"{") > _DEEPEST:  # of which strings may hold some
            bare = line.replace(b"\\\\", b"").replace(b'\\"', b"")  # without what is escaped
            signs = np.frombuffer(bare, np.uint8)
            steps = np.isin(signs, [*b"[{"]).astype(np.int8) - np.isin(signs, [*b"]}"])
            steps[np.logical_xor.accumulate(signs == ord('"'))] = 0  # inside strings
            if steps.cumsum(dtype=np.int32).max(initial=0) > _DEEPEST:
                raise pyarrow.ArrowInvalid(f"values that are nested more than {_DEEPEST} deep")


def _chunks(place: Place) -> Iterator[bytes]:
    """Whole lines, some megabytes at a time."""
    rest = b""
    with place.open() as stream:
        while part := stream.read(_CHUNK):
            end = part.rfind(b"\n") + 1
            if end:
                yield rest + part[:end]
                rest = part[end:]
            else:
                rest += part
            if len(rest) > _LONGEST_LINE:
                got = "a longer one"
                raise invalid(str(place), f"of lines up to {_LONGEST_LINE:,} bytes", got, "Cut it.")
    if rest:
        yield rest
