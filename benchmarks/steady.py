"""How long an epoch of the real engine takes, once it is compiled and warm."""

from __future__ import annotations

import json
import statistics
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from normscope.engine import RunSpec, train

EPOCHS = 8  # kNN at 1, 2, 4 and 8, so that 3, 5, 6 and 7 are training alone


def epoch_seconds(folder: Path, n: int, *, device: Any, side: int, **values: Any) -> float:
    """A steady epoch of training on n random images of a side, by a spec's other values."""
    random = np.random.default_rng(0)
    arrays = {}
    for kind, rows in (("train", n), ("test", 64)):
        shape = (rows, 3, side, side)
        arrays[f"{kind}_images"] = random.integers(256, size=shape, dtype=np.uint8)
        arrays[f"{kind}_labels"] = np.arange(rows) % 2
    path = folder / f"{n}.npz"
    np.savez(path, **arrays)  # pyright: ignore[reportArgumentType]
    spec = RunSpec(data=f"npz:{path}", epochs=EPOCHS, knn_k=1, **values)
    run = folder / str(n)
    times: dict[int, float] = {}
    done = threading.Event()
    watch = threading.Thread(target=note_epochs, args=(run / "metrics.jsonl", times, done))
    watch.start()
    torch.compiler.reset()  # every run compiles its own networks
    try:
        train(spec, folder=run, device=device, checkpoint_seconds=1e9, quiet=True)
    finally:
        done.set()
        watch.join()
    steady = [e for e in range(3, EPOCHS) if e & (e - 1)]
    return statistics.median(times[e] - times[e - 1] for e in steady)


def note_epochs(path: Path, times: dict[int, float], done: threading.Event) -> None:
    """When each epoch's record came into the run's file."""
    read = 0
    while not done.wait(0.002):
        if not path.exists() or path.stat().st_size == read:
            continue
        now = time.perf_counter()
        with path.open("rb") as file:
            file.seek(read)
            lines = file.read().splitlines(keepends=True)
        for line in lines:
            if not line.endswith(b"\n"):  # half-written
                break
            read += len(line)
            record = json.loads(line)
            if record["kind"] == "epoch":
                times[record["epoch"]] = now
