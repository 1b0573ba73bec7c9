"""Steps to convergence over the norm and the angle (Figure 2, left).

500 pairs in R^20 move along the gradient of their cosine similarity, learning rate 10, until the
mean cosine passes .999: steps over the initial norm, over the angle to which orthogonal pairs were
turned, and over both.

    normscope reproduce convergence_sim --scale paper

The paper's numbers: quadratic in the norm, while the angle matters only near pi; the notebook
prints 6, 24, 54, 96, 385, 869, 1547,
2416, 3463, 4737, 6156, 7822, 9662 steps at norms .25, .5, .75, 1, 2, ..., 10 (one unseeded draw).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
from matplotlib.figure import Figure

from normscope.report import BLUE, HEAT, ORANGE, new_figure
from normscope_paper.harness import Claim, Results, Scale, rounded
from normscope_paper.simulation import converge_pairs

TITLE = "Steps to convergence over norm and angle"
PLACE = "Figure 2, left"
KIND = "simulation"
COST = "8 s"
SEEDS: dict[Scale, int] = {"smoke": 3, "small": 10, "paper": 20}

PUBLISHED = {
    0.25: 6, 0.5: 24, 0.75: 54, 1: 96, 2: 385, 3: 869, 4: 1547, 5: 2416, 6: 3463, 7: 4737,
    8: 6156, 9: 7822, 10: 9662,
}  # fmt: skip
LARGEST: dict[Scale, float] = {"smoke": 3, "small": 6, "paper": 10}
# angle factors that turn orthogonal pairs to these angles
TURNS = {"pi/4": 0.5, "pi/2": 0.0, "3pi/4": -0.5, "3.1": -0.96}


def run(scale: Scale, seed: int, seeds: int) -> Results:
    """Both readings at random angles, some angles at norm 1, and the whole grid for one seed."""
    norms = [norm for norm in PUBLISHED if norm <= LARGEST[scale]]
    every = range(seed, seed + seeds)
    both = converge_pairs(norms, [0.0], seeds=every)
    one = converge_pairs(norms, [0.0], moves="one", seeds=every)
    turned = converge_pairs([1.0], list(TURNS.values()), seeds=every)
    alphas = np.linspace(-0.96, 0.96, 25 if scale == "paper" else 9)
    grid = converge_pairs(norms, alphas.tolist(), seeds=[seed])
    data = {
        "norms": norms,
        "steps": {"as_coded": both.steps[:, :, 0].tolist(), "text": one.steps[:, :, 0].tolist()},
        "turned": dict(zip(TURNS, turned.steps[:, 0].T.tolist(), strict=True)),
        "angles": rounded(np.arctan2(1 - np.abs(alphas), alphas)),
        "grid": grid.steps[0].tolist(),
    }
    return Results("convergence_sim", scale, seeds, seed, data)


def exponent(norms: Sequence[float], steps: Sequence[float]) -> float:
    """The slope of log steps over log norm, for norms of at least 1 where steps are many."""
    use = [i for i, norm in enumerate(norms) if norm >= 1]
    x, y = np.log([norms[i] for i in use]), np.log([steps[i] for i in use])
    return float(np.polyfit(x, y, 1)[0])


def check(results: Results) -> list[Claim]:
    """Quadratic in the norm, by both readings; the published steps; the part of the angle."""
    data = results.data
    norms = data["norms"]
    claims = [
        Claim.over_seeds(
            "Steps to convergence grow with the square of the norm (fitted exponent, norms from 1)",
            [exponent(norms, run) for run in steps],
            (1.99, 2.01),
            paper="2",
            recipe=recipe,
        )
        for recipe, steps in data["steps"].items()
    ]
    coded = np.array(data["steps"]["as_coded"])
    deviations = coded / [PUBLISHED[norm] for norm in norms] - 1  # seeds norms
    sides: dict[Literal["largest", "smallest"], tuple[float, float]] = {
        "largest": (-1.0, 0.01),
        "smallest": (-0.01, 1.0),
    }
    for worst, region in sides.items():
        claims.append(
            Claim.jointly(
                f"The notebook's steps at random angles ({worst} relative deviation of ours, over "
                "all norms)",
                deviations.T.tolist(),
                region,
                paper="6 ... 9662 steps",
                recipe="as_coded",
                worst=worst,
            )
        )
    turned = {angle: np.array(steps) for angle, steps in data["turned"].items()}
    for ahead, back in (("pi/2", "pi/4"), ("3pi/4", "pi/2")):
        claims.append(
            Claim.over_seeds(
                "The angle has a negligible impact until it nears pi: steps from an angle of "
                f"{ahead} over steps from {back}, norm 1",
                list(turned[ahead] / turned[back]),
                (0.9, 1.1),
                paper="about 1",
                recipe="as_coded",
            )
        )
    one, last = norms.index(1), len(norms) - 1
    by_norm, by_angle = coded[:, last] / coded[:, one], turned["3.1"] / turned["pi/2"]
    claims.append(
        Claim.over_seeds(
            f"Large norms are significantly worse than large angles: slowdown from norm 1 to "
            f"{norms[last]:g} ({by_norm.mean():.1f}) over that from pi/2 to 3.1 rad "
            f"({by_angle.mean():.1f})",
            list(by_norm / by_angle),
            (1.0, math.inf),
            paper="> 1",
            recipe="as_coded",
        )
    )
    return claims


def plot(results: Results) -> Figure:
    """Steps over the norm, over the angle, and over both."""
    data = results.data
    figure = new_figure(12, 3.7)
    over_norm, over_angle, over_both = figure.subplots(1, 3)
    norms = np.array(data["norms"])
    for (recipe, steps), color, marker in zip(
        data["steps"].items(), (BLUE, ORANGE), ("o", "s"), strict=True
    ):
        mean = np.mean(steps, 0)
        label = f"{recipe.replace('_', ' ')}: exponent {exponent(data['norms'], list(mean)):.3f}"
        over_norm.loglog(norms, mean, marker, color=color, markersize=4.5, label=label)
        unit = mean[data["norms"].index(1)]
        over_norm.loglog(norms, unit * norms**2, "-", color=color, linewidth=1)
    over_norm.set(xlabel="initial norm", ylabel="steps to convergence")
    over_norm.set_title("Random angles; lines are quadratic")
    over_norm.legend(loc="upper left")
    one = data["norms"].index(1)
    grid = np.array(data["grid"])
    over_angle.plot(data["angles"], grid[one], "o-", color=BLUE, markersize=3.5)
    over_angle.set(xlabel="angle turned to (rad)", ylabel="steps to convergence")
    over_angle.set(ylim=(0, None), title="Norm 1; at $\\pi$ never")
    over_angle.set_xticks([0, math.pi / 2, math.pi], ["0", "$\\pi/2$", "$\\pi$"])
    mesh = over_both.pcolormesh(
        data["angles"], norms, np.maximum(grid, 1), cmap=HEAT, norm="log", shading="nearest"
    )
    over_both.set(xlabel="angle turned to (rad)", ylabel="initial norm", yscale="log")
    over_both.set_title("Steps over both")
    over_both.set_xticks([0, math.pi / 2, math.pi], ["0", "$\\pi/2$", "$\\pi$"])
    over_both.set_yticks([0.25, 0.5, 1, 2, 5, 10], ["¼", "½", "1", "2", "5", "10"])
    over_both.set_ylim(norms[0] * 0.85, norms[-1] * 1.15)
    over_both.grid(False)
    figure.colorbar(mesh, ax=over_both, label="steps")
    return figure
