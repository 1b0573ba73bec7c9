"""Which ingredient of the recipe decides whether the cut helps SimSiam.

The text's recipe and the published code's differ in learning rate, in weight decay for each unit of
learning rate (gradients are summed over eight micro-batches, so that decay counts an eighth), in
warm-up and horizon, in the micro-batch that batch norm sees, and in the predictor's own learning
rate. The text's recipe with one of them taken from the code at a time, and the code's own: kNN with
the weights divided by 9 beside kNN without, against the highest effective learning rate of the
weights that a batch norm follows, which the cut multiplies by 81 at first. An arrow leads from the
mean without to the mean with it; dots are seeds.

    normscope reproduce simsiam_recipes --scale small

Not in the paper, whose claim is that the cut helps (Tables accuracies, wd_cut). ResNet-18 on
CIFAR-10, 30 epochs at small scale.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from normscope.evaluation import spearman
from normscope.experiments.cell_views import COLORS, middle, rates_and_knns
from normscope.experiments.cells import (
    Cell,
    Recipe,
    above,
    cells_of,
    difference,
    fastest,
    train_cells,
)
from normscope.experiments.results import NOT_IN_PAPER, Claim, Results, Scale
from normscope.experiments.runs import epochs_at
from normscope.methods import METHODS
from normscope.report.figures import new_figure

TITLE = "Which ingredient decides on SimSiam's cut (not in the paper)"
KIND = "training"
COST = "days on one GPU (14 cells of 100 epochs, three seeds)"
SEEDS: dict[Scale, int] = {"smoke": 2, "small": 2, "paper": 3}
CUT = 9.0
ROWS = {"default": 1.0, "cut 9": CUT}


def ingredients(scale: Scale) -> dict[str, dict[str, Any]]:
    """The values that differ from the text's recipe, by the ingredient's name."""
    text, code = METHODS["simsiam"].TEXT, METHODS["simsiam"].AS_CODED
    assert code is not None
    assert code.micro_batch is not None
    parts = code.batch // code.micro_batch  # whose gradients the code sums
    swapped = {
        "text": {},
        "code's learning rate": {"lr": code.lr * parts},
        "code's weight decay": {"weight_decay": text.weight_decay / parts},
        "code's schedule": {
            "warmup_epochs": float(code.warmup_epochs),
            "horizon_epochs": float(code.horizon_epochs or 0),
            "cosine_start": code.cosine_start,
        },
        "code's micro-batch": {"accumulate": parts},
        "code's predictor": {"predictor_lr": code.predictor_lr, "nesterov": code.nesterov},
        "as coded": {"recipe": "as_coded"},
    }
    if scale == "smoke":  # digits have batches of their own
        return {name: swapped[name] for name in ("text", "code's weight decay", "as coded")}
    return swapped


def run(scale: Scale, seed: int, seeds: int) -> Results:
    """Train every recipe, with and without the cut."""
    data = "digits" if scale == "smoke" else "cifar10"
    epochs = epochs_at(scale, paper=100)
    cells = []
    for name, values in ingredients(scale).items():
        recipe: Recipe = values.get("recipe", "text")
        shared = {"method": "simsiam", "data": data, "recipe": recipe, **epochs, **values}
        cells += [
            Cell(row, name, {**shared, "cut": cut}, recipe="text") for row, cut in ROWS.items()
        ]
    return train_cells("simsiam_recipes", scale, seed, seeds, cells, kept=fastest)


def check(results: Results) -> list[Claim]:
    """The cut's gain under each recipe, and whether it goes with how slow the default is."""
    cells = cells_of(results)
    claims = []
    slowness: list[list[float]] = []  # of each recipe's default, by seed
    gained: list[list[float]] = []
    for name in dict.fromkeys(column for _, column, _ in cells):
        default, cut = (cells[row, name, "text"] for row in ROWS)
        told = name if name in ("text", "as coded") else f"text with the {name}"
        sentence = "Cut 9 is above SimSiam's default (points of kNN)"
        claims.append(above(results, sentence, cut, default, recipe=told))
        slowness.append([-(run["rate"] or 0.0) for run in default["runs"]])
        gained.append(difference(results, cut, default)[0])
    ranks = [spearman(*pair) for pair in zip(np.array(slowness).T, np.array(gained).T, strict=True)]
    claims.append(
        Claim.over_seeds(
            "The lower a recipe's effective learning rate, the more the cut gains (rank "
            "correlation over recipes)",
            [0.0 if math.isnan(rank) else rank for rank in ranks],
            (0.0, math.inf),
            paper=NOT_IN_PAPER,
            recipe="all",
        )
    )
    return claims


def plot(results: Results) -> Figure:
    """An arrow for each recipe."""
    cells = cells_of(results)
    figure = new_figure(6.4, 4.4)
    ax = figure.subplots()
    for name, color in zip(dict.fromkeys(column for _, column, _ in cells), COLORS, strict=False):
        ends = []
        for row, marker in zip(ROWS, ("o", "^"), strict=True):
            points = rates_and_knns(cells[row, name, "text"])
            ax.plot(*zip(*points, strict=True), marker, color=color, markersize=3, alpha=0.6)
            ends.append(middle(points))
        ax.annotate("", ends[1], ends[0], arrowprops={"arrowstyle": "->", "color": color})
        ax.plot([], [], color=color, label=name)
    ax.set_xscale("log")
    ax.set_xlabel("highest effective learning rate, lr / |w|²")
    ax.set_ylabel("kNN, %")
    ax.legend()
    return figure
