"""Writers of columns, batch by batch; the file appears only when it is complete.

A column is one value a row, or one embedding a row; `status` is given as places in `STATUSES`.
"""

from __future__ import annotations

import csv
import json
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np

from normscope._files import whole_file
from normscope.scoring.blocks import STATUSES

Columns = dict[str, np.ndarray]


class Writer(Protocol):
    """Takes the columns of consecutive rows, the same ones each time."""

    def write(self, columns: Columns) -> None:
        """Add rows."""
        ...

    def close(self) -> None:
        """Write what is still held, and finish the file."""
        ...

    def abandon(self) -> None:
        """Discard an unfinished file."""
        ...


@contextmanager
def written(path: Path) -> Iterator[Writer]:
    """A writer by the suffix of `path`; the file is replaced only on success."""
    with whole_file(path) as partial:
        writer: Writer = WRITERS[path.suffix](partial)
        try:
            yield writer
        except BaseException:
            writer.abandon()
            raise
        writer.close()


class _Tables:
    """A row group or record batch each time; numbers as they are: those of norms don't compress."""

    def __init__(self, path: Path, opened: Callable[[IO[bytes], Any], Any]) -> None:
        self._stream = path.open("wb")  # Arrow would take some names for URLs
        self._opened = opened
        self._file: Any = None

    def write(self, columns: Columns) -> None:
        table = arrow_table(columns)
        if self._file is None:
            self._file = self._opened(self._stream, table.schema)
        self._file.write_table(table)

    def close(self) -> None:
        self._file.close()
        self._stream.close()

    def abandon(self) -> None:
        # what is deleted unclosed would be closed then, and print a traceback
        for opened in (self._file, self._stream):
            with suppress(Exception):  # the disk may be full
                opened.close()


def _parquet(stream: IO[bytes], schema: Any) -> Any:
    import pyarrow.parquet

    few = [name for name in schema.names if name == "status"]
    return pyarrow.parquet.ParquetWriter(
        stream,
        schema,
        compression="none",
        write_page_checksum=True,
        use_dictionary=few,  # pyright: ignore[reportArgumentType]
    )


def _arrow(stream: IO[bytes], schema: Any) -> Any:
    from pyarrow import ipc

    return ipc.new_file(stream, schema)


class _Csv:
    """A line a row; numbers with nine digits, which distinguish any two float32."""

    def __init__(self, path: Path) -> None:
        self._stream = path.open("w", newline="", encoding="utf-8")
        self._lines = csv.writer(self._stream, lineterminator="\n")
        self._begun = False

    def write(self, columns: Columns) -> None:
        flat = _entries_apart(columns)
        if not self._begun:
            self._lines.writerow(flat)
            self._begun = True
        cells = [_cells(name, column) for name, column in flat.items()]
        self._lines.writerows(zip(*cells, strict=True))

    def close(self) -> None:
        self._stream.close()

    abandon = close


class _Jsonl:
    """An object a line; what is not finite is null."""

    def __init__(self, path: Path) -> None:
        self._stream = path.open("w", encoding="utf-8")

    def write(self, columns: Columns) -> None:
        values = [_listed(name, column) for name, column in columns.items()]
        for row in zip(*values, strict=True):
            line = dict(zip(columns, row, strict=True))
            self._stream.write(json.dumps(line, ensure_ascii=False) + "\n")

    def close(self) -> None:
        self._stream.close()

    abandon = close


