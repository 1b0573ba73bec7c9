"""Embedding norm by class frequency (Figure 2, right).

The latent classes of the density figure with sample probabilities of about 1/2, 1/4, 1/8 and
1/16. Over training, the mean norms of frequent classes grow to higher values.

    normscope reproduce class_imbalance --scale paper

The paper's claim has no number; its figure averages 5 runs over 50 epochs. Readings: `as_coded`
(noise of standard deviation 1), `text` (variance .1), and the text with the code's noise, which
shows that the noise decides: where classes lie well apart, the frequent ones grow no more.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from matplotlib.figure import Figure

from normscope.experiments.density import scaled
from normscope.experiments.results import (
    Claim,
    Results,
    Scale,
    mean_interval,
    rounded,
    share_interval,
)
from normscope.report.figures import BLUE, GREEN, ORANGE, PINK, new_figure
from normscope.simulation import RECIPES, train_latent_classes

TITLE = "Norm by class frequency (Fig. 2 right)"
KIND = "simulation"
COST = "25 s"
SEEDS: dict[Scale, int] = {"smoke": 3, "small": 10, "paper": 40}

_LAST = 49  # the last entry that the paper's figure shows; entry 0 is before training
SHARES = ("~1/2", "~1/4", "~1/8", "~1/16")


def run(scale: Scale, seed: int, seeds: int) -> Results:
    """The history of every seed's class means, in each reading."""
    recipes = {
        "as_coded": replace(RECIPES["as_coded"], weights="geometric", noise=1.0),
        "text": replace(RECIPES["text"], weights="geometric"),
        "text, noise 1": replace(RECIPES["text"], weights="geometric", noise=1.0),
    }
    histories, ends = {}, {}
    for name, recipe in recipes.items():
        every = range(seed, seed + seeds)
        norms = train_latent_classes(scaled(recipe, scale), seeds=every).norms
        norms = norms[:, : _LAST + 1].double().numpy()
        histories[name] = rounded(norms.mean(0))  # epochs classes
        ends[name] = {"first": rounded(norms[:, 0]), "last": rounded(norms[:, -1])}
    return Results("class_imbalance", scale, seeds, seed, {"histories": histories, "ends": ends})


def check(results: Results) -> list[Claim]:
    """Order of the norms and of their growth, of the means over seeds and run by run."""
    claims = []
    for recipe, ends in results.data["ends"].items():
        first, last = np.array(ends["first"]), np.array(ends["last"])  # seeds classes
        growth = last - first
        for what, values in (("norm", last), ("growth of the norm", growth)):
            value, interval = mean_interval(list(values[:, 0] - values[:, -1]))
            claims.append(
                Claim(
                    f"The most frequent class has the larger {what}: mean difference to the rarest",
                    "> 0",
                    value,
                    interval,
                    (0.0, math.inf),
                    recipe,
                )
            )
        # classes halve in frequency from one to the next: 3, 2, 1, 0 doublings over the rarest
        slopes = np.polyfit([3, 2, 1, 0], growth.T, 1)[0]
        value, interval = mean_interval(list(slopes))
        claims.append(
            Claim(
                "The norm grows the more, the more frequent the class: slope of the growth per "
                "doubling of the frequency, over all four classes",
                "> 0",
                value,
                interval,
                (0.0, math.inf),
                recipe,
            )
        )
        steps = [mean_interval(list(last[:, c] - last[:, c + 1])) for c in range(3)]
        value, interval = min(steps, key=lambda step: step[1][0])
        claims.append(
            Claim(
                "All four mean norms are strictly ordered by frequency: weakest of the three "
                "differences between neighbours",
                "> 0",
                value,
                interval,
                (0.0, math.inf),
                recipe,
            )
        )
        ordered = int(np.all(np.diff(last, axis=1) < 0, axis=1).sum())
        value, interval = share_interval(ordered, len(last))
        claims.append(
            Claim(
                "The order shows in a single run: share of runs whose norms are strictly ordered",
                "most",
                value,
                interval,
                (0.5, 1.0),
                recipe,
            )
        )
    return claims


def plot(results: Results) -> Figure:
    """Mean norms over the epochs, and their growth."""
    figure = new_figure(9.6, 8.8)
    grid = figure.subplots(3, 2, sharex=True)
    for row, (recipe, history) in zip(grid, results.data["histories"].items(), strict=True):
        norms = np.array(history)
        for index, (share, color) in enumerate(
            zip(SHARES, (BLUE, ORANGE, GREEN, PINK), strict=True)
        ):
            style = ("-", "--", "-.", ":")[index]
            row[0].plot(norms[:, index], style, color=color, label=share)
            row[1].plot(norms[:, index] - norms[0, index], style, color=color, label=share)
        row[0].set(ylabel="mean embedding norm", title=f"Norm, recipe {recipe.replace('_', ' ')}")
        row[1].set(
            ylabel="growth since the start", title=f"Growth, recipe {recipe.replace('_', ' ')}"
        )
    for axes in grid[-1]:
        axes.set_xlabel("epoch")
    grid[0][1].legend(title="class probability")
    return figure
