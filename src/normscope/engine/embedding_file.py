"""Embeddings of named images as a file that `normscope score` reads."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from normscope._checks import invalid
from normscope._files import whole_file

SUFFIXES = (".parquet", ".npz")
_GROUP = 8192  # rows of a parquet file's row group


def check_target(path: Path, *, force: bool) -> None:
    """Refuse a place that cannot be written to, or that holds something, before any work."""
    if path.suffix not in SUFFIXES:
        raise invalid("out", f"a file ending in {' or '.join(SUFFIXES)}", str(path), "Pick one.")
    if path.suffix == ".parquet" and not find_spec("pyarrow"):
        install = "Install the extra: pip install 'normscope[parquet]', or write .npz."
        raise invalid("pyarrow", "installed to write parquet files", None, install)
    if path.is_dir():
        raise invalid("out", "a new file", f"{path}, which is a folder", "Name another.")
    if path.exists() and not force:
        raise invalid("out", "a new file", f"{path}, which exists", "--force replaces it.")
    if not path.parent.is_dir():
        raise invalid("out", "in a folder that exists", str(path), "Make the folder first.")


def write_embeddings(path: Path, ids: Sequence[str], rows: np.ndarray) -> None:
    """Write `id`, `embedding` (in .npz `embeddings`) and `norm` of each image.

    Args:
        path: ending in .parquet or .npz; it appears once it is complete.
        ids: of the images, n; bytes of a file's name that are no text are written as escapes.
        rows: embedding and norm, float32, (n, d + 1); may be mapped from a file.
    """
    ids = [name.encode(errors="backslashreplace").decode() for name in ids]
    with whole_file(path) as partial:
        (_write_parquet if path.suffix == ".parquet" else _write_npz)(partial, ids, rows)


def _write_parquet(path: Path, ids: Sequence[str], rows: np.ndarray) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    d = rows.shape[1] - 1
    lists = pa.list_(pa.float32(), d)
    schema = pa.schema([("id", pa.string()), ("embedding", lists), ("norm", pa.float32())])
    # floating numbers do not compress
    with pq.ParquetWriter(path, schema, compression="none", use_dictionary=False) as file:
        for start in range(0, len(ids), _GROUP):
            some = rows[start : start + _GROUP]
            values = pa.array(np.ascontiguousarray(some[:, :d]).ravel())
            embeddings = pa.FixedSizeListArray.from_arrays(values, d)
            norms = np.ascontiguousarray(some[:, d])
            columns = [pa.array(ids[start : start + _GROUP], pa.string()), embeddings, norms]
            file.write_table(pa.table(columns, schema=schema))


def _write_npz(path: Path, ids: Sequence[str], rows: np.ndarray) -> None:
    d = rows.shape[1] - 1
    with path.open("wb") as stream:
        np.savez(stream, id=np.array(ids, dtype=str), embeddings=rows[:, :d], norm=rows[:, d])
