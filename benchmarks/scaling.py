"""How training, the loss and the neighbours grow with size: exponents fitted to four sizes each.

    python benchmarks/scaling.py --device cpu

The sizes are an eighth, a quarter, a half and all of what is asked for. Images are random and
resident, trained on by the real engine; its epochs are counted once they are steady. The loss's
memory is that of a process of its own.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np
import torch

from info_nce import in_own_process
from normscope.evaluation import knn
from normscope.nets import NETS
from steady import EPOCHS, random_images, steady_epoch
from tables import HERE, Table, installed

SHARES = (8, 4, 2, 1)
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


def training_seconds(folder: Path, n: int, args: argparse.Namespace) -> float:
    """A steady epoch of training on n images; all sizes train for as many steps."""
    epochs = EPOCHS * args.images // n
    data = random_images(folder, n, args.side)
    values = {"data": data, "net": args.net, "batch": args.batch}
    return steady_epoch(folder, device=args.device, epochs=epochs, **values).seconds


def loss_megabytes(pairs: int, args: argparse.Namespace) -> float:
    """Peak memory of InfoNCE, forward and backward, in a fresh process."""
    how = argparse.Namespace(d=128, device=args.device, repeats=1)
    [found] = in_own_process("normscope", [pairs], how)
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
    parser.add_argument("--net", choices=list(NETS), help="that trains")
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
            ("epoch of so many images, s", args.images, partial(training_seconds, Path(folder))),
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
            "median epoch of runs of equally many steps, without what fills no batch. Loss: "
            f"d = 128. Neighbours: {args.queries:,} queries, d = {args.d}, k = 200; the best of "
            "five.",
        ],
        measured=measured,
        versions=installed("torch"),
    ).save(args.name or f"scaling-{args.device}", args.folder)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit("stopped; nothing was stored") from None
