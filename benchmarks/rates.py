"""`normscope advise` against a grid of learning rates: does it find the best one?

    python benchmarks/rates.py [--methods simclr simsiam byol] [--seeds 0 1 2] [--epochs 20]

Trains digits at rates a factor of two apart, judges each by kNN, and asks `advise` for each seed.
A finished run is kept in benchmarks/results/rates-cpu.json and not trained again.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from pathlib import Path
from typing import Any

import torch

from normscope import RunSpec, data, train
from normscope.engine import advise
from normscope.extend import hardware, versions, whole_file

HERE = Path(__file__).parent
STORED = HERE / "results" / "rates-cpu.json"
# a first seed over the whole range, the others around its best
FACTORS = {"simclr": (1, 2, 4, 8), "simsiam": (4, 8, 16), "byol": (8, 16, 32)}
WIDE = (0.5, 1, 2, 4, 8, 16, 32, 64, 128, 256)


def main() -> None:
    """Fill in what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--methods", nargs="+", default=list(FACTORS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--epochs", type=int, default=20)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    images = data.load("digits")
    stored: dict[str, Any] = json.loads(STORED.read_text()) if STORED.exists() else {}
    runs, advice = stored.setdefault("runs", {}), stored.setdefault("advice", {})
    stored |= {"hardware": hardware(), "versions": versions(), "epochs": asked.epochs}
    for method in asked.methods:
        lr = RunSpec(method=method).lr
        for seed in asked.seeds:
            for factor in WIDE if seed == 0 else FACTORS[method]:
                name = f"{method} {factor:g} {seed}"
                if name not in runs:
                    spec = RunSpec(method=method, epochs=asked.epochs, lr=factor * lr, seed=seed)
                    runs[name] = knn_and_peak(spec, images)
                    save(stored)
            name = f"{method} {seed}"
            if name not in advice:
                spec = RunSpec(method=method, epochs=asked.epochs, seed=seed)
                found = advise(spec, device="cpu", images=images)
                advice[name] = {"factor": found.factor, "line": found.advice}
                save(stored)
    print(table(stored))


def knn_and_peak(spec: RunSpec, images: data.ImageArrays) -> dict[str, float]:
    """A run's accuracy, and the highest angle per step that it had."""
    with tempfile.TemporaryDirectory() as folder:
        result = train(spec, folder=folder, device="cpu", quiet=True, images=images)
        angles = [r["rad_per_step"] for r in result.metrics("step") if r.get("rad_per_step")]
    return {"knn": result.knn, "top_rad_per_step": max(angles)}


def table(stored: dict[str, Any]) -> str:
    """One line a method: the best rate of the grid, and what was advised, in the recipe's rate."""
    lines = ["| method | best of grid | kNN there | peak rad/step there | advised, by seed |"]
    lines.append("|---|---|---|---|---|")
    for method in dict.fromkeys(name.split()[0] for name in stored["advice"]):
        by_factor: dict[float, list[dict[str, float]]] = {}
        for name, run in stored["runs"].items():
            kind, factor, _ = name.split()
            if kind == method:
                by_factor.setdefault(float(factor), []).append(run)
        most = max(len(runs) for runs in by_factor.values())
        whole = {f: runs for f, runs in by_factor.items() if len(runs) == most}
        best = max(whole, key=lambda f: statistics.fmean(run["knn"] for run in whole[f]))
        knn = statistics.fmean(run["knn"] for run in whole[best])
        peak = statistics.fmean(run["top_rad_per_step"] for run in whole[best])
        given = [a["factor"] for name, a in stored["advice"].items() if name.split()[0] == method]
        advised = ", ".join(f"x {f:.3g}" for f in given)
        lines.append(f"| {method} | x {best:g} | {knn:.1%} | {peak:.4f} | {advised} |")
    return "\n".join(lines)


def save(stored: dict[str, Any]) -> None:
    """Write everything, whole or not at all."""
    with whole_file(STORED) as partial:
        partial.write_text(json.dumps(stored, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
