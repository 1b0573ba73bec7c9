"""Cosine similarity as a surface, in 3-D and from above (Figure "cos_sim_surface").

Cosine similarity with respect to the direction of the blue line. Circles of radius .5, 1 and 2
show that at larger norms the surface is less steep.

    normscope reproduce cos_sim_surface

The paper's claim: the surface is less steep at higher norms. A second or two.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from matplotlib.figure import Figure

from normscope.report import BLUE, GREEN, HEAT, ORANGE, PINK, new_figure
from normscope_paper.harness import Claim, Results, Scale, rounded

TITLE = "Cosine similarity as a surface"
PLACE = "Figure 7"
KIND = "simulation"
COST = "2 s"
SEEDS: dict[Scale, int] = {"smoke": 1, "small": 1, "paper": 1}

RADII = (0.5, 1.0, 2.0)


def run(scale: Scale, seed: int, seeds: int) -> Results:
    """The steepest slope on each circle; the surface itself is a formula."""
    angle = torch.linspace(0, 2 * math.pi, 361, dtype=torch.float64)
    circle = torch.stack([angle.cos(), angle.sin()], 1)
    t = torch.tensor([[1.0, 0.0]], dtype=torch.float64).expand_as(circle)
    steepest = []
    for radius in RADII:
        z = (radius * circle).requires_grad_()
        (slope,) = torch.autograd.grad(torch.cosine_similarity(z, t, eps=0).sum(), z)
        steepest.append(slope.norm(dim=1).max().item())
    return Results("cos_sim_surface", scale, seeds, seed, {"steepest": rounded(steepest, 12)})


def check(results: Results) -> list[Claim]:
    """Steepness falls as one over the radius."""
    products = [r * s for r, s in zip(RADII, results.data["steepest"], strict=True)]
    return [
        Claim.exact(
            "For higher norms the cosine similarity is less steep: its steepest slope on a circle "
            "times the radius is one (largest error)",
            max(abs(product - 1) for product in products),
            (0.0, 1e-9),
            paper="0",
            recipe="autograd, float64",
        )
    ]


def plot(results: Results) -> Figure:
    """The surface and its plan, with the three circles."""
    figure = new_figure(9.5, 4.3)
    radius, angle = np.meshgrid(np.linspace(0.03, 2.5, 60), np.linspace(0, 2 * np.pi, 181))
    x, y, height = radius * np.cos(angle), radius * np.sin(angle), np.cos(angle)
    solid = figure.add_subplot(1, 2, 1, projection="3d")
    solid.plot_surface(x, y, height, cmap=HEAT, alpha=0.85, linewidth=0, antialiased=True)
    plan = figure.add_subplot(1, 2, 2)
    mesh = plan.pcolormesh(x, y, height, cmap=HEAT, shading="gouraud", rasterized=True)
    turn = np.linspace(0, 2 * np.pi, 200)
    steepest = results.data["steepest"]
    for r, slope, color in zip(RADII, steepest, (ORANGE, PINK, GREEN), strict=True):
        label = f"radius {r:g}: slope {slope:.2g}"
        ring = r * np.cos(turn), r * np.sin(turn)
        solid.plot(*ring, np.cos(turn) + 0.02, color=color, linewidth=2)
        plan.plot(r * np.cos(turn), r * np.sin(turn), color=color, linewidth=2, label=label)
    solid.plot([0, 2.7], [0, 0], [1, 1], color=BLUE, linewidth=3)
    plan.plot([0, 2.7], [0, 0], color=BLUE, linewidth=3)
    solid.set(xlabel="$z_1$", ylabel="$z_2$", zlabel="cosine", zticks=[-1, 0, 1])
    solid.set_title("Surface")
    solid.set_box_aspect((1, 1, 0.6), zoom=1.1)  # pyright: ignore[reportArgumentType]
    solid.view_init(elev=52, azim=-72)
    plan.set(aspect="equal", xlabel="$z_1$", ylabel="$z_2$", title="From above")
    plan.grid(False)
    plan.legend(loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=3, columnspacing=1.0)
    figure.colorbar(mesh, ax=plan, label="cosine with the blue direction")
    return figure
