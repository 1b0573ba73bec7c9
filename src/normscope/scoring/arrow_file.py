"""Embeddings in Arrow files and streams (.arrow), as Hugging Face's datasets are on disk."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from normscope.scoring.blocks import damaged
from normscope.scoring.places import Local, Place
from normscope.scoring.tables import TableSource, arrow_errors, open_table, with_pyarrow
from normscope.scoring.wanted import Wanted


def open_arrow(place: Place, wanted: Wanted) -> TableSource:
    """The columns of an Arrow file or stream. A record batch of it is in memory at a time."""
    path = str(place)
    with_pyarrow("arrow")
    with arrow_errors(path), _reader(place, mapped=True) as (schema, batches):
        rows = sum(len(batch) for batch in batches)

    def records(columns: list[str], n: int) -> Iterator[Any]:
        del n  # batches are as long as they were written
        with _reader(place) as (_, batches):
            for batch in batches:
                yield batch.select(columns)

    return open_table(path, schema, rows, records, wanted)


@contextmanager
def _reader(place: Place, *, mapped: bool = False) -> Iterator[tuple[Any, Iterator[Any]]]:
    """Schema and batches; of a mapped file the rows themselves are not read."""
    import pyarrow
    from pyarrow import ipc

    with place.open() as stream:
        is_file = stream.read(6) == b"ARROW1"
        stream.seek(0)
        if mapped and isinstance(place, Local) and place.size():
            source = pyarrow.memory_map(str(place))
        else:
            source = pyarrow.PythonFile(stream, mode="r")
        try:
            if is_file:
                file = ipc.open_file(source)
                batches = (file.get_batch(i) for i in range(file.num_record_batches))
                yield file.schema, batches
            else:
                with ipc.open_stream(source) as reader:
                    yield reader.schema, iter(reader)
        except (TypeError, ValueError) as error:  # some damage is no ArrowException
            raise damaged(str(place), error) from None
        finally:
            source.close()
