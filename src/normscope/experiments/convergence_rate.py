"""The theorem's bound on the gain of one step, as printed and as corrected (Theorem 3.4).

Where the exact gain in cosine of one step of both points exceeds the printed bound, over the
angle and the step g = gamma / rho^2.

    normscope reproduce convergence_rate

The paper's claim: the gain is below 2 g sin^2(phi). It is false for every obtuse angle once the
step is small; with the factor 1 + g max(-cos phi, 0) it holds. Two seconds.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from matplotlib.figure import Figure

from normscope.experiments.results import Claim, Results, Scale, rounded
from normscope.report.figures import BLUE, GREEN, ORANGE, new_figure
from normscope.theory import printed_bound_fails, step_gain, step_gain_bound

TITLE = "Theorem's bound, printed and corrected"
KIND = "simulation"
COST = "2 s"
SEEDS: dict[Scale, int] = {"smoke": 1, "small": 1, "paper": 1}


def run(scale: Scale, seed: int, seeds: int) -> Results:
    """Random cases, and the curves of one step size."""
    n = 100_000 if scale == "smoke" else 1_000_000
    u = torch.rand(2, n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    phi, g = math.pi * u[0], 10 ** (4 * u[1] - 2)  # steps from .01 to 100
    gain = step_gain(phi, 1.0, g)
    excess = {
        kind: gain / step_gain_bound(phi, 1.0, g, kind=kind) - 1 for kind in ("paper", "valid")
    }
    angle = torch.linspace(0, math.pi, 181, dtype=torch.float64)
    data = {
        "cases": n,
        "beyond": {kind: float((e > 1e-9).double().mean()) for kind, e in excess.items()},
        "largest": {kind: float(e.max()) for kind, e in excess.items()},
        "told": float((printed_bound_fails(phi, 1.0, g) == (excess["paper"] >= 0)).double().mean()),
        "angle": rounded(angle),
        "gain": rounded(step_gain(angle, 1.0, 1.0)),
        "paper": rounded(step_gain_bound(angle, 1.0, 1.0, kind="paper")),
        "valid": rounded(step_gain_bound(angle, 1.0, 1.0, kind="valid")),
        "counterexample": float(step_gain(0.75 * math.pi, 1.0, 1.0)),
    }
    return Results("convergence_rate", scale, seeds, seed, data)


def check(results: Results) -> list[Claim]:
    """Does each bound hold, and is the region of failure the one we say."""
    data = results.data
    claims = []
    for kind, recipe in (("paper", "as printed"), ("valid", "corrected")):
        share = data["beyond"][kind]
        claims.append(
            Claim(
                "The gain in cosine of one step is below the bound (share of "
                f"{data['cases']} random cases beyond it; largest quotient of gain and bound "
                f"{1 + data['largest'][kind]:.3g})",
                "0",
                share,
                (share, share),
                (0.0, 0.0),
                recipe,
            )
        )
    claims.append(
        Claim(
            "The printed bound fails just where cos(phi) < 0 and g sin^2(phi) <= -cos(phi) "
            "(share of cases told right)",
            "not in the paper",
            data["told"],
            (data["told"], data["told"]),
            (1 - 1e-5, 1.0),
            "corrected",
        )
    )
    return claims


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
    region.annotate(label, (0.75 * math.pi, 1), (0.9, 0.3), arrowprops={"arrowstyle": "->"})
    region.set(xlim=(0, math.pi), ylim=(1e-2, 1e2), yscale="log", xlabel="angle $\\phi$")
    region.set(ylabel="step $g = \\gamma / \\rho^2$", title="Where the theorem is false")
    region.set_xticks(*ticks)
    region.legend(loc="upper left")
    return figure
