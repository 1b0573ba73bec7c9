"""Tables of training runs: what is trained for a cell, and what is kept of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from normscope.extend import invalid, typed
from normscope.methods import METHODS, Recipe
from normscope_paper.harness.ledger import StoredRun
from normscope_paper.harness.results import Results, Scale, finite, rounded
from normscope_paper.harness.sweep import Sweep, spec_at

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
NO_SHARES = ("norm", "rate", "rank", "cosine")  # all others are shown in per cent
Kept = Mapping[str, Any]


@dataclass(frozen=True)
class Cell:
    """One cell of a table.

    Args:
        row: what is compared, such as "SimCLR, cut 3".
        column: on what, such as "CIFAR-10".
        values: of the spec that is trained for it, except scale and seed.
        paper: what the paper prints there; None where it prints nothing.
        recipe: which reading of the paper.
    """

    row: str
    column: str
    values: Mapping[str, Any]
    paper: float | None = None
    recipe: Recipe = "text"


@dataclass(frozen=True)
class TrainedRun:
    """What a table keeps of one seed's run.

    Attributes:
        run: its name.
        knn: at its end, as a share; 0 if the network broke.
        norm: at its end; None if the network broke.
        epochs: those that were evaluated: 1, 2, 4, ... and the last.
        knns: after each of these.
        norms: likewise.
        more: what else the table keeps, by name.
    """

    run: str = ""
    knn: float = 0.0
    norm: float | None = None
    epochs: list[int] = field(default_factory=list)
    knns: list[float] = field(default_factory=list)
    norms: list[float | None] = field(default_factory=list)
    more: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, run: StoredRun, more: Kept) -> TrainedRun:
        """What is kept of a finished run, to five digits."""
        epochs = run.metrics("epoch")
        return cls(
            run.spec.name,
            rounded(finite(run.knn)),
            None if math.isnan(run.norm) else rounded(run.norm),
            [r["epoch"] for r in epochs],
            rounded([finite(r["knn"]) for r in epochs]),
            rounded([r["norm_test"] for r in epochs]),
            rounded(more),
        )

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> TrainedRun:
        """What `to_json` gave."""
        own = {k: v for k, v in stored.items() if k in cls.__dataclass_fields__}
        more = {k: v for k, v in stored.items() if k not in own}
        return typed(cls, own | {"more": more}, "a run")

    def to_json(self) -> dict[str, Any]:
        """As one flat object."""
        own = {k: v for k, v in vars(self).items() if k != "more"}
        return own | self.more

    @property
    def broke(self) -> bool:
        """Whether the network ended as NaN."""
        return self.norm is None

    def __getitem__(self, key: str) -> Any:
        return self.more[key] if key in self.more else getattr(self, key)


@dataclass(frozen=True)
class TrainedCell(Cell):
    """A cell with its runs, one a seed."""

    runs: list[TrainedRun] = field(default_factory=list)

    @property
    def method(self) -> str:
        """The method of its runs."""
        return self.values["method"]

    def per_cent(self, key: str) -> list[float]:
        """A share that is kept of every seed's run, in per cent."""
        return [100 * run[key] for run in self.runs]

    @property
    def broken(self) -> int:
        """How many of its networks broke."""
        return sum(run.broke for run in self.runs)


