"""Seconds from a cold start of training to a kNN of 80, 85, 87.9 and 90.6 % on CIFAR-10.

    python benchmarks/speedrun.py --device cuda

    record      not yet run on a GPU
    hardware    -
    seeds       -
    seconds     -

Each seed of each goal is a process of its own with empty compiler caches; it trains the `fast`
recipe (ResNet-18, two views) for the goal's epochs. The clock runs from the call of
`normscope.train`, images on disk, to the end of the first epoch whose kNN (k = 200, whole test set)
is at the goal. Evaluations are taken out of it and stand beside it, compiling stays in: its share
is what the first epoch takes beyond a later one. A seed that misses the goal has no time. Lightly's
time is its loop's seconds an epoch in the same run, times the epochs that its documentation says
for a kNN of about as much, which is the best of all its epochs; its evaluations are not counted.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import torch

import peers
from normscope.data import DATASETS
from normscope.engine import RunSpec, train
from normscope.engine import loop as engine_loop
from tables import HERE, Table, installed


class Goal(NamedTuple):
    """What is to be reached, and how."""

    method: str
    epochs: int  # from a probe of SimCLR (78.9 at 40, 87.2 at 200 epochs); no stored run yet
    peer: tuple[str, int, float] | None  # lightly's method, epochs and published kNN


# by kNN in per cent; the published numbers are those of batch 512
GOALS = {
    80.0: Goal("simclr", 50, None),
    85.0: Goal("simclr", 120, ("simclr", 200, 84.8)),
    87.9: Goal("simclr", 260, ("simclr", 800, 87.9)),
    90.6: Goal("byol", 400, ("byol", 800, 91.0)),
}
COLUMNS = [
    *("goal", "method, epochs", "reached", "seconds", "mean", "of it compiling"),
    *("evaluations beside", "last kNN, %", "lightly", "lightly / ours"),
]
Run = dict[str, Any]


def timed_run(spec: RunSpec, goal: float, device: Any) -> Run:
    """Train once, in this process; when the goal was reached, and what took how long."""
    start, ends, evaluating = time.perf_counter(), [], []
    evaluate, end_epoch = engine_loop.knn_and_norm, engine_loop.Loop._end_epoch

    def evaluated(*args: Any, **options: Any) -> Any:
        began = time.perf_counter()
        found = evaluate(*args, **options)
        evaluating.append(time.perf_counter() - began)
        return found

    def ended(loop: Any, **options: bool) -> None:
        end_epoch(loop, **options)
        at = time.perf_counter() - start - sum(evaluating)
        ends.append((at, loop.progress.seconds, loop.progress.last.get("knn", 0.0)))

    with (
        tempfile.TemporaryDirectory() as folder,
        patch.object(engine_loop, "knn_and_norm", evaluated),
        patch.object(engine_loop.Loop, "_end_epoch", ended),
    ):
        train(spec, folder=Path(folder) / "run", device=device, checkpoint_seconds=1e9, quiet=True)
    trained = [b[1] - a[1] for a, b in pairwise(ends)]
    steady = statistics.median(trained) if trained else 0.0
    reached = [at for at, _, knn in ends if 100 * knn >= goal]
    return {
        "seconds": min(reached, default=None),
        "compile": max(0.0, ends[0][1] - steady) if trained else None,
        "evaluation": sum(evaluating),
        "epoch": steady,
        "knn": 100 * ends[-1][2],
    }


def in_own_process(job: list[Any]) -> Any:
    """What a job found in a fresh process with empty caches, or the last line of its error."""
    with tempfile.TemporaryDirectory() as caches:
        names = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
        done = subprocess.run(
            [sys.executable, __file__, "--job", json.dumps(job)],
            capture_output=True,
            text=True,
            check=False,
            env=os.environ | {name: f"{caches}/{name}" for name in names},
        )
    if done.returncode == 0:
        return json.loads(done.stdout.splitlines()[-1])
    return (done.stderr.strip().splitlines() or ["killed"])[-1][:200]


def work(job: list[Any]) -> Any:
    """A run of ours, or lightly's seconds an epoch."""
    kind, *rest = job
    if kind == "ours":
        values, goal, device = rest
        return timed_run(RunSpec(**values), goal, device)
    method, images, workers = rest
    seconds = peers.lightly(method, "resnet18", images, 512, workers, 4)
    return statistics.median(seconds[1:])  # the first starts the workers


