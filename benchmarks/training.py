"""Seconds of a training epoch, end to end, beside lightly, a plain loop, and the bare network.

    python benchmarks/training.py --device cuda --methods simclr simsiam byol moco_v2 dino

Every way is a process of its own on the same random images of 32 pixels. `network` is PyTorch's
compiled network alone: its forward, backward and optimizer step on random tensors that lie on the
device, recorded as one CUDA graph, with the momentum encoder's forward pass where the method has
one. Less than that is possible only for a network that is faster itself. `normscope` is
`normscope.train`, whole: indexing, augmentation, loss, monitor and log files; epochs with a kNN,
and the first two, which compile, are not counted. `lightly` and `plain`, which is the paper's own
way, augment with Pillow in worker processes on the CPU, as their users do; lightly trains in bf16,
plain in float32 (benchmarks/peers.py; they need `pip install lightly torchvision`).
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

import peers
from normscope.engine import RunSpec
from normscope.engine.compose import build
from normscope.engine.optimizers import optimizer_for
from normscope.nets import NETS
from steady import random_images, steady_epoch
from tables import HERE, Table, installed

WAYS = ("network", "normscope", "lightly", "plain")
METHODS = ("simclr", "simsiam", "byol", "moco_v2", "dino")
PEERS = {"lightly": peers.lightly, "plain": peers.plain}
Found = dict[str, dict[str, float]]  # method -> way -> seconds


def network_epoch(spec: RunSpec, args: argparse.Namespace) -> float:
    """Seconds that PyTorch's network alone takes for an epoch's steps."""
    torch.backends.cudnn.benchmark = True
    torch.set_float32_matmul_precision("high")
    method = build(spec, side=args.side).to(args.device)
    method.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
    optimizer = optimizer_for(method, spec)
    cuda = args.device == "cuda"
    if cuda:
        for group in optimizer.param_groups:
            group["capturable"] = True  # AdamW counts its steps on the device
        for part in method.children():
            part.compile()
    views = torch.rand(2 * args.batch, 3, args.side, args.side, device=args.device)
    views = views.contiguous(memory_format=torch.channels_last)
    seen = views[: args.batch] if spec.method == "moco_v2" else views  # one view each way
    momentum: Any = getattr(method, "momentum_encoder", None)
    prototypes: Any = getattr(method, "prototypes", None)

    def step() -> None:
        with torch.autocast(args.device, torch.bfloat16, enabled=cuda):
            z = list(method.layers(seen).values())[-1]
            z = z if prototypes is None else prototypes(z)
            if momentum is not None:
                with torch.no_grad():
                    momentum(seen)
        z.float().square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    step = recorded(step) if cuda else step
    steps = max(1, args.images // args.batch)
    seconds = []
    for _ in range(args.epochs):
        start = time.perf_counter()
        for _ in range(steps):
            step()
        if cuda:
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def recorded(step: Any) -> Any:
    """The step as one CUDA graph."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(4):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def measure(way: str, method: str, args: argparse.Namespace) -> float:
    """Seconds of an epoch, in this process."""
    if way in PEERS:
        seconds = PEERS[way](
            method, args.net, args.images, args.batch, args.workers, args.epochs + 1
        )
        return statistics.median(seconds[1:])  # the first starts the workers
    if way == "network":
        return network_epoch(spec_of(method, args), args)
    with tempfile.TemporaryDirectory() as folder:
        data = random_images(Path(folder), args.images, args.side)
        values = {"device": args.device, "data": data, **asked(method, args)}
        return steady_epoch(Path(folder), **values).seconds


def asked(method: str, args: argparse.Namespace) -> dict[str, Any]:
    """What the engine is asked for: every method with one batch a step."""
    return {"method": method, "net": args.net, "batch": args.batch, "accumulate": 1}


def spec_of(method: str, args: argparse.Namespace) -> RunSpec:
    """The same as a spec, for any images."""
    return RunSpec(data="cifar10", **asked(method, args))


def in_own_process(way: str, method: str, args: argparse.Namespace) -> float | str:
    """What `measure` found in a fresh process, or why it found nothing."""
    job = json.dumps([way, method, {k: v for k, v in vars(args).items() if k in KEPT}])
    done = subprocess.run(
        [sys.executable, __file__, "--job", job], capture_output=True, text=True, check=False
    )
    if done.returncode == 0:
        return float(done.stdout.splitlines()[-1])
    return (done.stderr.strip().splitlines() or ["killed"])[-1][:200]


KEPT = ("device", "net", "images", "side", "batch", "workers", "epochs")


def main() -> None:
    """Measure each way for each method, and tell."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=["simclr"])
    parser.add_argument("--net", choices=list(NETS), default="resnet18")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--images", type=int, default=50_000)
    parser.add_argument("--side", type=int, default=32)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--workers", type=int, default=16, help="of the peers")
    parser.add_argument("--epochs", type=int, default=3, help="measured ones of each peer")
    parser.add_argument("--name", help="of the JSON file; training-NET-DEVICE unless given")
    parser.add_argument("--folder", type=Path, default=HERE, help="where README.md is made")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.job:
        way, method, values = json.loads(args.job)
        print(measure(way, method, argparse.Namespace(**values)))
        return
    for name in ("images", "side", "batch", "epochs"):
        if getattr(args, name) < 1:
            parser.error(f"--{name} must be at least 1, got {getattr(args, name)}.")
    if args.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device must be cpu, got 'cuda': there is no CUDA device here.")
    found: Found = {}
    missing: list[str] = []
    name = args.name or f"training-{args.net}-{args.device}"
    for method in args.methods:
        found[method] = {}
        for way in args.ways:
            if way == "plain" and method != "simclr":
                continue
            print(f"{method}, {way}", file=sys.stderr)
            seconds = in_own_process(way, method, args)
            if isinstance(seconds, str):
                missing.append(f"{way} could not train {method} here: {seconds}")
            else:
                found[method][way] = seconds
                left = [*missing, "Stopped before the end."]
                table(args, found, left).store(name, args.folder)
    if not any(found.values()):
        raise SystemExit(f"nothing could be measured: {missing}")
    table(args, found, missing).save(name, args.folder)


def table(
    args: argparse.Namespace, found: dict[str, dict[str, float]], missing: list[str]
) -> Table:
    """Seconds an epoch, and ratios to the network and to ours."""
    rows = []
    for method, ways in found.items():
        limit, own = ways.get("network"), ways.get("normscope")
        for way, seconds in ways.items():
            rows.append(
                [
                    method,
                    way,
                    f"{seconds:.3f}",
                    f"{args.images / seconds:,.0f}",
                    f"{seconds / limit:.3f}" if limit else "-",
                    f"{seconds / own:.2f}" if own else "-",
                ]
            )
    columns = ["method", "way", "epoch, s", "images/s", "time / network", "time / normscope"]
    return Table(
        title=f"Training, {args.net}, {args.images:,} images of {args.side} pixels, two views, "
        f"batch {args.batch}, {args.device}",
        columns=columns,
        rows=rows,
        notes=[*missing, f"Peers have {args.workers} workers."],
        measured={**found},
        versions=installed("torch", "torchvision", "lightly", "lightning-fabric"),
    )


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit("stopped; what was measured before is stored") from None