@dataclass(frozen=True)
class RunTable:
    """The cells of one experiment.

    Attributes:
        key: which of the kept shares is the table's own.
        cells: in order.
    """

    key: str
    cells: list[TrainedCell]

    @classmethod
    def of(cls, results: Results) -> RunTable:
        """The table that stored results hold."""
        cells = []
        for stored in results.data["cells"]:
            runs = [TrainedRun.from_json(run) for run in stored["runs"]]
            cells.append(TrainedCell(**{**stored, "runs": runs}))
        return cls(results.data["key"], cells)

    def to_json(self) -> dict[str, Any]:
        """What `of` reads."""
        cells = [vars(cell) | {"runs": [run.to_json() for run in cell.runs]} for cell in self.cells]
        return {"key": self.key, "cells": cells}

    def __getitem__(self, place: tuple[str, str, str]) -> TrainedCell:
        """The cell of a row, column and recipe."""
        cell = self.get(*place)
        if cell is None:
            raise KeyError(f"there is no cell {place}")
        return cell

    def get(self, row: str, column: str, recipe: str = "text") -> TrainedCell | None:
        """The same, or None where the table has none."""
        place = (row, column, recipe)
        return next((c for c in self.cells if (c.row, c.column, c.recipe) == place), None)

    @property
    def rows(self) -> list[str]:
        """The names of its rows."""
        return list(dict.fromkeys(cell.row for cell in self.cells))

    @property
    def columns(self) -> list[str]:
        """The names of its columns."""
        return list(dict.fromkeys(cell.column for cell in self.cells))

    @property
    def readings(self) -> list[tuple[str, Recipe]]:
        """Columns with their recipes."""
        return list(dict.fromkeys((cell.column, cell.recipe) for cell in self.cells))


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
            row := f"{METHODS[method].TITLE}, {name}",
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
    sweep: Sweep,
    *,
    key: str = "knn",
    kept: Callable[[StoredRun], Kept] | None = None,
    from_evaluation: Callable[[dict[str, Any]], Kept] | None = None,
) -> Results:
    """Train what every cell asks for; all cells with the first seed, then with the next.

    Args:
        experiment: its ID.
        scale: of the runs.
        seed: the first.
        seeds: how many.
        cells: what to train.
        sweep: which trains.
        key: which of the kept numbers is the table's, a share.
        kept: what is kept of a run beside kNN and norm over epochs.
        from_evaluation: what is kept of its evaluation, which needs the network.

    Raises:
        ValueError: if runs on one dataset saw different images.
    """
    specs = [
        spec_at(scale, **{"seed": s, **cell.values})
        for s in range(seed, seed + seeds)
        for cell in cells
    ]
    runs = sweep.runs(specs, weights=from_evaluation is not None)
    _check_images(runs)
    trained = []
    for run in runs:
        more = dict(kept(run)) if kept else {}
        more |= from_evaluation(sweep.evaluation(run.spec)) if from_evaluation else {}
        trained.append(TrainedRun.of(run, more))
    of_cells = [
        TrainedCell(**vars(cell), runs=trained[i :: len(cells)]) for i, cell in enumerate(cells)
    ]
    return Results(experiment, scale, seeds, seed, RunTable(key, of_cells).to_json())


def _check_images(runs: Sequence[StoredRun]) -> None:
    images: dict[str, str] = {}  # the checksum of each dataset
    for run in runs:
        name, checksum = run.spec.data, run.made.data_checksum
        if images.setdefault(name, checksum) != checksum:
            advice = (
                f"{run.spec.name} has others than those before it. Remove what is old from the "
                "file of runs, or its folder."
            )
            raise invalid("runs", f"of the same images of {name}", "some of others", advice)


def highest_rate(run: StoredRun) -> dict[str, float | None]:
    """The highest effective learning rate, `rate`, at the ends of the epochs that are kept.

    That is the learning rate over a weight's squared norm, the median over the weights that a batch
    norm follows, times what multiplies their gradients under SGD: micro-batches whose gradients
    are summed, and the mean norm under GradScale. None if it was not logged.
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


def rate_and_rank(run: StoredRun) -> dict[str, float | None]:
    """The highest effective rate, and the rank that the embeddings ended with."""
    ranks = [point.get("rank") for point in run.metrics("step")]
    return highest_rate(run) | {"rank": ranks[-1] if ranks else None}


def log_ratio(a: float | None, b: float | None) -> float:
    """Of two norms; 0, no difference, where a network broke."""
    return math.log(a / b) if a and b else 0.0