def spec_values(goal: Goal, args: argparse.Namespace, seed: int) -> dict[str, Any]:
    """What a goal is trained with."""
    epochs = args.epochs or goal.epochs
    values = {"method": goal.method, "data": args.data, "recipe": "fast", "seed": seed}
    net = {} if DATASETS[args.data].tiny else {"net": "resnet18"}
    return {**values, **net, "epochs": epochs}


def table(found: dict[float, list[Run]], lightly: dict[str, Any], args: Any) -> Table:
    """A row for each goal."""
    rows = []
    for percent, runs in found.items():
        goal = GOALS[percent]
        reached = [run["seconds"] for run in runs if run["seconds"] is not None]
        per_epoch = lightly.get(goal.peer[0]) if goal.peer else None
        theirs = goal.peer[1] * per_epoch if goal.peer and isinstance(per_epoch, float) else None
        mean = statistics.mean(reached) if len(reached) == len(runs) else None
        rows.append(
            [
                f"{percent:g} %",
                f"{goal.method}, {args.epochs or goal.epochs}",
                f"{len(reached)} of {len(runs)}",
                "-" if not reached else f"{min(reached):.1f} to {max(reached):.1f}",
                "-" if mean is None else f"{mean:.1f}",
                _mean(runs, "compile"),
                _mean(runs, "evaluation"),
                _mean(runs, "knn"),
                "-" if theirs is None else f"{theirs:,.0f}",
                "-" if theirs is None or mean is None else f"{theirs / mean:.1f}",
            ]
        )
    notes = ["Lightly's FastSiam (90.6 % after 200 epochs, batch 128) has no loop here."]
    notes += [f"lightly could not train {m}: {w}" for m, w in lightly.items() if isinstance(w, str)]
    return Table(
        title=f"Seconds to a kNN on {args.data}, {args.device}",
        columns=COLUMNS,
        rows=rows,
        notes=notes,
        measured={"ours": {f"{goal:g}": runs for goal, runs in found.items()}, "lightly": lightly},
        versions=installed("torch", "lightning-fabric", "lightly", "torchvision"),
    )


def _mean(runs: list[Run], key: str) -> str:
    values = [run[key] for run in runs if run[key] is not None]
    return f"{statistics.mean(values):.1f}" if values else "-"


def main() -> None:
    """Run every seed of every goal, and tell."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--data", choices=list(DATASETS), default="cifar10")
    parser.add_argument("--goals", type=float, nargs="+", choices=list(GOALS), default=list(GOALS))
    parser.add_argument("--epochs", type=int, help="of every goal, to rehearse")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=16, help="of lightly's loop")
    parser.add_argument("--name", help="of the JSON file; speedrun-DEVICE unless given")
    parser.add_argument("--folder", type=Path, default=HERE, help="where README.md is made")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.job:
        print(json.dumps(work(json.loads(args.job))))
        return
    for name in ("epochs", "seeds"):
        if getattr(args, name) is not None and getattr(args, name) < 1:
            parser.error(f"--{name} must be at least 1, got {getattr(args, name)}.")
    if args.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device must be cpu, got 'cuda': there is no CUDA device here.")
    lightly: dict[str, Any] = {}
    found: dict[float, list[Run]] = {}
    name = args.name or f"speedrun-{args.device}"
    for percent in args.goals:
        goal, runs = GOALS[percent], []
        if goal.peer and goal.peer[0] not in lightly:
            lightly[goal.peer[0]] = in_own_process(["lightly", goal.peer[0], 50_000, args.workers])
        for seed in range(args.seeds):
            values = spec_values(goal, args, seed)
            run = in_own_process(["ours", values, percent, args.device])
            if isinstance(run, str):
                raise SystemExit(f"{goal.method}, seed {seed}: {run}")
            runs.append(run)
            print(f"{percent:g} %, seed {seed}: {run}", file=sys.stderr)
            found[percent] = runs
            table(found, lightly, args).store(name, args.folder)
    table(found, lightly, args).save(name, args.folder)


if __name__ == "__main__":
    main()
