"""How long an epoch of the real engine takes, once it is compiled and warm."""

from __future__ import annotations

import statistics
import time
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import torch

from normscope.engine import RunSpec, train
from normscope.engine.loop import Loop

EPOCHS = 12  # unless told; kNN after 1, 2, 4, 8 and 12, so that 6, 7, 10 and 11 are steady


class Epoch(NamedTuple):
    """The median epoch of those that neither end with an evaluation nor follow one.

    Attributes:
        seconds: it takes.
        waited: of these, for images.
        resumed: seconds waited for images in the median epoch that follows an evaluation.
    """

    seconds: float
    waited: float
    resumed: float


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
    ends: list[tuple[float, float]] = []  # when each was over, and what had been waited by then
    end_epoch = Loop._end_epoch

    def noted(loop: Loop, **options: bool) -> None:
        end_epoch(loop, **options)
        ends.append((time.perf_counter(), loop.progress.waited))

    spec = RunSpec(epochs=epochs, knn_k=1, **values)
    torch.compiler.reset()  # every run compiles its own networks
    with patch.object(Loop, "_end_epoch", noted):
        train(spec, folder=folder / spec.name, device=device, checkpoint_seconds=1e9, quiet=True)
    seconds, waits = ([b - a for a, b in pairwise(course)] for course in zip(*ends, strict=True))
    # of epochs 2, 3, ...; those of 1, 2, 4, ... are evaluated
    alone = [e for e in range(3, epochs) if e & (e - 1)]
    steady = [e - 2 for e in alone if (e - 1) & (e - 2)]
    after = [e - 2 for e in alone if not (e - 1) & (e - 2)]
    return Epoch(
        statistics.median(seconds[i] for i in steady),
        statistics.median(waits[i] for i in steady),
        statistics.median(waits[i] for i in after),
    )
