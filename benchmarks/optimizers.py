"""What an optimizer's step costs, beside the step of the network that it trains.

    python benchmarks/optimizers.py --device cuda

Each optimizer updates SimCLR's network from fixed random gradients; on a GPU its step is
recorded as one CUDA graph, as in a run of ours. The share is of a warm step of `normscope.train`
with SGD. `torch.optim.Muon` takes matrices alone, so both it and `AngularSGD` also update the
same weights as matrices, without gains and biases. Ways take turns, round after round.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from normscope.engine import RunSpec
from normscope.engine.compose import build
from normscope.nets import NETS
from normscope.optim import LARS, AngularSGD
from steady import random_images, steady_epoch
from tables import HERE, Table, installed

Make = Callable[[list[nn.Parameter]], torch.optim.Optimizer]
RATE = 1e-3


def ways(device: str) -> dict[str, tuple[bool, Make]]:
    """By name: whether it takes matrices alone, and how it is made."""
    on_gpu = device == "cuda"
    lr = torch.tensor(RATE, device=device) if on_gpu else RATE
    found: dict[str, tuple[bool, Make]] = {
        "SGD": (False, lambda p: torch.optim.SGD(p, lr=RATE, momentum=0.9, fused=True)),
        "AdamW": (
            False,
            lambda p: torch.optim.AdamW(p, lr=lr, fused=True, capturable=device == "cuda"),
        ),
        "LARS": (False, lambda p: LARS(p, lr=RATE)),
        "AngularSGD": (False, lambda p: AngularSGD(p, lr=lr)),
        "AngularSGD, fused=True": (False, lambda p: AngularSGD(p, lr=lr, fused=True)),
        "AngularSGD, orthogonal=False": (False, lambda p: AngularSGD(p, lr=lr, orthogonal=False)),
        "AngularSGD, matrices": (True, lambda p: AngularSGD(p, lr=lr)),
    }
    if hasattr(torch.optim, "Muon"):
        found["torch.optim.Muon, matrices"] = (True, lambda p: torch.optim.Muon(p, lr=RATE))
    return found


def stepper(make: Make, net: str, device: str, *, matrices: bool) -> Callable[[], object]:
    """One step of an optimizer over fresh weights, recorded on a GPU."""
    method = build(RunSpec(net=net, data="cifar10"), side=32).to(device)
    method.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
    params = list(method.parameters())
    if matrices:
        params = [nn.Parameter(_matrix(p)) for p in params if p.ndim > 1]
    generator = torch.Generator(device).manual_seed(0)
    for p in params:
        p.grad = torch.empty_like(p).normal_(generator=generator)
    optimizer = make(params)
    for _ in range(3):
        optimizer.step()
    if device == "cpu":
        return optimizer.step
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        optimizer.step()

    def replay(_: object = optimizer) -> None:  # a graph does not keep what it works on
        graph.replay()

    return replay


def _matrix(p: Tensor) -> Tensor:
    return p.detach().clone(memory_format=torch.contiguous_format).flatten(1)


def milliseconds(step: Callable[[], object], device: str, steps: int) -> float:
    """Of one step, the mean over some."""
    if device == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(steps):
        step()
    if device == "cuda":
        torch.cuda.synchronize()
    return 1e3 * (time.perf_counter() - start) / steps


def training_step(args: argparse.Namespace, optimizer: str) -> float:
    """Milliseconds of a warm training step."""
    with tempfile.TemporaryDirectory() as folder:
        data = random_images(Path(folder), args.images, args.side)
        values = {"data": data, "net": args.net, "batch": args.batch, "optimizer": optimizer}
        epoch = steady_epoch(Path(folder), device=args.device, **values)
    return 1e3 * epoch.seconds / (args.images // args.batch)


def main() -> None:
    """Measure each way, and tell."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--net", choices=list(NETS), default="resnet18")
    parser.add_argument("--side", type=int, default=32)
    parser.add_argument("--images", type=int, default=50_000, help="of the training step's epoch")
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--folder", type=Path, default=HERE, help="where README.md is made")
    args = parser.parse_args()
    for name in ("batch", "rounds"):
        if getattr(args, name) < 1:
            parser.error(f"--{name} must be at least 1, got {getattr(args, name)}.")
    if args.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device must be cpu, got 'cuda': there is no CUDA device here.")
    torch.set_float32_matmul_precision("high")
    steps = 30 if args.device == "cuda" else 2
    steppers = {
        name: stepper(make, args.net, args.device, matrices=matrices)
        for name, (matrices, make) in ways(args.device).items()
    }
    seen: dict[str, list[float]] = {name: [] for name in steppers}
    for _ in range(args.rounds):
        for name, step in steppers.items():
            seen[name].append(milliseconds(step, args.device, steps))
    own = {name: statistics.median(times) for name, times in seen.items()}
    whole = {kind: training_step(args, kind) for kind in ("sgd", "angular")}
    base = whole["sgd"]
    rows = [[name, f"{ms:.3f}", f"{100 * ms / base:.1f} %"] for name, ms in own.items()]
    rows += [
        [f"whole training step, {kind}", f"{ms:.3f}", f"{100 * ms / base:.1f} %"]
        for kind, ms in whole.items()
    ]
    Table(
        title=f"An optimizer's step, {args.net} with SimCLR's projector, {args.device}",
        columns=["way", "ms", "share of a training step"],
        rows=rows,
        notes=[
            f"The training step is SimCLR's: batch {args.batch}, two views of {args.side} pixels.",
            f"Medians of {args.rounds} rounds of {steps} steps.",
            "Muon orthogonalises in bfloat16 on any device, AngularSGD in float32 on a CPU.",
        ],
        measured={"step_ms": own, "training_step_ms": whole},
        versions=installed("torch"),
    ).save(f"optimizers-{args.device}", args.folder)


if __name__ == "__main__":
    main()
