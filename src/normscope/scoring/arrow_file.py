"""Embeddings in Arrow files and streams (.arrow), as Hugging Face's datasets are on disk."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from normscope.scoring.blocks import damaged
from normscope.scoring.places import Local, Place
from normscope.scoring.tables import TableSource, arrow_errors, open_table, with_pyarrow
from normscope.scoring.wanted import Wanted

_MAGIC = b"ARROW1"  # at both ends of a file; between them lie a stream and a footer
_END = b"\xff\xff\xff\xff\0\0\0\0"  # of a stream
_AT_FRONT = 8


def open_arrow(place: Place, wanted: Wanted) -> TableSource:
    """The columns of an Arrow file or stream. A record batch of it is in memory at a time.

    A file's footer says where its batches begin, but not that their bytes are all there: it is
    read as a stream too, whose end must be where the footer begins.
    """
    path = str(place)
    with_pyarrow("arrow")
    with arrow_errors(path), _reader(place, mapped=True) as (reader, source):
        schema = reader.schema
        rows, at = 0, source.tell()
        for batch in reader:
            rows, at = rows + len(batch), source.tell()
        if at + len(_END) != _end(place):  # a last batch that lacks bytes would take the mark's
            raise damaged(path, "other bytes than its record batches take")

    def records(columns: list[str], n: int) -> Iterator[Any]:
        del n  # batches are as long as they were written
        with _reader(place) as (reader, _):
            for batch in reader:
                yield batch.select(columns)

    return open_table(path, schema, rows, records, wanted)


@contextmanager
def _reader(place: Place, *, mapped: bool = False) -> Iterator[tuple[Any, Any]]:
    """A reader of batches, and what it reads; of a mapped file the rows themselves are not read."""
    import pyarrow
    from pyarrow import ipc

    with place.open() as stream:
        start = _AT_FRONT if stream.read(len(_MAGIC)) == _MAGIC else 0
        stream.seek(0)
        if mapped and isinstance(place, Local) and place.size():
            source = pyarrow.memory_map(str(place))
        else:
            source = pyarrow.PythonFile(stream, mode="r")
        source.seek(start)
        try:
            with ipc.open_stream(source) as reader:
                yield reader, source
        except (TypeError, ValueError) as error:  # some damage is no ArrowException
            raise damaged(str(place), error) from None
        finally:
            source.close()


def _end(place: Place) -> int:
    """Where the stream must end: at the footer of a file, whose length is behind it."""
    with place.open() as stream:
        if stream.read(len(_MAGIC)) != _MAGIC:
            stream.seek(max(0, place.size() - len(_END)))
            if stream.read() != _END:
                raise damaged(str(place), "a stream without an end")
            return place.size()
        tail = place.size() - len(_MAGIC) - 4
        stream.seek(max(0, tail))
        footer = int.from_bytes(stream.read(4), "little")
        return tail - footer if stream.read(len(_MAGIC)) == _MAGIC else -1
