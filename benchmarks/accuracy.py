"""What speed costs in accuracy: kNN after a short training, fast and plain, over seeds.

    python benchmarks/accuracy.py --device cuda --data cifar10 --net resnet18 --epochs 20

`fast` is `normscope.train` as it is: on a GPU in bf16, with its own kernels, compiled and recorded.
`plain` is the same spec in float32, one operation after the other, as PyTorch does them.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

from normscope.methods import METHODS
from normscope.nets import NETS
from tables import HERE, Table, installed

WAYS = ("fast", "plain")


def measure(way: str, seed: int, args: argparse.Namespace) -> dict[str, float]:
    """KNN and images a second, in this process."""
    from normscope.engine import RunSpec, train
    from normscope.engine.step import Step

    with ExitStack() as stack, tempfile.TemporaryDirectory() as folder:
        if way == "plain":
            stack.enter_context(patch("normscope.engine.loop.step_for", Step))
            for module in ("nets.layers", "losses.info_nce"):
                name = f"normscope.{module}.has_kernels"
                stack.enter_context(patch(name, lambda _: False))
        spec = RunSpec(
            method=args.method,
            data=args.data,
            net=args.net,
            epochs=args.epochs,
            seed=seed,
            precision="32" if way == "plain" else "auto",
        )
        result = train(spec, folder=Path(folder) / "run", device=args.device, quiet=True)
    return {"knn": result.knn, "images_per_second": result.images_per_second}


def work(way: str, args: argparse.Namespace) -> None:
    """Train each seed that is asked for, until no more are."""
    with suppress(KeyboardInterrupt):  # the one who asks tells
        for seed in sys.stdin:
            print(json.dumps(measure(way, int(seed), args)), flush=True)


def worker(way: str, args: argparse.Namespace) -> subprocess.Popen[str]:
    """A process for all seeds of a way: only in its own can the compiler be left out.

    While the other way trains it is idle, and keeps its memory.
    """
    values = {k: v for k, v in vars(args).items() if k not in ("folder", "name")}
    return subprocess.Popen(
        [sys.executable, __file__, "--job", json.dumps([way, values])],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"TORCHDYNAMO_DISABLE": str(int(way == "plain"))},
    )


def ask(process: subprocess.Popen[str], seed: int) -> dict[str, float]:
    """What it finds with this seed."""
    assert process.stdin is not None
    assert process.stdout is not None
    with suppress(BrokenPipeError):  # it has ended: nothing follows
        os.write(process.stdin.fileno(), f"{seed}\n".encode())
    for line in process.stdout:
        if line.startswith("{"):
            return json.loads(line)
    raise SystemExit(f"a process ended with {process.wait()}; the seeds before are stored")


def table(args: argparse.Namespace, found: dict[str, list[dict[str, float]]]) -> Table:
    """Each way's kNN, and the difference of the seeds' pairs."""
    rows = []
    for way, runs in found.items():
        knn = [100 * run["knn"] for run in runs]
        speed = statistics.mean(run["images_per_second"] for run in runs)
        rows.append([way, *(f"{k:.2f}" for k in knn), spread(knn), f"{speed:,.0f}"])
    pairs = zip(found["fast"], found["plain"], strict=True)
    gaps = [100 * (fast["knn"] - plain["knn"]) for fast, plain in pairs]
    rows.append(["fast - plain", *(f"{gap:+.2f}" for gap in gaps), spread(gaps), "-"])
    seeds = [f"seed {seed}, %" for seed in range(len(gaps))]
    return Table(
        title=f"kNN after {args.epochs} epochs of {args.method} on {args.data}, {args.device}",
        columns=["way", *seeds, "mean and its error", "images/s"],
        rows=rows,
        notes=["Images a second count a way's compiling, too."],
        measured={**found},
        versions=installed("torch", "lightning-fabric"),
    )


def spread(values: list[float]) -> str:
    """Mean and standard error."""
    mean = f"{statistics.mean(values):.2f}"
    if len(values) < 2:
        return mean
    return f"{mean} ± {statistics.stdev(values) / len(values) ** 0.5:.2f}"


def main() -> None:
    """Train both ways and tell."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--method", choices=list(METHODS), default="simclr")
    parser.add_argument("--data", default="digits")
    parser.add_argument("--net", choices=list(NETS), help="the data's own unless given")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--name", help="of the JSON file; accuracy-DEVICE unless given")
    parser.add_argument("--folder", type=Path, default=HERE, help="where README.md is made")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.job:
        way, values = json.loads(args.job)
        work(way, argparse.Namespace(**values))
        return
    for name in ("epochs", "seeds"):
        if getattr(args, name) < 1:
            parser.error(f"--{name} must be at least 1, got {getattr(args, name)}.")
    import torch  # slow, and the workers have it too

    if args.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device must be cpu, got 'cuda': there is no CUDA device here.")
    found: dict[str, Any] = {way: [] for way in WAYS}
    name = args.name or f"accuracy-{args.device}"
    with ExitStack() as stack:
        workers = {way: stack.enter_context(worker(way, args)) for way in WAYS}
        for process in workers.values():
            stack.callback(process.kill)  # it is idle, or nobody wants what it does
        for seed in range(args.seeds):
            for way, process in workers.items():
                found[way].append(ask(process, seed))
                print(f"{way}, seed {seed}: kNN {found[way][-1]['knn']:.2%}", file=sys.stderr)
            table(args, found).store(name, args.folder)
    table(args, found).save(name, args.folder)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit("stopped; the seeds before are stored") from None
