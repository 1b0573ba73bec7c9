"""How long an epoch of the real engine takes, once it is compiled and warm."""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import torch

from normscope.engine import RunSpec, train
from normscope.engine.loop import Loop

EPOCHS = 8  # unless told; kNN at 1, 2, 4 and 8, so that 3, 5, 6 and 7 are training alone


class Epoch(NamedTuple):
    """The median epoch."""

    seconds: float
    waited: float  # of these, for images


def random_images(folder: Path, n: int, side: int) -> str:
    """The name of a dataset of n random images, written below a folder."""
    random = np.random.default_rng(0)
    arrays = {}
    for kind, rows in (("train", n), ("test", 64)):
        shape = (rows, 3, side, side)
        arrays[f"{kind}_images"] = random.integers(256, size=shape, dtype=np.uint8)
        arrays[f"{kind}_labels"] = np.arange(rows) % 2
    path = folder / f"{n}.npz"
    np.savez(path, **arrays)  # pyright: ignore[reportArgumentType]
    return f"npz:{path}"


def steady_epoch(folder: Path, *, device: Any, epochs: int = EPOCHS, **values: Any) -> Epoch:
    """A steady epoch of a spec, trained below a folder."""
    ends: list[Epoch] = []  # when each epoch was over, and what had been waited by then
    end_epoch = Loop._end_epoch

    def noted(loop: Loop) -> None:
        end_epoch(loop)
        ends.append(Epoch(time.perf_counter(), loop.progress.waited))

    spec = RunSpec(epochs=epochs, knn_k=1, **values)
    torch.compiler.reset()  # every run compiles its own networks
    with patch.object(Loop, "_end_epoch", noted):
        train(spec, folder=folder / spec.name, device=device, checkpoint_seconds=1e9, quiet=True)
    steady = [e for e in range(3, epochs) if e & (e - 1)]
    return Epoch(
        *(
            statistics.median(ends[e - 1][i] - ends[e - 2][i] for e in steady)
            for i in range(len(Epoch._fields))
        )
    )
