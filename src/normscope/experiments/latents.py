"""Original and learned latents in 3-D (Figures "orig_latents" and "learned_latents").

Left: eight latent classes in 3-D; dashed lines go from the origin to the class means. Right: the
learned latent space, not normalised, after 50 epochs of supervised InfoNCE.

    normscope reproduce latents --scale paper

The paper's claim has no number: after normalisation the network can reconstruct the latent
classes.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from matplotlib.figure import Figure

from normscope.experiments.results import Claim, Results, Scale, mean_interval, rounded
from normscope.report.figures import new_figure
from normscope.simulation import RECIPES, train_latent_classes

TITLE = "Original and learned latents in 3-D"
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
    accuracy = {"trained": [], "untrained": []}
    for state, every in (("trained", done.embeddings), ("untrained", done.untrained)):
        for z, y in zip(every, done.data.labels, strict=True):
            accuracy[state].append(_nearest_mean_accuracy(z, y))
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
    """Do directions tell the classes apart after training, and better than before."""
    accuracy = results.data["accuracy"]
    trained, interval = mean_interval(accuracy["trained"])
    gains = [a - b for a, b in zip(accuracy["trained"], accuracy["untrained"], strict=True)]
    gain, gain_interval = mean_interval(gains)
    return [
        Claim(
            "After normalisation the latent classes are reconstructed: share of points nearest to "
            "the mean direction of their class (chance: .125)",
            "most",
            trained,
            interval,
            (0.5, 1.0),
            "as_coded",
        ),
        Claim(
            "Training does that: gain of that share over the untrained network",
            "> 0",
            gain,
            gain_interval,
            (0.0, 1.0),
            "as_coded",
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
