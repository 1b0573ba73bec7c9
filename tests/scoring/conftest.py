"""Embeddings in every format."""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import save_file

Written = Callable[..., Path]


def embeddings(rows: int, seed: int, d: int = 8) -> np.ndarray:
    random = np.random.default_rng(seed)
    z = random.standard_normal((rows, d)) * random.uniform(0.5, 3, (rows, 1))
    return z.astype(np.float32)


@pytest.fixture
def write(tmp_path: Path) -> Written:
    """Writes z as a kind of file, with columns beside it where the kind has them."""

    def written(z: np.ndarray, kind: str, name: str = "z", **columns: np.ndarray) -> Path:
        stream = ".stream" if kind == "arrow-list" else ""
        path = tmp_path / f"{name}{stream}.{kind.split('-')[0]}"
        return write_file(path, z, kind, **columns)

    return written


def write_file(path: Path, z: np.ndarray, kind: str, **columns: np.ndarray) -> Path:
    if kind == "npy":
        np.save(path, z)
        for name, column in columns.items():
            np.save(path.with_name(f"{path.stem}.{name}.npy"), column)
    elif kind == "npz":
        np.savez(path, embeddings=z, **columns)
    elif kind == "npz-deflated":
        np.savez_compressed(path, embeddings=z, **columns)
    elif kind == "safetensors":
        numbers = {name: torch.from_numpy(c) for name, c in columns.items() if c.dtype.kind != "U"}
        save_file({"embeddings": torch.from_numpy(z), "more": torch.zeros(3), **numbers}, path)
    elif kind == "jsonl":
        write_jsonl(path, z, columns)
    elif kind == "csv-lists":
        cells = [json.dumps(row) for row in z.tolist()]
        write_csv(path, {**columns, "embedding": cells})
    elif kind == "csv":
        write_csv(path, {**columns, **entries(z)})
    else:
        write_table(path, table(z, kind.partition("-")[2], columns))
    return path


def entries(z: np.ndarray) -> dict[str, np.ndarray]:
    return {f"e{i}": z[:, i] for i in range(z.shape[1])}


def write_jsonl(path: Path, z: np.ndarray, columns: dict[str, np.ndarray]) -> None:
    with path.open("w") as stream:
        for i, row in enumerate(z.tolist()):
            beside = {name: values[i].item() for name, values in columns.items()}
            stream.write(json.dumps({**beside, "embedding": row}) + "\n")


def write_csv(path: Path, columns: dict[str, Any]) -> None:
    with path.open("w", newline="") as stream:
        lines = csv.writer(stream)
        lines.writerow(columns)
        lines.writerows(zip(*columns.values(), strict=True))


def table(z: np.ndarray, how: str, columns: dict[str, np.ndarray]) -> pa.Table:
    flat = pa.array(z.ravel())
    starts = np.arange(len(z) + 1) * z.shape[1]
    if how == "wide":
        held = entries(z)
    elif how == "large":
        held = {"any": pa.LargeListArray.from_arrays(pa.array(starts), flat)}
    elif how == "list":
        lists = pa.ListArray.from_arrays(pa.array(starts, pa.int32()), flat)
        held = {"embeddings": lists}
    else:
        held = {"embedding": pa.FixedSizeListArray.from_arrays(flat, z.shape[1])}
    return pa.table({**columns, **held})


def write_table(path: Path, rows: pa.Table) -> None:
    """Row groups, or record batches, of 300 rows."""
    if path.suffix == ".parquet":
        pq.write_table(rows, path, row_group_size=300, write_page_checksum=True)
        return
    opened = pa.ipc.new_stream if "stream" in path.name else pa.ipc.new_file
    with opened(path, rows.schema) as writer:
        writer.write_table(rows, max_chunksize=300)


KINDS = [
    "npy",
    "npz",
    "npz-deflated",
    "safetensors",
    "parquet-list",
    "parquet-large",
    "parquet-fixed",
    "parquet-wide",
    "arrow-fixed",
    "arrow-list",
    "jsonl",
    "csv",
    "csv-lists",
]
WITH_COLUMNS = [kind for kind in KINDS if kind not in ("npy", "safetensors")]
