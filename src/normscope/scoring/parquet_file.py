"""Embeddings in parquet files, a batch of records at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from normscope._checks import invalid
from normscope.scoring.places import Place
from normscope.scoring.tables import TableSource, arrow_errors, is_text, open_table, with_pyarrow
from normscope.scoring.wanted import Wanted

_MOST_VALUES = 1 << 28  # of a column in a row group, beyond 65,536 a row: 1 GiB of float32


def open_parquet(place: Place, wanted: Wanted) -> TableSource:
    """The columns of a parquet file."""
    path = str(place)
    with_pyarrow("parquet")
    with arrow_errors(path), _opened(place) as file:
        schema, rows = file.schema_arrow, file.metadata.num_rows
        _check_sizes(path, file.metadata)

    def records(columns: list[str], n: int) -> Iterator[Any]:
        words = [name for name in columns if is_text(schema.field(name).type)]
        with _opened(place, words=words) as file:
            yield from file.iter_batches(batch_size=n, columns=columns)

    return open_table(path, schema, rows, records, wanted)


@contextmanager
def _opened(place: Place, words: list[str] | None = None) -> Iterator[Any]:
    """A file whose columns of strings `words` stay coded, so that none is repeated."""
    import pyarrow
    import pyarrow.parquet

    with place.open() as stream:
        # a buffer, so that a row group of any size is read page by page
        yield pyarrow.parquet.ParquetFile(
            pyarrow.PythonFile(stream, mode="r"),
            buffer_size=1 << 20,
            pre_buffer=False,
            read_dictionary=words,
        )


def _check_sizes(path: str, metadata: Any) -> None:
    """Refuse a group with more numbers than its rows need, as one list of all would have."""
    for i in range(metadata.num_row_groups):
        group = metadata.row_group(i)
        for j in range(group.num_columns):
            values = group.column(j).num_values
            if values > _MOST_VALUES + 65_536 * max(0, group.num_rows):
                got = f"{values:,} in {group.num_rows:,} rows"
                raise invalid(path, "of one embedding a row", got, "Write it again.")
