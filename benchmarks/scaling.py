"""How training, the loss and the neighbours grow with size: exponents fitted to four sizes each.

    python benchmarks/scaling.py --device cpu

The sizes are an eighth, a quarter, a half and all of what is asked for. Images are random and
resident, trained on by the real engine; an epoch's time is that between two of the run's records,
of epochs after the second that no kNN falls into, so that compiling is not counted. The loss's
memory is that of a process of its own.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import tempfile
import threading
import time
from functools import partial
from pathlib import Path

import numpy as np
import torch

from info_nce import in_own_process
from normscope.engine import RunSpec, train
from normscope.evaluation import knn
from tables import HERE, Table, installed

SHARES = (8, 4, 2, 1)
EPOCHS = 8  # kNN at 1, 2, 4 and 8, so that 3, 5, 6 and 7 are training alone
DEFAULTS = {
    "cpu": {"images": 1024, "side": 16, "net": "resnet10_narrow", "batch": 64}
    | {"pairs": 8192, "bank": 40_000, "queries": 1000, "d": 128},
    "cuda": {"images": 50_000, "side": 32, "net": "resnet18", "batch": 512}
    | {"pairs": 16_384, "bank": 50_000, "queries": 10_000, "d": 512},
}
NUMBERS = ("images", "side", "batch", "pairs", "bank", "queries", "d")


def sizes(largest: int) -> list[int]:
    """An eighth, a quarter, a half, and all."""
    return [largest // share for share in SHARES]


def exponent(x: list[int], y: list[float]) -> tuple[float, float]:
    """The b of y = a x^b by least squares on logarithms, and its standard error."""
    log_x, log_y = np.log(x), np.log(y)
    from_mean = log_x - log_x.mean()
    spread = (from_mean**2).sum()
    slope = (from_mean * log_y).sum() / spread
    left = log_y - log_y.mean() - slope * from_mean
    return float(slope), math.sqrt((left**2).sum() / (len(x) - 2) / spread)


def epoch_seconds(folder: Path, n: int, args: argparse.Namespace) -> float:
    """A steady epoch of training on n random images."""
    random = np.random.default_rng(0)
    arrays = {}
    for kind, rows in (("train", n), ("test", 64)):
        shape = (rows, 3, args.side, args.side)
        arrays[f"{kind}_images"] = random.integers(256, size=shape, dtype=np.uint8)
        arrays[f"{kind}_labels"] = np.arange(rows) % 2
    path = folder / f"{n}.npz"
    np.savez(path, **arrays)  # pyright: ignore[reportArgumentType]
    spec = RunSpec(data=f"npz:{path}", net=args.net, epochs=EPOCHS, batch=args.batch, knn_k=1)
    run = folder / str(n)
    times: dict[int, float] = {}
    done = threading.Event()
    watch = threading.Thread(target=note_epochs, args=(run / "metrics.jsonl", times, done))
    watch.start()
    torch.compiler.reset()  # every run compiles its own networks
    try:
        train(spec, folder=run, device=args.device, checkpoint_seconds=1e9, quiet=True)
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


def loss_megabytes(pairs: int, args: argparse.Namespace) -> float:
    """Peak memory of InfoNCE, forward and backward, in a fresh process."""
    found = in_own_process(
        "normscope", pairs, argparse.Namespace(d=128, device=args.device, repeats=1)
    )
    if isinstance(found, str):
        raise SystemExit(f"the loss could not be measured: {found}")
    return found["bytes"] / 1e6


def knn_milliseconds(m: int, args: argparse.Namespace) -> float:
    """The quickest of five searches in a bank of m rows."""
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(m + args.queries, args.d, generator=generator).to(args.device)
    labels = torch.arange(m, device=args.device) % 10
    seconds = []
    for _ in range(5):
        start = time.perf_counter()
        knn(rows[:m], labels, rows[m:], min(200, m)).predictions.cpu()  # waits for a GPU
        seconds.append(time.perf_counter() - start)
    return 1e3 * min(seconds)


def arguments() -> argparse.Namespace:
    """The command line, checked and filled in."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--images", type=int, help="the most to train on")
    parser.add_argument("--side", type=int, help="of the images, in pixels")
    parser.add_argument("--net", help="a name in NETS")
    parser.add_argument("--batch", type=int, help="of the training")
    parser.add_argument("--pairs", type=int, help="the largest batch of the loss")
    parser.add_argument("--bank", type=int, help="the largest bank of the neighbours")
    parser.add_argument("--queries", type=int)
    parser.add_argument("--d", type=int, help="columns of the bank")
    parser.add_argument("--name", help="of the JSON file; scaling-DEVICE unless given")
    parser.add_argument("--folder", type=Path, default=HERE, help="where README.md is made")
    args = parser.parse_args()
    for name, value in DEFAULTS[args.device].items():
        if getattr(args, name) is None:
            setattr(args, name, value)
    for name in NUMBERS:
        least = {"images": 8 * args.batch, "pairs": 2048, "bank": 8, "side": 2}.get(name, 1)
        if getattr(args, name) < least:
            parser.error(f"--{name} must be at least {least}, got {getattr(args, name)}.")
    if args.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device must be cpu, got 'cuda': there is no CUDA device here.")
    return args


def main() -> None:
    """Measure the three, fit, and tell."""
    args = arguments()
    rows, measured = [], {}
    with tempfile.TemporaryDirectory() as folder:
        kinds = (
            ("epoch of so many images, s", args.images, partial(epoch_seconds, Path(folder))),
            ("InfoNCE's memory by batch, MB", args.pairs, loss_megabytes),
            ("kNN's time by bank, ms", args.bank, knn_milliseconds),
        )
        for what, largest, measure in kinds:
            found = []
            for size in sizes(largest):
                print(f"{what}: {size}", file=sys.stderr)
                found.append(measure(size, args))
            b, error = exponent(sizes(largest), found)
            cells = [f"{n}: {value:.3g}" for n, value in zip(sizes(largest), found, strict=True)]
            rows.append([what, *cells, f"{b:.2f} ± {error:.2f}"])
            measured[what] = {
                "sizes": sizes(largest),
                "values": found,
                "exponent": b,
                "standard_error": error,
            }
    Table(
        title=f"Growth with size, {args.device}",
        columns=["what", "an eighth", "a quarter", "a half", "all", "exponent"],
        rows=rows,
        notes=[
            "The exponent b of a x^b, by least squares on logarithms, with its standard error.",
            f"Training: simclr, {args.net}, {args.side} pixels, batches of {args.batch}; the "
            "median of four epochs, which leave out what fills no batch. Loss: d = 128. "
            f"Neighbours: {args.queries:,} queries, d = {args.d}, k = 200; the best of five.",
        ],
        measured=measured,
        versions=installed("torch"),
    ).save(args.name or f"scaling-{args.device}", args.folder)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit("stopped; nothing was stored") from None
