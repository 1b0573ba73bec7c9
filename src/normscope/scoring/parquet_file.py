"""Embeddings in parquet files, a batch of records at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from normscope._checks import invalid
from normscope.scoring.blocks import damaged
from normscope.scoring.places import Place
from normscope.scoring.tables import TableSource, arrow_errors, is_text, open_table, with_pyarrow
from normscope.scoring.wanted import Wanted

_WHOLE = 1 << 26  # bytes of a column in a row group that is read at once
_MOST_VALUES = 1 << 28  # of a column in a row group, beyond 65,536 a row: 1 GiB of float32


def open_parquet(place: Place, wanted: Wanted) -> TableSource:
    """The columns of a parquet file."""
    path = str(place)
    with_pyarrow("parquet")
    with arrow_errors(path), _opened(place) as file:
        schema, rows = file.schema_arrow, file.metadata.num_rows
        largest = _largest_chunk(path, file.metadata, place.size())

    def records(columns: list[str], n: int) -> Iterator[Any]:
        words = [name for name in columns if is_text(schema.field(name).type)]
        with _opened(place, words=words, paged=largest > _WHOLE) as file:
            yield from file.iter_batches(batch_size=n, columns=columns)

    return open_table(path, schema, rows, records, wanted)


@contextmanager
def _opened(place: Place, words: list[str] | None = None, *, paged: bool = False) -> Iterator[Any]:
    """A file whose columns of strings `words` stay coded, so that none is repeated.

    `paged` reads a row group of any size page by page, and takes as much memory as a page says
    that it has; else a page that says too much is found out at once.
    """
    import pyarrow
    import pyarrow.parquet

    with place.open() as stream:
        yield pyarrow.parquet.ParquetFile(
            pyarrow.PythonFile(stream, mode="r"),
            buffer_size=(1 << 20) if paged else 0,
            pre_buffer=False,
            read_dictionary=words,
            page_checksum_verification=True,  # of those that have one
        )


def _largest_chunk(path: str, metadata: Any, size: int) -> int:
    """Bytes of the largest column of a row group.

    Refuses one that is longer than the file, and one with more numbers than its rows need, as a
    list of all would have.
    """
    largest = 0
    for i in range(metadata.num_row_groups):
        group = metadata.row_group(i)
        for j in range(group.num_columns):
            chunk = group.column(j)
            if chunk.num_values > _MOST_VALUES + 65_536 * max(0, group.num_rows):
                got = f"{chunk.num_values:,} in {group.num_rows:,} rows"
                raise invalid(path, "of one embedding a row", got, "Write it again.")
            if not 0 <= chunk.total_compressed_size <= size:
                raise damaged(path, f"a column of {chunk.total_compressed_size:,} bytes")
            largest = max(largest, chunk.total_compressed_size)
    return largest
