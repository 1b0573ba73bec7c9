"""Which ingredient of the recipe decides whether the cut helps SimSiam.

The text's recipe and the published code's differ in learning rate, in weight decay for each unit of
learning rate (gradients are summed over eight micro-batches, so that decay counts an eighth), in
warm-up and horizon, in the micro-batch that batch norm sees, in the predictor's own learning rate
(and Nesterov's momentum for all weights) and in how colours are jittered. The text's recipe with
one of them taken from the code at a time, with the first three together (the code's rates), and the
code's own: kNN with the weights divided by 9 beside kNN without, against the highest effective
learning rate of the weights that a batch norm follows, at the ends of epochs 1, 2, 4, ... and the
last; the cut multiplies it by 81 at first. An arrow leads from the mean without to the mean with
it; dots are seeds without, triangles with it, hollow where the arrow is broken.

    normscope reproduce simsiam_recipes --scale small

Not in the paper, whose claim is that the cut helps (Tables accuracies, wd_cut). ResNet-18 on
CIFAR-10, 30 epochs at small scale. Digits have one micro-batch and an augmentation of their own, so
that fewer things differ there, and the code's learning rate is a twelfth of the text's, not two
thirds. A predictor exchanged alone keeps the text's decay for each unit of its higher rate.
"""

from __future__ import annotations

import math
import statistics
from itertools import product
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from normscope.engine import RunSpec
from normscope.evaluation import spearman
from normscope.report import new_figure
from normscope_paper.harness import (
    COLORS,
    NOT_IN_PAPER,
    Cell,
    Claim,
    Printed,
    Results,
    RunTable,
    Scale,
    above,
    datasets_at,
    difference,
    epochs_at,
    highest_rate,
    middle,
    rank_interval,
    rates_and_knns,
    rounded,
    spec_at,
)

TITLE = "Which ingredient decides for SimSiam's cut"
PLACE = "not in the paper"
KIND = "training"
COST = "days on one GPU (18 cells of 100 epochs, three seeds)"
SEEDS: dict[Scale, int] = {"smoke": 2, "small": 2, "paper": 3}
kept = highest_rate
CUT = 9.0
ROWS = {"default": 1.0, "cut 9": CUT}
MORE: dict[str, Printed] = {"rate": {}}


def ingredients(scale: Scale) -> dict[str, dict[str, Any]]:
    """The values that differ from the text's recipe, by the ingredient's name.

    >>> list(ingredients("smoke"))[1:-1]
    ["code's learning rate", "code's schedule", "code's rates", "code's predictor"]
    """
    text, code = (
        spec_at(scale, recipe=recipe, **_shared(scale)) for recipe in ("text", "as_coded")
    )
    assert code.predictor_lr is not None
    # the code sums gradients; with their mean the same step takes `parts` times the learning rate,
    # and the same decay a share of the weight decay
    parts = code.accumulate
    rates = {
        "code's learning rate": {"lr": code.lr * parts},
        "code's weight decay": {"weight_decay": code.weight_decay / parts},
        "code's schedule": {
            "warmup_epochs": float(code.warmup_epochs),
            "horizon_epochs": float(code.horizon_epochs),
            "cosine_start": code.cosine_start,
        },
    }
    swapped = {
        **rates,
        "code's rates": {k: v for values in rates.values() for k, v in values.items()},
        "code's micro-batch": _taken(code, "accumulate"),
        "code's predictor": {"predictor_lr": code.predictor_lr * parts, "nesterov": code.nesterov},
        "code's augmentation": _taken(code, "augmentation"),
    }
    differing = {
        name: values for name, values in swapped.items() if values != _taken(text, *values)
    }
    return {"text": {}, **differing, "as coded": {"recipe": "as_coded"}}


def _shared(scale: Scale) -> dict[str, Any]:
    (data,) = datasets_at(scale, "cifar10")
    return {"method": "simsiam", "data": data, **epochs_at(scale, paper=100)}


def _taken(spec: RunSpec, *names: str) -> dict[str, Any]:
    return {name: getattr(spec, name) for name in names}


def cells(scale: Scale) -> list[Cell]:
    """Every recipe, with and without the cut."""
    found = []
    for name, values in ingredients(scale).items():
        shared = {"recipe": "text", **_shared(scale), **values}
        found += [
            Cell(row, name, {**shared, "cut": cut}, recipe="text") for row, cut in ROWS.items()
        ]
    return found


def check(results: Results) -> list[Claim]:
    """The cut's gain under each recipe, and whether it goes with how slow the default is.

    Recipes of the same rate are one for that, with their mean gain.
    """
    table = RunTable.of(results)
    claims = []
    gained: dict[float, list[float]] = {}  # by the default's rate, to two digits
    for name in table.columns:
        default, cut = (table[row, name, "text"] for row in ROWS)
        reading = name if name in ("text", "as coded") else f"text with the {name}"
        sentence = "Cut 9 is above SimSiam's default (points of kNN)"
        claims.append(above(table, sentence, cut, default, recipe=reading))
        rate = rounded(middle(rates_and_knns(default))[0], digits=2)
        gained.setdefault(rate, []).append(statistics.fmean(difference(table, cut, default)[0]))
    means = [statistics.fmean(points) for points in gained.values()]
    rank = -spearman(np.array(list(gained)), np.array(means))
    claims.append(
        Claim(
            "The lower a recipe's effective learning rate, the more the cut gains (rank "
            "correlation over rates)",
            NOT_IN_PAPER,
            rank,
            rank_interval(rank, len(gained)),
            (0.0, math.inf),
            "all",
        )
    )
    return claims


def plot(results: Results) -> Figure:
    """An arrow for each recipe."""
    table = RunTable.of(results)
    figure = new_figure(6.4, 4.4)
    ax = figure.subplots()
    for name, (line, color) in zip(table.columns, product(("-", "--"), COLORS), strict=False):
        ends = []
        for row, marker in zip(ROWS, ("o", "^"), strict=True):
            points = rates_and_knns(table[row, name, "text"])
            look = {"color": color, "fillstyle": "full" if line == "-" else "none", "alpha": 0.6}
            ax.plot(*zip(*points, strict=True), marker, markersize=3, **look)
            ends.append(middle(points))
        arrow = {"arrowstyle": "->", "color": color, "linestyle": line}
        ax.annotate("", ends[1], ends[0], arrowprops=arrow)
        ax.plot([], [], line, color=color, label=name)
    ax.set_xscale("log")
    ax.set_xlabel("highest effective learning rate, lr / |w|²")
    ax.set_ylabel("kNN, %")
    ax.legend()
    return figure
