"""Images a second through SimCLR's two views, beside the ways others make them.

    python benchmarks/augment.py --device cpu

Each way crops, mirrors, jitters the colours, takes them away and, above 32 pixels, blurs, with
SimCLR's numbers, and gives two float views of a resident batch of uint8 images. The ways take
turns, round after round, in one process; compiling is not counted.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from normscope.augment import PRESETS, Augmentation
from tables import HERE, Table, installed

Views = Callable[[Tensor], Tensor]


def ours(size: int, device: str) -> Views:
    """`normscope.augment`, image by image its own parameters."""
    return two_views(PRESETS["simclr"](size), device)


def compiled(size: int, device: str) -> Views:
    """The same, compiled; what is drawn at random is not."""
    augment = PRESETS["simclr"](size)
    return two_views(augment, device, torch.compile(augment.__call__, fullgraph=True))


def two_views(augment: Augmentation, device: str, view: Callable | None = None) -> Views:
    """Both views of a batch, 2n c s s."""
    generator = torch.Generator(device).manual_seed(0)

    def views(images: Tensor) -> Tensor:
        n, _, height, width = images.shape
        drawn = [
            augment.draw(n, height=height, width=width, generator=generator, view=which)
            for which in range(2)
        ]
        return torch.cat([(view or augment)(images, parameters) for parameters in drawn])

    return views


def kornia(size: int, device: str) -> Views:
    """Kornia's modules on the batch: own parameters, one order of the jitter for all."""
    import kornia.augmentation as k  # pyright: ignore[reportMissingImports]

    a = PRESETS["simclr"](size)
    parts = [
        k.RandomResizedCrop((size, size), scale=a.crop_scale, cropping_mode="resample"),
        k.RandomHorizontalFlip(p=a.flip),
        k.ColorJitter(a.brightness, a.contrast, a.saturation, a.hue, p=a.jitter),
        k.RandomGrayscale(p=a.grayscale),
    ]
    if a.blur[0]:
        parts.append(k.RandomGaussianBlur(kernel(size), a.blur_sigma, p=a.blur[0]))
    module = torch.nn.Sequential(*parts).to(device)

    def views(images: Tensor) -> Tensor:
        x = images.float() / 255
        return torch.cat([module(x), module(x)])

    return views


