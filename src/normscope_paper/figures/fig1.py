r"""Gradient field, trajectory and growth (Figure 1).

Left (the paper's middle): gradient field of the cosine similarity with respect to the yellow
direction, and the trajectory of an embedding under gradient descent. Right: an update is
orthogonal to its point, so that the norm must grow, and inversely proportional to the norm. (The
paper's left panel is a drawing with no data.)

    normscope reproduce fig1

The paper's numbers: gradient length $\sin\phi / \|z\|$; a step never shortens. A second or two.
"""

from __future__ import annotations

import math

import torch
from matplotlib.figure import Figure

from normscope.report import BLUE, GREY, ORANGE, YELLOW, new_figure
from normscope.theory import cosine_grad, norm_after_step
from normscope_paper.harness import Claim, Results, Scale, rounded

TITLE = "Gradient field, trajectory and growth"
PLACE = "Figure 1"
KIND = "simulation"
COST = "1 s"
SEEDS: dict[Scale, int] = {"smoke": 1, "small": 1, "paper": 1}


def run(scale: Scale, seed: int, seeds: int) -> Results:
    """The field on a grid, one trajectory, and random checks in many dimensions."""
    side = torch.linspace(-2.5, 2.5, 15, dtype=torch.float64)
    z = torch.cartesian_prod(side, side)
    z = z[z.norm(dim=1) > 0.45]
    t = torch.tensor([[0.0, 1.0]], dtype=torch.float64)
    path = [torch.tensor([[0.75, -0.35]], dtype=torch.float64)]
    for _ in range(14):
        path.append(path[-1] - 0.2 * cosine_grad(path[-1], t))

    n = 10_000 if scale == "smoke" else 200_000
    generator = torch.Generator().manual_seed(seed)
    a, b = torch.randn(2, n, 16, generator=generator, dtype=torch.float64)
    a *= 10 ** (4 * torch.rand(n, 1, generator=generator, dtype=torch.float64) - 2)
    a.requires_grad_()
    cosine = torch.cosine_similarity(a, b, eps=0)
    (grad,) = torch.autograd.grad(-cosine.sum(), a)  # not our formula, which is put to the test
    a, sine = a.detach(), cosine.detach().acos().sin()
    product = grad.norm(dim=1) * a.norm(dim=1) / sine  # 1, says the paper
    after = (a - 0.5 * grad).norm(dim=1)
    predicted = norm_after_step(a.norm(dim=1), grad.norm(dim=1), 0.5)
    data = {
        "field": rounded([z, -cosine_grad(z, t.expand_as(z))]),
        "path": rounded(torch.cat(path)),
        "inverse_law_error": (product - 1).abs().max().item(),
        "least_growth": (after / a.norm(dim=1) - 1).min().item(),
        "growth_error": (after / predicted - 1).abs().max().item(),
        "cases": n,
    }
    return Results("fig1", scale, seeds, seed, data)


def check(results: Results) -> list[Claim]:
    """The inverse law and the growth, on gradients taken by autograd."""
    data, recipe = results.data, "autograd, float64"
    return [
        Claim.exact(
            "The gradient of the cosine similarity has length sin(phi) / |z| (largest relative "
            f"error over {data['cases']} cases in 16 dimensions, norms from .01 to 100)",
            data["inverse_law_error"],
            (0.0, 1e-6),
            paper="0",
            recipe=recipe,
        ),
        Claim.exact(
            "A step of gradient descent never shortens an embedding (least relative growth)",
            data["least_growth"],
            (-1e-12, math.inf),
            paper=">= 0",
            recipe=recipe,
        ),
        Claim.exact(
            "After a step |z'|^2 = |z|^2 + gamma^2 |grad|^2 (largest relative error)",
            data["growth_error"],
            (0.0, 1e-9),
            paper="0",
            recipe=recipe,
        ),
    ]


def plot(results: Results) -> Figure:
    """The field with a trajectory, and one step from three norms."""
    figure = new_figure(9, 4.2)
    left, right = figure.subplots(1, 2)
    (z, down), path = results.data["field"], results.data["path"]
    for axes in (left, right):
        axes.plot([0, 0], [0, 2.6], color=YELLOW, linewidth=3, label="target direction")
        axes.set(aspect="equal", xlabel="$z_1$", ylabel="$z_2$")
    x, y = zip(*z, strict=True)
    u, v = zip(*down, strict=True)
    look = {"angles": "xy", "scale_units": "xy", "scale": 3.2, "width": 0.004}
    left.quiver(x, y, u, v, color=GREY, headwidth=3.5, headlength=4, **look)
    left.plot(*zip(*path, strict=True), "o-", color=BLUE, markersize=4, label="gradient descent")
    left.set(
        xlim=(-2.8, 2.8), ylim=(-2.8, 2.8), title="Descent on the cosine: field and trajectory"
    )
    left.legend(loc="lower left", facecolor="white", frameon=True)
    for norm in (0.6, 1.2, 2.4):
        step = 0.6 / norm
        label = "embedding, with its update" if norm == 0.6 else None
        right.plot([0, norm], [0, 0], color=GREY, linewidth=1)
        right.annotate("", (norm, step), (norm, 0), arrowprops={"arrowstyle": "->", "color": BLUE})
        right.plot([norm], [0], "o", color=BLUE, label=label)
        after = math.hypot(norm, step)
        right.plot([0, norm], [0, step], "--", color=ORANGE, linewidth=1)
        right.text(norm + 0.05, step, f"{norm:g} to {after:.2f}", color=ORANGE, fontsize=9)
    right.set(xlim=(-0.3, 3.2), ylim=(-0.6, 2.8))
    right.set_title("Orthogonal updates lengthen; long points move less")
    right.legend(loc="upper right")
    return figure
