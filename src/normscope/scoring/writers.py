"""Writers of scores, batch by batch; the file appears only when it is complete."""

from __future__ import annotations

import csv
import importlib.util
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from normscope._checks import invalid
from normscope._files import whole_file
from normscope.scoring.blocks import STATUSES

COLUMNS = ("id", "norm", "score", "novelty", "status")
Columns = dict[str, np.ndarray]  # in that order; status as places in STATUSES


class Writer(Protocol):
    """Takes the columns of consecutive rows."""

    def write(self, columns: Columns) -> None:
        """Add rows."""
        ...

    def close(self) -> None:
        """Write what is still held, and finish the file."""
        ...

    def abandon(self) -> None:
        """Discard an unfinished file."""
        ...


def default_out(path: Path) -> Path:
    """Beside a file, its scores: .parquet if that can be written here, else .npz."""
    if path.is_dir():
        path = path / "embeddings.npz"
    suffix = ".parquet" if importlib.util.find_spec("pyarrow") else ".npz"
    return path.with_name(f"{path.stem}.scores{suffix}")


def check_out(path: Path, *, force: bool, inputs: tuple[Path, ...]) -> None:
    """Refuse a place that cannot be written to, or that holds something, before any work."""
    if path.suffix not in WRITERS:
        advice = (
            "An array has no named columns; .npz has." if path.suffix == ".npy" else "Pick one."
        )
        raise invalid("out", f"a file ending in {', '.join(WRITERS)}", str(path), advice)
    if path.suffix == ".parquet" and not importlib.util.find_spec("pyarrow"):
        install = "Install the extra: pip install 'normscope[parquet]', or write .npz or .csv."
        raise invalid("pyarrow", "installed to write parquet files", None, install)
    read = [other / "embeddings.npz" if other.is_dir() else other for other in inputs]
    if any(path.resolve() == other.resolve() for other in read):
        raise invalid("out", "another file than those read", str(path), "Choose a new name.")
    if path.is_dir() or (path.exists() and not force):
        advice = "--force replaces it, --out names another."
        raise invalid("out", "a new file", f"{path}, which exists", advice)
    if not path.parent.is_dir():
        raise invalid("out", "in a folder that exists", str(path), "Make the folder first.")


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


class _Parquet:
    """A row group each time; numbers as they are, for those of norms do not compress."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: Any = None

    def write(self, columns: Columns) -> None:
        import pyarrow
        import pyarrow.parquet

        names, codes = pyarrow.array(STATUSES), columns["status"].view(np.int8)
        status = pyarrow.DictionaryArray.from_arrays(codes, names)
        table = pyarrow.table({**columns, "status": status})
        if self._file is None:
            self._file = pyarrow.parquet.ParquetWriter(
                self._path,
                table.schema,
                compression="none",
                use_dictionary=["status"],  # pyright: ignore[reportArgumentType]
            )
        self._file.write_table(table)

    def close(self) -> None:
        self._file.close()

    def abandon(self) -> None:
        if self._file is not None:
            self._file.close()


class _Csv:
    """A line a row; numbers with nine digits, which distinguish any two float32."""

    def __init__(self, path: Path) -> None:
        self._stream = path.open("w", newline="", encoding="utf-8")
        self._lines = csv.writer(self._stream, lineterminator="\n")
        self._lines.writerow(COLUMNS)

    def write(self, columns: Columns) -> None:
        numbers = [map("{:.9g}".format, columns[c].tolist()) for c in ("norm", "score", "novelty")]
        status = map(STATUSES.__getitem__, columns["status"].tolist())
        self._lines.writerows(zip(columns["id"].tolist(), *numbers, status, strict=True))

    def close(self) -> None:
        self._stream.close()

    abandon = close


class _Npz:
    """A member a column. Held in memory until the end: 25 bytes a row, and ids that are strings."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._held: dict[str, list[np.ndarray]] = {c: [] for c in COLUMNS}

    def write(self, columns: Columns) -> None:
        for name, parts in self._held.items():
            column = columns[name]
            parts.append(column.astype(str) if column.dtype == object else column)

    def close(self) -> None:
        names = np.array(STATUSES)
        with zipfile.ZipFile(self._path, "w") as packed:
            for name, parts in self._held.items():
                kind = names.dtype if name == "status" else _widest(parts)
                with packed.open(f"{name}.npy", "w", force_zip64=True) as member:
                    header = {
                        "descr": np.lib.format.dtype_to_descr(kind),
                        "fortran_order": False,
                        "shape": (sum(map(len, parts)),),
                    }
                    np.lib.format.write_array_header_1_0(member, header)  # pyright: ignore[reportArgumentType]
                    for part in parts:
                        values = names[part] if name == "status" else part.astype(kind)
                        member.write(values.tobytes())

    def abandon(self) -> None:
        self._held.clear()


def _widest(parts: list[np.ndarray]) -> np.dtype:
    """The format that holds them all: strings differ in length, all else is of one format."""
    return max((part.dtype for part in parts), key=lambda kind: kind.itemsize)


WRITERS: dict[str, Callable[[Path], Writer]] = {".parquet": _Parquet, ".npz": _Npz, ".csv": _Csv}
