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
from normscope.experiments.cell_views import COLORS, Printed, middle, rates_and_knns
from normscope.experiments.cells import Cell, cells_of, highest_rate, train_cells
from normscope.experiments.comparisons import above, difference
from normscope.experiments.results import NOT_IN_PAPER, Claim, Results, Scale, rounded, t_quantile
from normscope.experiments.runs import datasets_at, epochs_at, spec_at
from normscope.report.figures import new_figure

TITLE = "Which ingredient decides on SimSiam's cut (not in the paper)"
KIND = "training"
COST = "days on one GPU (18 cells of 100 epochs, three seeds)"
SEEDS: dict[Scale, int] = {"smoke": 2, "small": 2, "paper": 3}
CUT = 9.0
ROWS = {"default": 1.0, "cut 9": CUT}
MORE: dict[str, Printed] = {"rate": {}}
_FULL = 1 - 1e-9  # a rank correlation of one, but for an infinite logarithm


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


def run(scale: Scale, seed: int, seeds: int) -> Results:
    """Train every recipe, with and without the cut."""
    cells = []
    for name, values in ingredients(scale).items():
        shared = {"recipe": "text", **_shared(scale), **values}
        cells += [
            Cell(row, name, {**shared, "cut": cut}, recipe="text") for row, cut in ROWS.items()
        ]
    return train_cells("simsiam_recipes", scale, seed, seeds, cells, kept=highest_rate)


def check(results: Results) -> list[Claim]:
    """The cut's gain under each recipe, and whether it goes with how slow the default is.

    Recipes of the same rate are one for that, with their mean gain.
    """
    cells = cells_of(results)
    claims = []
    gained: dict[float, list[float]] = {}  # by the default's rate, to two digits
    for name in dict.fromkeys(column for _, column, _ in cells):
        default, cut = (cells[row, name, "text"] for row in ROWS)
        told = name if name in ("text", "as coded") else f"text with the {name}"
        sentence = "Cut 9 is above SimSiam's default (points of kNN)"
        claims.append(above(results, sentence, cut, default, recipe=told))
        rate = rounded(middle(rates_and_knns(default))[0], digits=2)
        gained.setdefault(rate, []).append(statistics.fmean(difference(results, cut, default)[0]))
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


def rank_interval(rank: float, n: int) -> tuple[float, float]:
    """95 % confidence of a rank correlation of n pairs (Fieller et al., 1957).

    By Student's quantile, for few pairs: of five, only a full order decides, as by permutations, of
    which four have too few.

    >>> print([round(end, 2) for end in rank_interval(0.8, 9)], rank_interval(1.0, 4))
    [0.1, 0.97] (-1.0, 1.0)
    """
    if n <= 4 or math.isnan(rank):
        return -1.0, 1.0
    centre = math.atanh(max(-_FULL, min(_FULL, rank)))
    half = t_quantile(n - 2) * math.sqrt(1.06 / (n - 3))
    return math.tanh(centre - half), math.tanh(centre + half)


def plot(results: Results) -> Figure:
    """An arrow for each recipe."""
    cells = cells_of(results)
    figure = new_figure(6.4, 4.4)
    ax = figure.subplots()
    names = dict.fromkeys(column for _, column, _ in cells)
    for name, (line, color) in zip(names, product(("-", "--"), COLORS), strict=False):
        ends = []
        for row, marker in zip(ROWS, ("o", "^"), strict=True):
            points = rates_and_knns(cells[row, name, "text"])
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
