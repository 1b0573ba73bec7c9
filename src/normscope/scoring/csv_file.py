"""Embeddings in .csv files: a column for each entry, or one of JSON lists."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from normscope.scoring.jsonl_file import lists_of
from normscope.scoring.places import Place
from normscope.scoring.tables import (
    TableSource,
    arrow_errors,
    open_table,
    text_schema,
    with_pyarrow,
)
from normscope.scoring.wanted import Wanted

_CHUNK = 1 << 22  # bytes of text at once; a line must be shorter


def open_csv(place: Place, wanted: Wanted) -> TableSource:
    """The columns of a .csv file; all numbers of embeddings are float64.

    A first line of numbers alone is no heading: all columns are entries then. The file is read
    twice: rows are counted first.
    """
    path = str(place)
    pyarrow = with_pyarrow("csv")
    with arrow_errors(path):
        names, headed = _headings(place)
        with _stream(place, names, headed, None) as reader:
            schema = reader.schema
            cells = _cells(next(reader, None))
        with _stream(place, names, headed, {names[0]: pyarrow.string()}) as reader:
            rows = sum(len(batch) for batch in reader)
        lists = pyarrow.list_(pyarrow.float64())
        schema = pyarrow.schema([f.with_type(lists) if f.name in cells else f for f in schema])
        schema = text_schema(schema, wanted)

    def records(columns: list[str], n: int) -> Iterator[Any]:
        del n
        kinds = {c: pyarrow.string() if c in cells else schema.field(c).type for c in columns}
        with _stream(place, names, headed, kinds) as reader:
            for batch in reader:
                arrays = [
                    lists_of(batch.column(c).to_pylist()) if c in cells else batch.column(c)
                    for c in columns
                ]
                yield pyarrow.RecordBatch.from_arrays(arrays, names=columns)

    return open_table(path, schema, rows, records, wanted)


def _headings(place: Place) -> tuple[list[str], bool]:
    """Names of the columns, and whether the first line has them."""
    import pyarrow

    with place.open() as stream:
        start = stream.read(_CHUNK)
    line = start.removeprefix(b"\xef\xbb\xbf").decode(errors="replace").splitlines()[:1]
    cells = next(csv.reader(line), [])
    if not cells:
        raise pyarrow.ArrowInvalid("Empty CSV file")
    try:
        numbers = [float(cell) for cell in cells]
    except ValueError:
        return cells, True
    return [f"e{i}" for i in range(len(numbers))], False


@contextmanager
def _stream(
    place: Place, names: list[str], headed: bool, kinds: dict[str, Any] | None
) -> Iterator[Any]:
    """A reader of all columns, or of those whose kinds are given."""
    from pyarrow import PythonFile
    from pyarrow import csv as arrow_csv

    columns = None if kinds is None else list(kinds)
    with place.open() as stream:
        yield arrow_csv.open_csv(
            PythonFile(stream, mode="r"),
            read_options=arrow_csv.ReadOptions(
                use_threads=False,
                block_size=_CHUNK,
                column_names=None if headed else names,
            ),
            parse_options=arrow_csv.ParseOptions(newlines_in_values=True),
            convert_options=arrow_csv.ConvertOptions(column_types=kinds, include_columns=columns),
        )


def _cells(batch: Any) -> set[str]:
    """The columns whose first cell is a JSON list."""
    import pyarrow.types as t

    if batch is None or not len(batch):
        return set()
    strings = [f.name for f in batch.schema if t.is_string(f.type)]
    return {c for c in strings if str(batch.column(c)[0].as_py() or "").lstrip()[:1] == "["}
