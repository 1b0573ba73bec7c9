"""Embedding norm by class frequency (Figure 2, right).

The latent classes of the density figure with sample probabilities of about 1/2, 1/4, 1/8 and
1/16. Over training, the mean norms of frequent classes grow to higher values.

    normscope reproduce class_imbalance --scale paper

The paper's claim has no number; its figure averages 5 runs over 50 epochs. Readings: `as_coded`
(noise of standard deviation 1), `text` (variance .1), and the text with the code's noise. At the
text's own noise classes differ far more from run to run, for reasons other than frequency, and an
effect of the size seen with the code's could not be distinguished from none.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from matplotlib.figure import Figure

from normscope.report import BLUE, GREEN, ORANGE, PINK, new_figure
from normscope_paper.figures.density import scaled
from normscope_paper.harness import (
    NOT_IN_PAPER,
    Claim,
    Results,
    Scale,
    rounded,
    share_interval,
    t_quantile,
)
from normscope_paper.simulation import RECIPES, train_latent_classes

TITLE = "Norm by class frequency"
PLACE = "Figure 2, right"
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
        rises = norms - norms[:, :1]
        histories[name] = {
            "norm": rounded(norms.mean(0)),  # epochs classes
            "growth": rounded(rises.mean(0)),
            "growth_error": rounded(rises.std(0, ddof=1) / len(norms) ** 0.5),
        }
        ends[name] = {"first": rounded(norms[:, 0]), "last": rounded(norms[:, -1])}
    return Results("class_imbalance", scale, seeds, seed, {"histories": histories, "ends": ends})


def check(results: Results) -> list[Claim]:
    """Frequent against rare, the trend over all classes, and their strict order."""
    claims = []
    for recipe, ends in results.data["ends"].items():
        first, last = np.array(ends["first"]), np.array(ends["last"])  # seeds classes
        for what, values in (("norm", last), ("growth of the norm", last - first)):
            claims.append(
                Claim.over_seeds(
                    f"The most frequent class has the larger {what}: difference to the rarest",
                    list(values[:, 0] - values[:, -1]),
                    (0.0, math.inf),
                    paper="> 0",
                    recipe=recipe,
                )
            )
            # classes halve in frequency from one to the next: 3, 2, 1, 0 doublings over the rarest
            claims.append(
                Claim.over_seeds(
                    f"The {what} rises with frequency: its trend per doubling of the frequency",
                    list(np.polyfit([3, 2, 1, 0], values.T, 1)[0]),
                    (0.0, math.inf),
                    paper="> 0",
                    recipe=recipe,
                )
            )
            claims.append(
                Claim.jointly(
                    f"All four classes are strictly ordered by frequency in their mean {what}: "
                    "smallest of the three differences between neighbours",
                    (values[:, :-1] - values[:, 1:]).T.tolist(),
                    (0.0, math.inf),
                    paper="> 0",
                    recipe=recipe,
                    worst="smallest",
                )
            )
        ordered = int(np.all(np.diff(last, axis=1) < 0, axis=1).sum())
        value, interval = share_interval(ordered, len(last))
        sentence = "A single run shows it: share of runs whose four norms are strictly ordered"
        claims.append(Claim(sentence, NOT_IN_PAPER, value, interval, (0.5, 1.0), recipe))
    return claims


def plot(results: Results) -> Figure:
    """Mean norms over the epochs, and their growth with its 95 % interval."""
    figure = new_figure(9.6, 8.8)
    grid = figure.subplots(3, 2, sharex=True)
    looks = list(zip(SHARES, (BLUE, ORANGE, GREEN, PINK), ("-", "--", "-.", ":"), strict=True))
    for row, (recipe, history) in zip(grid, results.data["histories"].items(), strict=True):
        norm, growth = np.array(history["norm"]), np.array(history["growth"])
        half = t_quantile(results.seeds - 1) * np.array(history["growth_error"])
        epochs = range(len(norm))
        for index, (share, color, line) in enumerate(looks):
            row[0].plot(epochs, norm[:, index], line, color=color, label=share)
            row[1].plot(epochs, growth[:, index], line, color=color, label=share)
            low, high = growth[:, index] - half[:, index], growth[:, index] + half[:, index]
            row[1].fill_between(epochs, low, high, color=color, alpha=0.12, linewidth=0)
        reading = recipe.replace("_", " ")
        row[0].set(ylabel="mean embedding norm", title=f"{reading}: norm")
        row[1].set(ylabel="growth since the start", title=f"{reading}: growth, 95 % bands")
    for axes in grid[-1]:
        axes.set_xlabel("epoch")
    grid[0][0].legend(title="class probability", loc="lower right")
    figure.suptitle(f"Mean over {results.seeds} seeds", fontsize=10)
    return figure
