"""Embedding norm against density (Figure 2, middle).

A two-layer network is trained by supervised InfoNCE on four balanced latent classes. Each point's
norm is set against the distance to its 10th nearest neighbour in the learned space, an inverse
density. The untrained network, and the correlation within
classes, stand beside it: without them the headline can't be read.

    normscope reproduce density --scale paper

The paper's claim has no number: embeddings in dense regions tend to have higher norm, because
they receive the most updates. (Its notebook trains on one dataset and plots another.)
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from matplotlib.figure import Figure

from normscope.report import BLUE, GREEN, ORANGE, PINK, new_figure
from normscope_paper.harness import Claim, Results, Scale, mean_interval, rounded
from normscope_paper.simulation import (
    RECIPES,
    LatentRecipe,
    density_correlation,
    neighbour_distance,
    train_latent_classes,
)

TITLE = "Norm against density"
PLACE = "Figure 2, middle"
KIND = "simulation"
COST = "20 s"
SEEDS: dict[Scale, int] = {"smoke": 3, "small": 10, "paper": 40}

_SHOWN = 250  # points a class in the figure


def scaled(recipe: LatentRecipe, scale: Scale) -> LatentRecipe:
    """The recipe itself, or one a CI run can afford."""
    return replace(recipe, points=400, epochs=4) if scale == "smoke" else recipe


def run(scale: Scale, seed: int, seeds: int) -> Results:
    """Both recipes over all seeds; the points of the first seed for the figure."""
    correlations: dict[str, dict[str, list[list[float]]]] = {}
    points: dict[str, list] = {}
    for name, recipe in RECIPES.items():
        done = train_latent_classes(scaled(recipe, scale), seeds=range(seed, seed + seeds))
        labels = done.data.labels
        correlations[name] = {}
        for state, every in (("trained", done.embeddings), ("untrained", done.untrained)):
            found = [density_correlation(z, y) for z, y in zip(every, labels, strict=True)]
            correlations[name][state] = rounded([[c.overall, c.within] for c in found])
        distance, norm = neighbour_distance(done.embeddings[0]), done.embeddings[0].norm(dim=1)
        points[name] = [
            rounded([distance[labels[0] == c][:_SHOWN], norm[labels[0] == c][:_SHOWN]], 4)
            for c in range(recipe.classes)
        ]
    data = {"correlations": correlations, "points": points}
    return Results("density", scale, seeds, seed, data)


def check(results: Results) -> list[Claim]:
    """Is the correlation negative, within classes too, and does training strengthen it."""
    claims = []
    for recipe, states in results.data["correlations"].items():
        trained, untrained = np.array(states["trained"]), np.array(states["untrained"])
        for column, where in ((0, "over all points"), (1, "within classes")):
            before = untrained[:, column].mean()
            claims.append(
                Claim.over_seeds(
                    "Embeddings in dense regions have higher norm: rank correlation of norm and "
                    f"10-NN distance {where} (untrained network: {before:.2f})",
                    list(trained[:, column]),
                    (-1.0, 0.0),
                    paper="< 0",
                    recipe=recipe,
                )
            )
            claims.append(
                Claim.over_seeds(
                    "Training causes it, since dense regions receive the most updates: change of "
                    f"that correlation {where} by training",
                    list(trained[:, column] - untrained[:, column]),
                    (-2.0, 0.0),
                    paper="< 0",
                    recipe=recipe,
                )
            )
    return claims


def plot(results: Results) -> Figure:
    """The points of one network per recipe, and the correlations of all."""
    figure = new_figure(11, 3.7)
    *clouds, bars = figure.subplots(1, 3)
    colors = (BLUE, ORANGE, GREEN, PINK)
    for axes, (recipe, classes) in zip(clouds, results.data["points"].items(), strict=True):
        for index, ((distance, norm), color) in enumerate(zip(classes, colors, strict=True)):
            label = f"class {index + 1}"
            axes.scatter(distance, norm, s=7, alpha=0.6, color=color, linewidths=0, label=label)
        axes.set(xlabel="distance to the 10th neighbour", ylabel="embedding norm")
        axes.set_title(f"Network of seed {results.seed}, {recipe.replace('_', ' ')}")
    clouds[0].legend(markerscale=2.5)
    names, position = [], 0
    for recipe, states in results.data["correlations"].items():
        for column, where in ((0, "all"), (1, "within")):
            for offset, state, color in ((-0.17, "untrained", "#bbbbbb"), (0.17, "trained", BLUE)):
                value, (low, high) = mean_interval([row[column] for row in states[state]])
                error = [[value - low], [high - value]]
                label = state if position == 0 else None
                bars.bar(position + offset, value, 0.32, color=color, yerr=error, label=label)
            names.append(f"{recipe.replace('_', ' ')}\n{where}")
            position += 1
    bars.set_xticks(range(position), names)
    bars.axhline(0, color="black", linewidth=0.8)
    bars.set(ylabel="rank correlation, mean over seeds")
    bars.set_title("Before and after training (95 % intervals)")
    bars.legend()
    return figure
