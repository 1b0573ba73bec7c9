"""Embeddings in every format."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
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
        path = tmp_path / f"{name}.{kind.split('-')[0]}"
        if kind == "npy":
            np.save(path, z)
        elif kind == "npz":
            np.savez(path, embeddings=z, **columns)
        elif kind == "npz-deflated":
            np.savez_compressed(path, embeddings=z, **columns)
        elif kind == "safetensors":
            save_file({"embeddings": torch.from_numpy(z), "more": torch.zeros(3)}, path)
        else:
            write_parquet(path, z, kind.removeprefix("parquet-"), columns)
        return path

    return written


def write_parquet(path: Path, z: np.ndarray, how: str, columns: dict[str, np.ndarray]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    flat = pa.array(z.ravel())
    starts = np.arange(len(z) + 1) * z.shape[1]
    if how == "wide":
        held = {f"e{i}": z[:, i] for i in range(z.shape[1])}
    elif how == "fixed":
        held = {"embedding": pa.FixedSizeListArray.from_arrays(flat, z.shape[1])}
    elif how == "large":
        held = {"any": pa.LargeListArray.from_arrays(pa.array(starts), flat)}
    else:
        lists = pa.ListArray.from_arrays(pa.array(starts, pa.int32()), flat)
        held = {"embeddings": lists}
    pq.write_table(pa.table({**columns, **held}), path, row_group_size=300)


KINDS = [
    "npy",
    "npz",
    "npz-deflated",
    "safetensors",
    "parquet-list",
    "parquet-large",
    "parquet-fixed",
    "parquet-wide",
]
