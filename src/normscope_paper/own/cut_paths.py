"""What the cut acts through: which weights must be small for it.

Dividing all weights by c makes the embeddings shorter, and so their gradients larger, which is the
paper's account. It also multiplies the effective learning rate of every weight that a batch norm
follows by c squared: the output does not feel such a weight's size, its direction turns the faster
the smaller it is. Here one is done at a time. The scale-invariant weights are cut, and all else
stays. All else is cut (gains and biases of the batch norms, linear layers before the loss), which
shortens the embeddings about as much as the full cut, and the invariant weights stay. The last
layer is cut until the embeddings are as short as the full cut makes them; the gradients of all
other weights stay as they were, since the layer's smaller weights cancel the embeddings' gain, so
that only the last layer learns faster, and by far. The default has its learning rate
raised by c squared, with as much weight decay a step: no cosine feels the size of all weights
together, so that by SGD this is the full cut itself, except for biases of linear layers and for the
batch norms' epsilon beside small variances. GradScale too does two things at once: it raises the
rate of all embeddings by their mean norm, and shifts weight to large ones. One arm raises by the
mean alone, so that the rates begin as GradScale's; one shifts by shares of the mean alone, so that
they are the default's. Above, points of kNN above the default of the same seed: bars are means,
dots seeds, lines intervals. Below, every seed's kNN against its highest effective learning rate,
lr / |w|², of the weights that a batch norm follows, times the mean norm under GradScale.

    normscope reproduce cut_paths --scale small

Not in the paper. ResNet-18 on CIFAR-10, 30 epochs at small scale. GradScale and its mean alone have
the learning rate that the published code comes to: images do not survive the text's for long (see
grad_scale_rates).
"""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

from normscope import data
from normscope.engine import RunSpec, build
from normscope.extend import safe_norm
from normscope.methods import METHODS, Recipe
from normscope.report import BLUE, GREY, new_figure
from normscope_paper.harness import (
    COLORS,
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
    legend_below,
    mean_interval,
    rates_and_knns,
    share,
    spec_at,
)

TITLE = "What a cut acts through"
PLACE = "not in the paper"
KIND = "training"
COST = "days on one GPU (27 cells of 100 epochs, three seeds)"
SEEDS: dict[Scale, int] = {"smoke": 2, "small": 3, "paper": 3}
kept = highest_rate

READINGS: tuple[Recipe, ...] = ("text", "as_coded")
FULL = {"simclr": 3.0, "simsiam": 9.0}
DEFAULT, CUT = "default", "full cut"
WEIGHTS, REST = "cut of the invariant weights", "cut of all else"
EMBEDDINGS, RAISED = "cut of the last layer", "learning rate x c²"
SCALED, BY_MEAN, BY_SHARE = "GradScale", "GradScale, the mean alone", "GradScale, shares alone"
MORE: dict[str, Printed] = {"rate": {}}
LEVEL = 3.0  # points within which two arms count as level; three seeds of SimSiam resolve no less
HALF = 0.5  # the share of the cut's effect from which on a path counts as its carrier
# What `last_cut` finds at small scale, so that the table can be recomputed without its images.
LAST_CUTS: dict[tuple[str, Recipe], float] = {
    ("simclr", "text"): 10.2,
    ("simclr", "as_coded"): 5.92,
    ("simsiam", "text"): 70.2,
    ("simsiam", "as_coded"): 70.2,
}
_SAMPLE = 256  # images by which a fresh network's norm is taken


def cells(scale: Scale) -> list[Cell]:
    """Every arm of both methods, by both readings."""
    epochs = epochs_at(scale, paper=100)
    (dataset,) = datasets_at(scale, "cifar10")
    found = []
    for method, recipe in product(FULL, READINGS):
        values = {"method": method, "data": dataset, "recipe": recipe, **epochs}
        small = scale == "small"
        cut = LAST_CUTS[method, recipe] if small else last_cut(scale, method, values)
        arms = arms_at(scale, method, values, last_cut=cut)
        found += [
            Cell(row, METHODS[method].TITLE, {**values, **arm}, recipe=recipe)
            for row, arm in arms.items()
        ]
    return found


def last_cut(scale: Scale, method: str, values: dict[str, Any]) -> float:
    """The cut of the last layer that shortens a fresh network's embeddings as the full cut does."""
    c = FULL[method]
    norm, shorter = (initial_norm(spec_at(scale, **values, cut=cut)) for cut in (1.0, c))
    return _short(norm / shorter)