class _Npz:
    """A member a column; a zip file takes one after the other, so all wait until the end."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._members: dict[str, _Words | _Numbers] = {}

    def write(self, columns: Columns) -> None:
        for name, column in columns.items():
            if name not in self._members:
                words = name == "status" or column.dtype.kind in "OU"
                self._members[name] = _Words() if words else _Numbers(column, self._path.parent)
            self._members[name].add(np.array(STATUSES)[column] if name == "status" else column)

    def close(self) -> None:
        with zipfile.ZipFile(self._path, "w") as packed:
            for name, member in self._members.items():
                member.pack(packed, name)
        self.abandon()

    def abandon(self) -> None:
        for member in self._members.values():
            member.close()


class _Words:
    """Strings, held in memory: the longest says how wide all are."""

    def __init__(self) -> None:
        self._parts: list[np.ndarray] = []

    def add(self, column: np.ndarray) -> None:
        self._parts.append(column.astype(str) if column.dtype == object else column)

    def pack(self, packed: zipfile.ZipFile, name: str) -> None:
        widest = max((part.dtype for part in self._parts), key=lambda kind: kind.itemsize)
        with _member(packed, name, widest, (sum(map(len, self._parts)),)) as member:
            for part in self._parts:
                member.write(part.astype(widest).tobytes())

    def close(self) -> None:
        self._parts.clear()


class _Numbers:
    """Numbers, held in a file without a name."""

    def __init__(self, first: np.ndarray, folder: Path) -> None:
        self._kind, self._shape, self._rows = first.dtype, first.shape[1:], 0
        self._stream = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115

    def add(self, column: np.ndarray) -> None:
        self._rows += len(column)
        self._stream.write(column.tobytes())

    def pack(self, packed: zipfile.ZipFile, name: str) -> None:
        self._stream.seek(0)
        with _member(packed, name, self._kind, (self._rows, *self._shape)) as member:
            shutil.copyfileobj(self._stream, member, 1 << 20)

    def close(self) -> None:
        self._stream.close()


def arrow_table(columns: Columns) -> Any:
    """Columns as an Arrow table: embeddings as lists of fixed size, status as words."""
    import pyarrow

    def array(name: str, column: np.ndarray) -> Any:
        if name == "status":
            codes = column.view(np.int8)
            return pyarrow.DictionaryArray.from_arrays(codes, pyarrow.array(STATUSES))
        if column.ndim == 2:
            flat = np.ascontiguousarray(column).reshape(-1)
            return pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(flat), column.shape[1])
        return pyarrow.array(column)

    return pyarrow.table({name: array(name, column) for name, column in columns.items()})


def _entries_apart(columns: Columns) -> Columns:
    """Columns with embeddings as e0, e1 and so on."""
    flat: Columns = {}
    for name, column in columns.items():
        if column.ndim == 2:
            flat |= {f"e{i}": column[:, i] for i in range(column.shape[1])}
        else:
            flat[name] = column
    return flat


def _cells(name: str, column: np.ndarray) -> Sequence[Any]:
    if name == "status" or column.dtype.kind != "f":
        return _listed(name, column)
    digits = "{:.17g}" if name != "norm" and column.dtype.itemsize == 8 else "{:.9g}"
    return [digits.format(number) for number in column.tolist()]


def _listed(name: str, column: np.ndarray) -> list[Any]:
    """Values for JSON, which has no NaN."""
    if name == "status":
        return [STATUSES[code] for code in column.tolist()]
    if column.dtype.kind == "f" and not np.isfinite(column).all():
        shown = column.astype(object)
        shown[~np.isfinite(column)] = None
        return shown.tolist()
    return column.tolist()


@contextmanager
def _member(
    packed: zipfile.ZipFile, name: str, kind: np.dtype, shape: tuple[int, ...]
) -> Iterator[Any]:
    """A member of a .npz file, its head written."""
    with packed.open(f"{name}.npy", "w", force_zip64=True) as member:
        descr = np.lib.format.dtype_to_descr(kind)
        header = {"descr": descr, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(member, header)  # pyright: ignore[reportArgumentType]
        yield member


WRITERS: dict[str, Callable[[Path], Writer]] = {
    ".parquet": lambda path: _Tables(path, _parquet),
    ".npz": _Npz,
    ".csv": _Csv,
    ".jsonl": _Jsonl,
    ".arrow": lambda path: _Tables(path, _arrow),
}
