"""Tables of training runs: what stands in a cell, and what two cells say."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any

from normscope._checks import invalid
from normscope.experiments.ledger import Run
from normscope.experiments.results import NOT_IN_PAPER, Claim, Noise, Results, Scale, rounded
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
_ALIKE = 1e-9  # points by which seeds differ through rounding alone
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
                advice = f"{spec.name} has others. Leave out --runs to train it anew."
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
    norm follows, and times the micro-batches whose gradients are summed, as SGD would feel it. None
    if nothing tells.
    """
    summed = run.spec.accumulate if run.spec.accumulation == "sum" else 1
    rates = [point.get("lr_over_weight_squared") for point in run.metrics("step")]
    return {"rate": max((summed * rate for rate in rates if rate is not None), default=None)}


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


def above(
    results: Results,
    sentence: str,
    cell: Mapping[str, Any],
    base: Mapping[str, Any],
    region: tuple[float, float] = (0.0, math.inf),
    *,
    key: str = "knn",
    paper: str = NOT_IN_PAPER,
    recipe: str | None = None,
) -> Claim:
    """A claim on how many points of a share a cell is above another of its method.

    Args:
        results: with both cells.
        sentence: what is claimed.
        cell: what is compared.
        base: with what.
        region: of the points, where the claim is true.
        key: the share.
        paper: what the paper says.
        recipe: the base's unless given.
    """
    points, strays = difference(results, cell, base, key)
    told = base["recipe"] if recipe is None else recipe
    return Claim.over_seeds(sentence, points, region, paper=paper, recipe=told, noise=strays)


def difference(
    results: Results, cell: Mapping[str, Any], base: Mapping[str, Any], key: str = "knn"
) -> tuple[list[float], Noise]:
    """Points of a share between two cells of a method, seed by seed, and how far one strays.

    Two or three seeds say little of that, so it is taken from all the method's cells; from these
    two alone, with the few degrees of freedom that they have, where they stray further, for not all
    cells need be alike. Seeds that are all alike say nothing, and anything is possible.
    """
    points = [a - b for a, b in zip(per_cent(cell, key), per_cent(base, key), strict=True)]
    strays = Noise(statistics.stdev(points), len(points) - 1) if len(points) > 1 else Noise(0.0, 1)
    every = noise(results, base["values"]["method"], key)
    if every is not None:
        strays = max(strays, Noise(math.sqrt(2) * every.deviation, every.freedom))
    return points, strays if strays.deviation > _ALIKE else Noise(math.inf, strays.freedom)


def noise(results: Results, method: str, key: str) -> Noise | None:
    """How far a share, in per cent, strays in a method's cells, all alike; None if nothing tells.

    What is left once each cell has its mean, and each seed of a column and reading its own: two
    cells are compared seed by seed. A cell in which a network broke tells nothing of it.
    """
    blocks: dict[tuple[str, str], list[list[float]]] = {}
    for cell in results.data["cells"]:
        if cell["values"]["method"] == method and not broken(cell):
            values = per_cent(cell, key)
            mean = statistics.fmean(values)
            here = blocks.setdefault((cell["column"], cell["recipe"]), [])
            here.append([value - mean for value in values])
    squares, freedom = 0.0, 0
    for cells in blocks.values():
        for seed in zip(*cells, strict=True):
            mean = statistics.fmean(seed)
            squares += sum((value - mean) ** 2 for value in seed)
        freedom += (len(cells) - 1) * (len(cells[0]) - 1)
    return Noise(math.sqrt(squares / freedom), freedom) if freedom else None


def gains(results: Results, better: str, base: str, key: str | None = None) -> Iterator[Claim]:
    """For each column and recipe that has both rows: whether one is above the other, as printed.

    Where the paper has it below, the claim is that it is below; where it prints nothing, the claim
    is ours.
    """
    cells = cells_of(results)
    told: str = results.data["key"] if key is None else key
    for (row, column, recipe), cell in cells.items():
        other = cells.get((base, column, recipe))
        if row != better or other is None:
            continue
        printed = None
        if cell["paper"] is not None and other["paper"] is not None:
            printed = cell["paper"] - other["paper"]
        below = printed is not None and printed < 0
        yield above(
            results,
            f"{better} is {'below' if below else 'above'} {base} on {column} (points of "
            f"{WORDS[told]})",
            cell,
            other,
            (-math.inf, 0.0) if below else (0.0, math.inf),
            key=told,
            paper=NOT_IN_PAPER if printed is None else f"{printed:+.1f}",
        )


def intervention_claims(results: Results) -> list[Claim]:
    """Each intervention against its method's default."""
    return [
        claim
        for method, interventions in INTERVENTIONS.items()
        for name in list(interventions)[1:]
        for claim in gains(results, f"{NAMES[method]}, {name}", f"{NAMES[method]}, default")
    ]
