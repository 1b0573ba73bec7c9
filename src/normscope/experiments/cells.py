"""Tables of training runs: what is trained for a cell, and what is kept of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any

from normscope._checks import invalid
from normscope.experiments.ledger import Run
from normscope.experiments.results import Results, Scale, rounded
from normscope.experiments.runs import spec_at, train_free, trained
from normscope.methods import Recipe

Record = dict[str, Any]  # what is kept of a run

# What Section 6 compares, by method: the values of a spec.
INTERVENTIONS: dict[str, dict[str, dict[str, Any]]] = {
    "simclr": {"default": {}, "cut 3": {"cut": 3.0}, "GradScale": {"grad_scale": 1.0}},
    "simsiam": {"default": {}, "cut 9": {"cut": 9.0}},
}
WORDS = {
    "knn": "kNN",
    "knn_top5": "kNN within five",
    "early_knn": "early kNN",
    "probe": "linear probe",
    "epoch_1": "pairs beyond 90° in epoch 1",
    "epoch_16": "pairs beyond 90° in epoch 16",
    "cosine": "mean cosine of two images' embeddings in epoch 1",
    "norm": "embedding norm",
    "rate": "highest effective learning rate",
    "rank": "effective rank of the embeddings",
}
NO_SHARES = ("norm", "rate", "rank", "cosine")  # all else is told in per cent
NAMES = {
    "simclr": "SimCLR",
    "simsiam": "SimSiam",
    "byol": "BYOL",
    "moco_v2": "MoCo v2",
    "moco_v3": "MoCo v3",
    "dino": "DINO",
}


@dataclass(frozen=True)
class Cell:
    """One cell of a table.

    Args:
        row: what is compared, such as "SimCLR, cut 3".
        column: on what, such as "CIFAR-10".
        values: of the spec that is trained for it, but for scale and seed.
        paper: what the paper prints there; None where it prints nothing.
        recipe: which reading of the paper.
    """

    row: str
    column: str
    values: Mapping[str, Any]
    paper: float | None = None
    recipe: Recipe = "text"


def columns_at(scale: Scale, columns: Mapping[str, str], smoke: str = "digits") -> dict[str, str]:
    """The datasets of a table by the name of their column; at smoke scale digits alone."""
    return {smoke: smoke} if scale == "smoke" else dict(columns)


def intervention_cells(
    columns: Mapping[str, str],
    printed: Mapping[str, Mapping[str, float]],
    *,
    recipe: Recipe = "text",
    **values: Any,
) -> list[Cell]:
    """Default, cut and GradScale of SimCLR and SimSiam on each column.

    GradScale is the text's alone: the code's warms up for 100 epochs, longer than short runs last.

    Args:
        columns: datasets by the name of their column.
        printed: the paper's cells, row -> column -> per cent.
        recipe: which reading.
        values: of every spec.
    """
    return [
        Cell(
            row := f"{NAMES[method]}, {name}",
            column,
            {"method": method, "data": data, "recipe": recipe, **given, **values},
            printed.get(row, {}).get(column),
            recipe,
        )
        for column, data in columns.items()
        for method, interventions in INTERVENTIONS.items()
        for name, given in interventions.items()
        if recipe == "text" or "grad_scale" not in given
    ]


def train_cells(
    experiment: str,
    scale: Scale,
    seed: int,
    seeds: int,
    cells: Sequence[Cell],
    kept: Callable[[Run], Record] | None = None,
    key: str = "knn",
    weights: bool = False,
) -> Results:
    """Train what every cell asks for; all cells with the first seed, then with the next.

    Args:
        experiment: its ID.
        scale: of the runs.
        seed: the first.
        seeds: how many.
        cells: what to train.
        kept: what is kept of a run beside `course`.
        key: which of the things kept is the table's, a share.
        weights: whether `kept` needs the networks'.

    Raises:
        ValueError: if runs on a dataset saw different images.
    """
    runs: list[list[Record]] = [[] for _ in cells]
    images: dict[str, str] = {}  # the checksum of each dataset
    specs = [
        [spec_at(scale, **{"seed": s, **cell.values}) for cell in cells]
        for s in range(seed, seed + seeds)
    ]
    train_free(chain(*specs), weights=weights)
    for of_seed in specs:
        for spec, every in zip(of_seed, runs, strict=True):
            run = trained(spec, weights=weights)
            if images.setdefault(spec.data, run.made["data_checksum"]) != run.made["data_checksum"]:
                advice = (
                    f"{spec.name} has others than those before it. Remove what is old from the "
                    "file of runs, or its folder."
                )
                raise invalid(
                    "runs", f"of the same images of {spec.data}", "some of others", advice
                )
            every.append({"run": spec.name, **course(run), **(kept(run) if kept else {})})
    data = [{**asdict(c), "runs": rounded(every)} for c, every in zip(cells, runs, strict=True)]
    return Results(experiment, scale, seeds, seed, {"key": key, "cells": data})


def course(run: Run) -> Record:
    """The kNN and norm of a run at its end and, as lists, after 1, 2, 4, ... epochs.

    A network that broke has no kNN: it counts as 0.
    """
    epochs = run.metrics("epoch")
    return {
        "knn": _finite(run.knn),
        "norm": None if math.isnan(run.norm) else run.norm,
        "epochs": [r["epoch"] for r in epochs],
        "knns": [_finite(r["knn"]) for r in epochs],
        "norms": [r["norm_test"] for r in epochs],
    }


def highest_rate(run: Run) -> Record:
    """The highest effective learning rate, `rate`, at the ends of the epochs that are kept.

    That is the learning rate over a weight's squared norm, the median over the weights that a batch
    norm follows, and times what multiplies their gradients, as SGD would feel it: micro-batches
    whose gradients are summed, and the mean norm under GradScale. None if nothing tells.
    """
    spec = run.spec
    summed = spec.accumulate if spec.accumulation == "sum" else 1
    power = 0.0 if spec.grad_scale_of == "share" else spec.grad_scale
    rates = [
        summed * point["lr_over_weight_squared"] * point["norm_mean"] ** power
        for point in run.metrics("step")
        if None not in (point.get("lr_over_weight_squared"), point["norm_mean"])
    ]
    return {"rate": max(rates, default=None)}


def rate_and_rank(run: Run) -> Record:
    """How fast the weights turned, and the rank that the embeddings ended with."""
    ranks = [point.get("rank") for point in run.metrics("step")]
    return highest_rate(run) | {"rank": ranks[-1] if ranks else None}


def log_ratio(a: float | None, b: float | None) -> float:
    """Of two norms; 0, no difference, where a network broke."""
    return math.log(a / b) if a and b else 0.0


def _finite(value: float | None) -> float:
    return 0.0 if value is None or math.isnan(value) else value


def cells_of(results: Results) -> dict[tuple[str, str, str], dict[str, Any]]:
    """The cells of stored results by row, column and recipe."""
    return {(c["row"], c["column"], c["recipe"]): c for c in results.data["cells"]}


def per_cent(cell: Mapping[str, Any], key: str) -> list[float]:
    """A share that is kept of every seed's run, in per cent."""
    return [100 * run[key] for run in cell["runs"]]


def broken(cell: Mapping[str, Any]) -> int:
    """How many of a cell's networks broke."""
    return sum(run["norm"] is None for run in cell["runs"])
