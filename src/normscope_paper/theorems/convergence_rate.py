"""The theorem's bound on the gain of one step, as printed and as corrected (Theorem 3.4).

Where the exact gain in cosine of one step of both points exceeds the printed bound, over the
angle and the step g = gamma / rho^2.

    normscope reproduce convergence_rate

The paper's claim: the gain is below 2 g sin^2(phi). Corrected: times 1 + g max(-cos phi, 0).
"""

from __future__ import annotations

import math

import numpy as np
import torch
from matplotlib.figure import Figure

from normscope.report import BLUE, GREEN, ORANGE, new_figure
from normscope.theory import printed_bound_fails, step_gain, step_gain_bound
from normscope_paper.harness import NOT_IN_PAPER, Claim, Results, Scale, rounded

TITLE = "The bound on one step's gain, printed and corrected"
PLACE = "Theorem 3.4"
KIND = "simulation"
COST = "2 s"
SEEDS: dict[Scale, int] = {"smoke": 1, "small": 1, "paper": 1}


def run(scale: Scale, seed: int, seeds: int) -> Results:
    """Real steps of real pairs on a grid of angles and step sizes, and the curves of one size."""
    fine = 60 if scale == "smoke" else 400
    phi = torch.linspace(0, math.pi, fine + 2, dtype=torch.float64)[1:-1, None]
    g = torch.logspace(-2, 2, fine, dtype=torch.float64)
    phi, g = torch.broadcast_tensors(phi, g)
    gain = _stepped_gain(phi, g)
    bounds = {kind: step_gain_bound(phi, 1.0, g, kind=kind) for kind in ("paper", "valid")}
    rounding = 1e-12
    beyond = {kind: gain > bound * (1 + 1e-9) + rounding for kind, bound in bounds.items()}
    foreseen = printed_bound_fails(phi, 1.0, g) == (gain >= bounds["paper"])
    angle = torch.linspace(0, math.pi, 181, dtype=torch.float64)
    data = {
        "cases": gain.numel(),
        "beyond": {kind: float(b.double().mean()) for kind, b in beyond.items()},
        "largest": {kind: float((gain / b).max()) for kind, b in bounds.items()},
        "formula_error": float((gain - step_gain(phi, 1.0, g)).abs().max()),
        "foreseen": float(foreseen.double().mean()),
        "angle": rounded(angle),
        "gain": rounded(step_gain(angle, 1.0, 1.0)),
        "paper": rounded(step_gain_bound(angle, 1.0, 1.0, kind="paper")),
        "valid": rounded(step_gain_bound(angle, 1.0, 1.0, kind="valid")),
        "counterexample": float(_stepped_gain(torch.tensor([0.75 * math.pi]), torch.ones(1))[0]),
    }
    return Results("convergence_rate", scale, seeds, seed, data)


def _stepped_gain(phi: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
    """The gain in cosine of pairs of unit vectors that take one step along autograd's gradient."""
    phi, g = phi.double(), g.double()[..., None]
    z1 = torch.stack([torch.ones_like(phi), torch.zeros_like(phi)], -1).requires_grad_()
    z2 = torch.stack([phi.cos(), phi.sin()], -1).requires_grad_()
    before = torch.cosine_similarity(z1, z2, dim=-1, eps=0)
    grad1, grad2 = torch.autograd.grad(-before.sum(), (z1, z2))
    after = torch.cosine_similarity(z1 - g * grad1, z2 - g * grad2, dim=-1, eps=0)
    return (after - before).detach()


def check(results: Results) -> list[Claim]:
    """Does each bound hold, and are our formula and our region of failure right."""
    data = results.data
    grid = f"{data['cases']} angles and step sizes from .01 to 100"
    claims = [
        Claim.exact(
            f"The gain in cosine of one step is below the bound (share of {grid} beyond it; "
            f"largest quotient of gain and bound {data['largest'][kind]:.3g})",
            data["beyond"][kind],
            (0.0, 0.0),
            paper="0" if kind == "paper" else NOT_IN_PAPER,
            recipe=recipe,
        )
        for kind, recipe in (("paper", "as printed"), ("valid", "corrected"))
    ]
    return [
        *claims,
        Claim.exact(
            "The gain is 2 g sin^2(phi) (1 - g cos(phi)) / (1 + g^2 sin^2(phi)) (largest error)",
            data["formula_error"],
            (0.0, 1e-9),
            paper=NOT_IN_PAPER,
            recipe="corrected",
        ),
        Claim.exact(
            "The printed bound fails just where cos(phi) < 0 and g sin^2(phi) <= -cos(phi) "
            "(share of cases foreseen)",
            data["foreseen"],
            (0.999, 1.0),
            paper=NOT_IN_PAPER,
            recipe="corrected",
        ),
    ]


def plot(results: Results) -> Figure:
    """The curves at g = 1, and the region of failure."""
    data = results.data
    figure = new_figure(9, 3.8)
    curves, region = figure.subplots(1, 2)
    ticks = ([0, math.pi / 2, math.pi], ["0", "$\\pi/2$", "$\\pi$"])
    curves.plot(data["angle"], data["valid"], "--", color=GREEN, label="corrected bound")
    curves.plot(data["angle"], data["gain"], color=BLUE, label="exact gain")
    curves.plot(data["angle"], data["paper"], "-.", color=ORANGE, label="printed bound")
    beyond = np.array(data["gain"]) > np.array(data["paper"])
    curves.fill_between(
        data["angle"], data["paper"], data["gain"], where=beyond, color=ORANGE, alpha=0.25
    )
    curves.set(xlabel="angle $\\phi$", ylabel="gain in cosine", title="One step with $g = 1$")
    curves.set_xticks(*ticks)
    curves.legend(loc="upper left")
    phi = np.linspace(math.pi / 2, math.pi, 400)[:-1]
    edge = -np.cos(phi) / np.sin(phi) ** 2
    region.fill_between(phi, 1e-2, np.clip(edge, 1e-2, 1e2), color=ORANGE, alpha=0.35)
    region.plot(phi, edge, color=ORANGE, label="$g = -\\cos\\phi\\,/\\sin^2\\phi$")
    region.text(2.35, 0.035, "printed bound fails", ha="center")
    region.text(0.8, 3, "holds", ha="center")
    region.plot([0.75 * math.pi], [1], "o", color=BLUE)
    label = f"gain {data['counterexample']:.3f} > 1"
    region.annotate(label, (0.75 * math.pi, 1), (0.35, 0.12), arrowprops={"arrowstyle": "->"})
    region.set(xlim=(0, math.pi), ylim=(1e-2, 1e2), yscale="log", xlabel="angle $\\phi$")
    region.set(ylabel="step $g = \\gamma / \\rho^2$", title="Where the theorem is false")
    region.set_xticks(*ticks)
    region.legend(loc="upper left")
    return figure