def arms_at(
    scale: Scale, method: str, values: dict[str, Any], *, last_cut: float
) -> dict[str, dict[str, Any]]:
    """By the name of each arm, what its spec has beside `values`."""
    c, default = FULL[method], spec_at(scale, **values)
    raised: dict[str, Any] = {
        "lr": _short(default.lr * c**2),
        "weight_decay": _short(default.weight_decay / c**2),
    }
    if default.predictor_lr is not None:
        raised["predictor_lr"] = _short(default.predictor_lr * c**2)
    arms = {
        DEFAULT: {},
        CUT: {"cut": c},
        WEIGHTS: {"cut": c, "cut_scope": "invariant"},
        REST: {"cut": c, "cut_scope": "rest"},
        EMBEDDINGS: {"cut": last_cut, "cut_scope": "last"},
        RAISED: raised,
    }
    if method == "simclr" and values["recipe"] == "text":  # where the paper has GradScale
        code = METHODS[method].AS_CODED
        assert code is not None
        arms |= {
            SCALED: {"grad_scale": 1.0, "lr": code.grad_scale_lr},
            BY_MEAN: {"grad_scale": 1.0, "grad_scale_of": "mean", "lr": code.grad_scale_lr},
            BY_SHARE: {"grad_scale": 1.0, "grad_scale_of": "share"},
        }
    return arms


@torch.no_grad()
def initial_norm(spec: RunSpec) -> float:
    """The mean embedding norm of a fresh network in training, over some of its images."""
    images = data.load(spec.data)
    method = build(spec, side=images.side).train()
    x = torch.from_numpy(np.asarray(images.train.images)[:_SAMPLE]).float() / 255
    z = list(method.layers(x).values())[-1]
    return float(safe_norm(z).mean())


def _short(value: float) -> float:
    """To three digits, so that a value computed on another machine names the same run."""
    return float(f"{value:.3g}")


def check(results: Results) -> list[Claim]:
    """How many points each path carries, and which share of the full cut's."""
    table = RunTable.of(results)
    claims = []
    for column, recipe in table.readings:
        arms = {c.row: c for c in table.cells if (c.column, c.recipe) == (column, recipe)}
        claimed = [(row, DEFAULT, "above", (0.0, math.inf)) for row in arms if row != DEFAULT]
        claimed.append((RAISED, CUT, "level with", (-LEVEL, LEVEL)))
        if SCALED in arms:
            claimed.append((SCALED, BY_MEAN, "above", (0.0, math.inf)))
        claims += [
            above(
                table,
                f"{column}: {row} is {how} {base} (points of kNN)",
                arms[row],
                arms[base],
                region,
            )
            for row, base, how, region in claimed
        ]
        claims += [
            share(
                table,
                f"{column}: {row} carries half of the full cut's effect or more (share)",
                arms[row],
                arms[CUT],
                arms[DEFAULT],
                (HALF, math.inf),
            )
            for row in (WEIGHTS, REST, EMBEDDINGS)
        ]
    return claims


def plot(results: Results) -> Figure:
    """For each method and reading a bar for each path, and kNN against effective rates."""
    table = RunTable.of(results)
    panels = table.readings
    rows = [row for row in table.rows if row != DEFAULT]
    figure = new_figure(2.2 + 2.9 * len(panels), 7.0)
    axes, lower = figure.subplots(2, len(panels), sharey="row", squeeze=False)
    for ax, below, (column, recipe) in zip(axes, lower, panels, strict=True):
        for row, (marker, color) in zip((DEFAULT, *rows), product("o^", COLORS), strict=False):
            if cell := table.get(row, column, recipe):
                points = rates_and_knns(cell)
                below.plot(*zip(*points, strict=True), marker, color=color, label=row)
        below.sharex(lower[0])
        below.set_xscale("log")
        below.set_xlabel("highest effective learning rate")
        base = table[DEFAULT, column, recipe]
        everything = []
        for i, row in enumerate(rows):
            cell = table.get(row, column, recipe)
            if cell is None:
                continue
            values, spread = difference(table, cell, base)
            mean, interval = mean_interval(values, spread)
            ax.barh(i, mean, color=BLUE, alpha=0.7)
            interval = [end for end in interval if math.isfinite(end)]
            ax.plot(interval, [i] * len(interval), color=GREY)
            ax.plot(values, [i] * len(values), "o", color="black", markersize=3)
            everything += [*values, *interval]
        ax.set_xlim(1.05 * min(-1.0, *everything), 1.05 * max(1.0, *everything))
        ax.set_title(f"{column}, {recipe.replace('_', ' ')}")
        ax.set_xlabel("kNN above the default, points")
    axes[0].set_yticks(range(len(rows)), rows)
    axes[0].invert_yaxis()
    lower[0].set_ylabel("kNN, %")
    legend_below(figure, list(lower), across=5)
    return figure
