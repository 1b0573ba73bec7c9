"""Gradient field with and without GradScale (Figure "grad_scaling").

Left: the default gradient field of the cosine similarity with respect to the north-pointing line.
Right: the field under GradScale with power 1, whose length no longer depends on the norm.

    normscope reproduce grad_scaling

The paper's claims: power 1 cancels the gradient's dependence on the norm; GradScale is no other
loss, since the field has a potential for power 0 alone. A second or two.
"""

from __future__ import annotations

import math

import torch
from matplotlib.figure import Figure

from normscope.interventions import grad_scale
from normscope.report import BLUE, YELLOW, new_figure
from normscope.theory import grad_scale_work
from normscope_paper.harness import Claim, Results, Scale, rounded

TITLE = "Gradient field with and without GradScale"
PLACE = "Figure 6"
KIND = "simulation"
COST = "1 s"
SEEDS: dict[Scale, int] = {"smoke": 1, "small": 1, "paper": 1}

POWERS = (0.0, 1.0)


def run(scale: Scale, seed: int, seeds: int) -> Results:
    """What reaches the embeddings through the layer itself, and the work along two paths."""
    side = torch.linspace(-2.5, 2.5, 13 if scale == "smoke" else 15, dtype=torch.float64)
    z = torch.cartesian_prod(side, side)
    z = z[z.norm(dim=1) > 0.45]
    t = torch.tensor([[0.0, 1.0]], dtype=torch.float64)

    def field(z: torch.Tensor, power: float) -> torch.Tensor:
        z = z.clone().requires_grad_()
        cosine = torch.cosine_similarity(grad_scale(z, power), t.expand_as(z), eps=0)
        return torch.autograd.grad(cosine.sum(), z)[0]

    norms = torch.tensor([0.01, 100.0], dtype=torch.float64)
    ray = norms[:, None] * torch.tensor([[0.8, 0.6]], dtype=torch.float64)
    lengths = {power: field(ray, power).norm(dim=1) for power in POWERS}
    slopes = {
        f"{power:g}": math.log(float(length[-1] / length[0]))
        / math.log(float(norms[-1] / norms[0]))
        for power, length in lengths.items()
    }
    powers = [-1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0]
    work = [[float(w) for w in grad_scale_work(power)] for power in powers]
    data = {
        "points": rounded(z),
        "fields": {f"{power:g}": rounded(field(z, power)) for power in POWERS},
        "slopes": slopes,
        "powers": powers,
        "work": rounded(work, 12),
    }
    return Results("grad_scaling", scale, seeds, seed, data)


def check(results: Results) -> list[Claim]:
    """The exponents of the gradient in the norm, and the missing potential."""
    data = results.data
    claims = [
        Claim.exact(
            f"With power {power} the gradient's length goes as the norm to the {expected:g} "
            "(error of the exponent between norms .01 and 100)",
            data["slopes"][power] - expected,
            (-1e-9, 1e-9),
            paper="0",
            recipe="listing",
        )
        for power, expected in (("0", -1.0), ("1", 0.0))
    ]
    works = zip(data["powers"], data["work"], strict=True)
    gaps = {power: abs(outside - inside) for power, (outside, inside) in works}
    return [
        *claims,
        Claim.exact(
            "The scaled field has no potential for any other power than 0 (least difference of "
            "the work along two paths with the same ends, powers -1 to 2)",
            min(gap for power, gap in gaps.items() if power != 0),
            (1e-6, math.inf),
            paper="> 0",
            recipe="path integrals",
        ),
        Claim.exact(
            "For power 0 it has one (difference of the work)",
            gaps[0.0],
            (0.0, 1e-9),
            paper="0",
            recipe="path integrals",
        ),
    ]


def plot(results: Results) -> Figure:
    """The two fields side by side, at one scale."""
    figure = new_figure(8.4, 4.2)
    points = results.data["points"]
    x, y = zip(*points, strict=True)
    for axes, (power, field) in zip(
        figure.subplots(1, 2), results.data["fields"].items(), strict=True
    ):
        u, v = zip(*field, strict=True)
        axes.quiver(x, y, u, v, color=BLUE, angles="xy", scale_units="xy", scale=3.2, width=0.004)
        axes.plot([0, 0], [0, 2.7], color=YELLOW, linewidth=3)
        axes.set(aspect="equal", xlabel="$z_1$", ylabel="$z_2$")
        axes.set(xlim=(-2.9, 2.9), ylim=(-2.9, 2.9))
        axes.set_title("Default ($p = 0$)" if power == "0" else f"GradScale ($p = {power}$)")
    return figure
