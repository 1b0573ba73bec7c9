"""Whether training waits for images that worker processes decode from files.

    python benchmarks/streaming.py --device cuda --sides 128 224 --nets resnet18 resnet50

Trains on a folder of JPEG files that is too large for memory: workers decode, and the augmentation
runs on the device. `waited` is the share of an epoch in which the device had no images to work on;
`resident` the same network on as large images that lie on the device, which is the limit. After an
evaluation, at 1, 2, 4, 8, ... epochs, workers begin anew: `after an evaluation` is what the
epoch then waits in all.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from normscope.data import folders
from normscope.nets import NETS
from steady import Epoch, random_images, steady_epoch
from tables import HERE, Table, installed

DISTINCT = 500  # pictures; the other files are links to them
CLASSES = 2
SIDES = (32, 64, 128, 224)  # that a folder is trained at


def picture_folder(folder: Path, n: int, side: int) -> str:
    """The name of a dataset of n JPEG files, an eighth larger than the side."""
    size = side * 9 // 8
    random = np.random.default_rng(0)
    pictures = _pictures(random, size)
    first: list[Path] = []
    for kind, count in (("train", n), ("test", 64)):
        for i in range(count):
            place = folder / str(side) / kind / str(i % CLASSES) / f"{i}.jpg"
            place.parent.mkdir(parents=True, exist_ok=True)
            if len(first) < DISTINCT:
                next(pictures).save(place, quality=90)
                first.append(place)
            else:
                os.link(first[i % DISTINCT], place)
    return f"folder:{folder / str(side)}"


def _pictures(random: np.random.Generator, size: int) -> Iterator[Image.Image]:
    """Blotches with some grain: as many bytes as a photograph."""
    while True:
        coarse = Image.fromarray(random.integers(256, size=(12, 12, 3), dtype=np.uint8))
        smooth = np.asarray(coarse.resize((size, size), Image.Resampling.BICUBIC), np.float32)
        grain = random.normal(0, 8, (size, size, 1))
        yield Image.fromarray((smooth + grain).clip(0, 255).astype(np.uint8))


def measure(net: str, side: int, args: argparse.Namespace) -> dict[str, Epoch]:
    """A steady epoch from files, and one from memory."""
    values: dict[str, Any] = {"device": args.device, "net": net, "batch": args.batch}
    with tempfile.TemporaryDirectory() as folder:
        files = picture_folder(Path(folder), args.images, side)
        most, folders._MOST_BYTES = folders._MOST_BYTES, 0  # none is too small to stay in files
        streamed = steady_epoch(Path(folder), data=files, **values)
        folders._MOST_BYTES = most
    with tempfile.TemporaryDirectory() as folder:
        data = random_images(Path(folder), args.images, side)
        resident = steady_epoch(Path(folder), data=data, **values)
    return {"streamed": streamed, "resident": resident}


def main() -> None:
    """Measure each net at each side, and tell."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--nets", nargs="+", choices=list(NETS), default=["resnet18"])
    parser.add_argument("--sides", nargs="+", type=int, choices=SIDES, default=[128, 224])
    parser.add_argument("--images", type=int, default=4096)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--name", help="of the JSON file; streaming-DEVICE unless given")
    parser.add_argument("--folder", type=Path, default=HERE, help="where README.md is made")
    args = parser.parse_args()
    if args.batch < 2:
        parser.error(f"--batch must be at least 2, got {args.batch}.")
    if args.images < args.batch:
        parser.error(f"--images must be at least the batch of {args.batch}, got {args.images}.")
    if args.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device must be cpu, got 'cuda': there is no CUDA device here.")
    rows, measured = [], {}
    for net in args.nets:
        for side in args.sides:
            print(f"{net}, {side} pixels", file=sys.stderr)
            found = measured[f"{net} {side}"] = measure(net, side, args)
            streamed, resident = found["streamed"], found["resident"]
            rows.append(
                [
                    net,
                    str(side),
                    f"{args.images / streamed.seconds:,.0f}",
                    f"{args.images / resident.seconds:,.0f}",
                    f"{streamed.seconds / resident.seconds:.2f}",
                    f"{streamed.waited / streamed.seconds:.1%}",
                    f"{1000 * streamed.resumed:.0f} ms",
                ]
            )
    table = Table(
        title=f"Training from files, {args.images:,} JPEGs, batch {args.batch}, {args.device}",
        columns=[
            "net",
            "pixels",
            "images/s",
            "resident, images/s",
            "time / resident",
            "waited",
            "after an evaluation",
        ],
        rows=rows,
        notes=["A worker for each core, at most 16."],
        measured={name: {k: e._asdict() for k, e in v.items()} for name, v in measured.items()},
        versions=installed("torch", "pillow"),
    )
    table.save(args.name or f"streaming-{args.device}", args.folder)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit("stopped; nothing was stored") from None
