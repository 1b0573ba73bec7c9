"""Embeddings of named images, written batch by batch; the file appears once it is complete."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from normscope._checks import invalid
from normscope._files import whole_file
from normscope.engine.encoder import Embedded

SUFFIXES = (".parquet", ".npz")
Write = Callable[[list[str], Embedded], None]


def check_target(path: Path, *, force: bool) -> None:
    """Refuse a place that cannot be written to, or that holds something, before any work."""
    if path.suffix not in SUFFIXES:
        raise invalid("out", f"a file ending in {' or '.join(SUFFIXES)}", str(path), "Pick one.")
    if path.suffix == ".parquet" and not find_spec("pyarrow"):
        install = "Install the extra: pip install 'normscope[parquet]', or write .npz."
        raise invalid("pyarrow", "installed to write parquet files", None, install)
    if path.is_dir() or (path.exists() and not force):
        raise invalid("out", "a new file", f"{path}, which exists", "--force replaces it.")
    if not path.parent.is_dir():
        raise invalid("out", "in a folder that exists", str(path), "Make the folder first.")


@contextmanager
def embedding_file(path: Path, *, d: int) -> Iterator[Write]:
    """A function that adds rows of `id`, `embedding` and `norm`, which `normscope score` reads.

    Args:
        path: .parquet, a row group each time, or .npz, which is held in memory until the end
            (there the member is called `embeddings`).
        d: width of the embeddings.
    """
    with whole_file(path) as partial:
        yield from (_parquet if path.suffix == ".parquet" else _npz)(partial, d)


def _parquet(path: Path, d: int) -> Iterator[Write]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    lists = pa.list_(pa.float32(), d)
    schema = pa.schema([("id", pa.string()), ("embedding", lists), ("norm", pa.float32())])
    # floating numbers do not compress
    with pq.ParquetWriter(path, schema, compression="none", use_dictionary=False) as file:

        def write(ids: list[str], found: Embedded) -> None:
            values = pa.array(found.embeddings.numpy().ravel())
            rows = pa.FixedSizeListArray.from_arrays(values, d)
            file.write_table(pa.table([ids, rows, found.norms.numpy()], schema=schema))

        yield write


def _npz(path: Path, d: int) -> Iterator[Write]:
    every: list[str] = []
    rows: list[np.ndarray] = [np.empty((0, d), np.float32)]
    norms: list[np.ndarray] = [np.empty(0, np.float32)]

    def write(ids: list[str], found: Embedded) -> None:
        every.extend(ids)
        rows.append(found.embeddings.numpy())
        norms.append(found.norms.numpy())

    yield write
    arrays: dict[str, Any] = {"id": np.array(every, dtype=str), "embeddings": np.concatenate(rows)}
    with path.open("wb") as stream:
        np.savez(stream, **arrays, norm=np.concatenate(norms))
