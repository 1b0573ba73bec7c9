"""Steps to convergence over the norm and the angle (Figure 2, left).

500 pairs in R^20 move along the gradient of their cosine similarity, learning rate 10, until the
mean cosine passes .999. Steps grow with the square of the norm; the angle matters only near pi.

    normscope reproduce convergence_sim --scale paper

The paper's numbers: quadratic in the norm; the notebook prints 6, 24, 54, 96, 385, 869, 1547,
2416, 3463, 4737, 6156, 7822, 9662 steps at norms .25, .5, .75, 1, 2, ..., 10 (one unseeded draw).
"""

from __future__ import annotations

import math

import numpy as np
from matplotlib.figure import Figure

from normscope.experiments.results import Claim, Results, Scale, mean_interval, rounded
from normscope.report.figures import BLUE, HEAT, ORANGE, new_figure
from normscope.simulation import converge_pairs

TITLE = "Steps over norm and angle (Fig. 2 left)"
KIND = "simulation"
COST = "8 s"
SEEDS: dict[Scale, int] = {"smoke": 3, "small": 10, "paper": 20}

PUBLISHED = {
    0.25: 6, 0.5: 24, 0.75: 54, 1: 96, 2: 385, 3: 869, 4: 1547, 5: 2416, 6: 3463, 7: 4737,
    8: 6156, 9: 7822, 10: 9662,
}  # fmt: skip
LARGEST: dict[Scale, float] = {"smoke": 3, "small": 6, "paper": 10}


def run(scale: Scale, seed: int, seeds: int) -> Results:
    """Both readings at random angles over seeds, and the whole grid for one seed."""
    norms = [norm for norm in PUBLISHED if norm <= LARGEST[scale]]
    alphas = np.linspace(-0.96, 0.96, 25 if scale == "paper" else 9)
    every = range(seed, seed + seeds)
    both = converge_pairs(norms, [0.0], seeds=every)
    # the text's reading takes twice as many steps and adds no figure: fewer seeds do
    one = converge_pairs(norms, [0.0], moves="one", seeds=range(seed, seed + min(seeds, 5)))
    grid = converge_pairs(norms, [*alphas, -1.0], seeds=[seed])
    angles = _mean_angle(alphas)
    data = {
        "norms": norms,
        "steps": {"as_coded": both.steps[:, :, 0].tolist(), "text": one.steps[:, :, 0].tolist()},
        "alphas": rounded(alphas),
        "angles": rounded(angles),
        "grid": grid.steps[0, :, :-1].tolist(),
        "antipodal": grid.steps[0, :, -1].tolist(),
    }
    return Results("convergence_sim", scale, seeds, seed, data)


def _mean_angle(alphas: np.ndarray) -> np.ndarray:
    """The angle of a pair whose directions were orthogonal, after the turn by alpha."""
    return np.arctan2(1 - np.abs(alphas), alphas)


def exponent(norms: list[float], steps: list[float]) -> float:
    """The slope of log steps over log norm, for norms of at least 1 where steps are many."""
    use = [i for i, norm in enumerate(norms) if norm >= 1]
    x, y = np.log([norms[i] for i in use]), np.log([steps[i] for i in use])
    return float(np.polyfit(x, y, 1)[0])


def check(results: Results) -> list[Claim]:
    """Quadratic in the norm, by both readings; the published steps; the angle's small part."""
    data = results.data
    norms = data["norms"]
    claims = []
    for recipe, steps in data["steps"].items():
        value, interval = mean_interval([exponent(norms, run) for run in steps])
        claims.append(
            Claim(
                "Steps to convergence grow with the square of the norm (fitted exponent)",
                "2",
                value,
                interval,
                (1.98, 2.02),
                recipe,
            )
        )
    published = [PUBLISHED[norm] for norm in norms]
    deviations = np.abs(np.mean(data["steps"]["as_coded"], 0) / published - 1)
    worst = float(deviations.max())
    claims.append(
        Claim(
            "The notebook's steps at random angles (largest deviation of our mean over seeds)",
            "6 ... 9662",
            worst,
            (worst, worst),
            (0.0, 0.01),
            "as_coded",
        )
    )
    grid = np.array(data["grid"], dtype=float)
    middle = int(np.argmin(np.abs(np.array(data["alphas"]))))
    by_angle = float((grid.max(1) / grid[:, middle]).max())
    by_norm = float(grid[-1, middle] / grid[norms.index(1), middle])
    ratio = by_norm / by_angle
    claims.append(
        Claim(
            f"Large norms slow convergence more than large angles: {norms[-1]:g} times the norm "
            f"costs {by_norm:.1f} times the steps, an angle of {max(data['angles']):.2f} rad "
            f"{by_angle:.1f} times (quotient of the two)",
            "> 1",
            ratio,
            (ratio, ratio),
            (1.0, math.inf),
            "as_coded",
        )
    )
    return claims


def plot(results: Results) -> Figure:
    """Steps over the norm, over the angle, and over both."""
    data = results.data
    figure = new_figure(11, 3.7)
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
    over_angle.set(xlabel="angle of the pairs (rad)", ylabel="steps to convergence")
    over_angle.set(ylim=(0, None), title="Norm 1; antipodal pairs never converge")
    over_angle.set_xticks([0, math.pi / 2, math.pi], ["0", "$\\pi/2$", "$\\pi$"])
    mesh = over_both.pcolormesh(
        data["angles"], norms, grid, cmap=HEAT, norm="log", shading="nearest"
    )
    over_both.set(xlabel="angle of the pairs (rad)", ylabel="initial norm", yscale="log")
    over_both.set_title("Both")
    over_both.set_xticks([0, math.pi / 2, math.pi], ["0", "$\\pi/2$", "$\\pi$"])
    over_both.set_yticks([0.25, 0.5, 1, 2, 5, 10], ["¼", "½", "1", "2", "5", "10"])
    over_both.set_ylim(norms[0] * 0.85, norms[-1] * 1.15)
    over_both.grid(False)
    figure.colorbar(mesh, ax=over_both, label="steps")
    return figure