def kernel(size: int) -> tuple[int, int]:
    """The side of the blur's kernel, as ours has it."""
    side = 2 * max(1, size // 20) + 1
    return side, side


def torchvision_batched(size: int, device: str) -> Views:  # noqa: ARG001  # it follows its input
    """Torchvision's v2 on the batch: one draw of parameters for all images."""
    transform = torchvision_v2(size)
    return lambda images: torch.cat([transform(images), transform(images)])


def torchvision_per_image(size: int, device: str) -> Views:
    """Torchvision's v2 on one image after another, as a data loader's worker does."""
    if device != "cpu":
        raise ValueError("one image at a time is for a CPU")
    transform = torchvision_v2(size)
    return lambda images: torch.stack([transform(x) for _ in range(2) for x in images])


def torchvision_v2(size: int) -> Callable[[Tensor], Tensor]:
    """SimCLR's augmentation in torchvision's v2."""
    from torchvision.transforms import v2  # pyright: ignore[reportMissingImports]

    a = PRESETS["simclr"](size)
    jitter = v2.ColorJitter(a.brightness, a.contrast, a.saturation, a.hue)
    parts = [
        v2.RandomResizedCrop(size, scale=a.crop_scale, antialias=True),
        v2.RandomHorizontalFlip(a.flip),
        v2.RandomApply([jitter], a.jitter),
        v2.RandomGrayscale(a.grayscale),
        v2.ToDtype(torch.float32, scale=True),
    ]
    if a.blur[0]:
        blur = v2.GaussianBlur(kernel(size), a.blur_sigma)
        parts.append(v2.RandomApply([blur], a.blur[0]))
    return v2.Compose(parts)


WAYS: dict[str, Callable[[int, str], Views]] = {
    "normscope": ours,
    "normscope, compiled": compiled,
    "kornia": kornia,
    "torchvision, batched": torchvision_batched,
    "torchvision, per image": torchvision_per_image,
}


def measure(size: int, args: argparse.Namespace) -> tuple[dict[str, float], dict[str, str]]:
    """Median images a second of each way at one size, and why some were skipped."""
    generator = torch.Generator().manual_seed(0)
    shape = (args.batch, 3, size, size)
    images = torch.randint(256, shape, dtype=torch.uint8, generator=generator).to(args.device)
    ways: dict[str, Views] = {}
    skipped = {}
    for way in args.ways:
        print(f"{size} pixels, starting {way}", file=sys.stderr)
        try:
            views = WAYS[way](size, args.device)
            views(images)  # compiles, and loads what the first call loads
            out = views(images)
            if out.shape != (2 * args.batch, *shape[1:]) or out.dtype != torch.float32:
                raise ValueError(f"it gives {tuple(out.shape)}, {out.dtype}")
            ways[way] = views
        except Exception as error:  # a peer may break in any way it likes
            skipped[way] = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(args.rounds):
        for way, views in ways.items():
            seconds[way].append(timed(lambda views=views: views(images), args.device, args.repeats))
    return {way: args.batch / statistics.median(s) for way, s in seconds.items()}, skipped


def timed(work: Callable[[], object], device: str, repeats: int) -> float:
    """Seconds of one call, the mean of some that follow each other."""
    start = time.perf_counter()
    for _ in range(repeats):
        work()
    if device == "cuda":
        torch.cuda.synchronize()
    return (time.perf_counter() - start) / repeats


def main() -> None:
    """Measure each way at each size, and tell."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", type=int, nargs="+", default=[32, 128], metavar="PIXELS")
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--repeats", type=int, help="calls in a round; 2, or 20 on a GPU")
    parser.add_argument("--ways", nargs="+", choices=list(WAYS), default=list(WAYS), metavar="WAY")
    parser.add_argument("--name", help="of the JSON file; augment-DEVICE unless given")
    parser.add_argument("--folder", type=Path, default=HERE, help="where README.md is made")
    args = parser.parse_args()
    if args.repeats is None:
        args.repeats = 20 if args.device == "cuda" else 2
    if min(args.sizes) < 2:
        parser.error(f"--sizes must be at least 2, got {args.sizes}.")
    for name in ("batch", "rounds", "repeats"):
        if getattr(args, name) < 1:
            parser.error(f"--{name} must be at least 1, got {getattr(args, name)}.")
    if args.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device must be cpu, got 'cuda': there is no CUDA device here.")

    rows, measured, skipped = [], {}, {}
    for size in args.sizes:
        torch.compiler.reset()  # one graph for each size
        speeds, skipped[size] = measure(size, args)
        if not speeds:
            raise SystemExit(f"nothing could be measured: {skipped}")
        measured[str(size)] = speeds
        first = next(iter(speeds.values()))
        for way, speed in speeds.items():
            each = 1e3 * args.batch / speed
            rows.append([str(size), way, f"{speed:.0f}", f"{each:.2f}", f"{speed / first:.2f}"])
    reasons = {(way, why): None for found in skipped.values() for way, why in found.items()}
    Table(
        title=f"Two views by SimCLR's augmentation, batches of {args.batch}, {args.device}",
        columns=["pixels", "way", "images/s", "time a batch, ms", "speed / first"],
        rows=rows,
        notes=[
            *(f"Skipped: {way} ({why})." for way, why in reasons),
            "An image counts once, with both its views. Ours and torchvision's per image draw "
            "everything for each image; kornia all but the order of the jitter; torchvision's "
            "batched draws once for all images, which no training wants.",
            f"Rounds: {args.rounds} (the median is shown), each the mean of {args.repeats}.",
        ],
        measured={**measured},
        versions=installed("torch", "kornia", "torchvision"),
    ).save(args.name or f"augment-{args.device}", args.folder)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit("stopped; nothing was stored") from None
