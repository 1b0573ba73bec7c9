"""Original and learned latents in 3-D (Figures "orig_latents" and "learned_latents").

Left: eight latent classes in 3-D; dashed lines go from the origin to the mean of the points shown.
Right: the learned latent space, not normalised, after 50 epochs of supervised InfoNCE, in the same
colours.

    normscope reproduce latents --scale paper

The paper's claim has no number: after normalisation the network can reconstruct the latent
classes.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from matplotlib.figure import Figure

from normscope.report import new_figure
from normscope_paper.harness import Claim, Results, Scale, rounded
from normscope_paper.simulation import RECIPES, train_latent_classes

TITLE = "Original and learned latents in 3-D"
PLACE = "Figure 8"
KIND = "simulation"
COST = "2 s"
SEEDS: dict[Scale, int] = {"smoke": 3, "small": 5, "paper": 10}

CLASSES = 8
_SHOWN = 60  # points a class in the figure
# Eight hues that stay apart for the colour-blind: Okabe and Ito's, and black.
_COLORS = (
    "#000000", "#e69f00", "#56b4e9", "#009e73", "#f0e442", "#0072b2", "#d55e00", "#cc79a7",
)  # fmt: skip


def run(scale: Scale, seed: int, seeds: int) -> Results:
    """Eight classes in three dimensions, as the notebook has them."""
    points, epochs = (4000, 50) if scale == "paper" else (800, 10)
    recipe = replace(RECIPES["as_coded"], dim=3, classes=CLASSES, points=points, epochs=epochs)
    done = train_latent_classes(recipe, seeds=range(seed, seed + seeds))
    states = {
        "original": done.data.latents,
        "trained": done.embeddings,
        "untrained": done.untrained,
    }
    accuracy = {
        state: [_nearest_mean_accuracy(z, y) for z, y in zip(every, done.data.labels, strict=True)]
        for state, every in states.items()
    }
    labels = done.data.labels[0]
    first = [(labels == c).nonzero().squeeze(1)[:_SHOWN] for c in range(CLASSES)]
    data = {
        "accuracy": rounded(accuracy),
        "original": [rounded(done.data.latents[0][index], 4) for index in first],
        "learned": [rounded(done.embeddings[0][index], 4) for index in first],
    }
    return Results("latents", scale, seeds, seed, data)


def _nearest_mean_accuracy(z: torch.Tensor, labels: torch.Tensor) -> float:
    """Share of points whose direction is nearest to the mean direction of their own class."""
    u = torch.nn.functional.normalize(z, dim=1)
    means = torch.stack([u[labels == c].mean(0) for c in range(CLASSES)])
    nearest = (u @ torch.nn.functional.normalize(means, dim=1).T).argmax(1)
    return (nearest == labels).double().mean().item()


def check(results: Results) -> list[Claim]:
    """Do learned directions separate classes as the true latents do, and better than before."""
    accuracy = {state: np.array(values) for state, values in results.data["accuracy"].items()}
    mean = {state: values.mean() for state, values in accuracy.items()}
    return [
        Claim.over_seeds(
            "After normalisation the latent classes are reconstructed: share of points nearest to "
            f"the mean direction of their class ({mean['trained']:.3f}), less that of the true "
            f"latents ({mean['original']:.3f})",
            list(accuracy["trained"] - accuracy["original"]),
            (-0.02, 1.0),
            paper="0",
            recipe="as_coded",
        ),
        Claim.over_seeds(
            "Training does that: gain of that share over the untrained network "
            f"({mean['untrained']:.3f})",
            list(accuracy["trained"] - accuracy["untrained"]),
            (0.0, 1.0),
            paper="> 0",
            recipe="as_coded",
        ),
    ]


def plot(results: Results) -> Figure:
    """The two spaces side by side."""
    figure = new_figure(9, 4.4)
    for column, (key, title) in enumerate(
        (("original", "Latent classes on the sphere"), ("learned", "Learned, not normalised"))
    ):
        axes = figure.add_subplot(1, 2, column + 1, projection="3d")
        for points, color in zip(results.data[key], _COLORS, strict=True):
            cloud = np.array(points)
            axes.scatter(*cloud.T, s=6, color=color, alpha=0.7, linewidths=0)
            mean = cloud.mean(0)
            axes.plot(*zip([0, 0, 0], mean, strict=True), "--", color=color, linewidth=1.3)
        axes.set(xlabel="$z_1$", ylabel="$z_2$", zlabel="$z_3$", title=title)
        axes.set_box_aspect((1, 1, 1))
        axes.locator_params(nbins=4)
        axes.tick_params(labelsize=7)
    return figure
