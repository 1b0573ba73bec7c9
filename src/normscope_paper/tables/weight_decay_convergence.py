"""Steps to convergence under weight decay (Table 1).

The pairs of Figure 2 with a penalty on the norm, from norms 1, 4 and 7.

    normscope reproduce weight_decay_convergence --scale paper

The paper's numbers: 64, 526, 1080 steps at decay .5; 49, 318, 610 at 1; divergence at 10; the
quadratic dependence on the norm persists. The printed objective squares the norm and has no
cosine; what gives the printed numbers is -mean cos + decay x mean |z| over all 1000 points
(recipe `norm`); the same with the norm squared is recipe `squared`.
"""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from normscope.report import BLUE, GREEN, GREY, ORANGE, PINK, new_figure
from normscope_paper.figures.convergence_sim import exponent
from normscope_paper.harness import Claim, Results, Scale, share_interval
from normscope_paper.simulation import OUTCOMES, converge_pairs

TITLE = "Steps to convergence under weight decay"
PLACE = "Table 1"
KIND = "simulation"
COST = "2 s"
SEEDS: dict[Scale, int] = {"smoke": 3, "small": 10, "paper": 20}

NORMS = [1, 4, 7]
DECAYS = [0.0, 0.5, 1.0, 10.0]
PRINTED = {0.5: [64, 526, 1080], 1.0: [49, 318, 610]}


def run(scale: Scale, seed: int, seeds: int) -> Results:
    """Each decay, in both readings."""
    every = range(seed, seed + seeds)
    steps: dict[str, dict[str, list]] = {"norm": {}, "squared": {}}
    outcomes: dict[str, dict[str, list]] = {"norm": {}, "squared": {}}
    for reading in ("norm", "squared"):
        for gamma in DECAYS:
            if gamma == 0 and reading == "squared":
                continue  # no decay is the same in both
            result = converge_pairs(NORMS, [0.0], weight_decay=gamma, decay=reading, seeds=every)
            steps[reading][f"{gamma:g}"] = result.steps[:, :, 0].tolist()
            names = [[OUTCOMES[o] for o in row] for row in result.outcomes[:, :, 0]]
            outcomes[reading][f"{gamma:g}"] = names
    data = {"norms": NORMS, "steps": steps, "outcomes": outcomes}
    return Results("weight_decay_convergence", scale, seeds, seed, data)


def check(results: Results) -> list[Claim]:
    """The table's cells, its divergence, the speed-up and the dependence on the norm."""
    data, claims = results.data, []
    plain = np.array(data["steps"]["norm"]["0"])  # seeds norms
    for reading in ("norm", "squared"):
        steps = {gamma: np.array(rows) for gamma, rows in data["steps"][reading].items()}
        for gamma, printed in PRINTED.items():
            off = np.abs(steps[f"{gamma:g}"].mean(0) - printed)
            ours = ", ".join(f"{x:.1f}" for x in steps[f"{gamma:g}"].mean(0))
            cell = int(off.argmax())
            claims.append(
                Claim.over_seeds(
                    f"Steps at decay {gamma:g} from norms 1, 4, 7: ours are {ours} (difference in "
                    f"the worst cell, norm {NORMS[cell]})",
                    list(steps[f"{gamma:g}"][:, cell] - printed[cell]),
                    (-2.0, 2.0),
                    paper=", ".join(map(str, printed)),
                    recipe=reading,
                )
            )
            claims.append(
                Claim.over_seeds(
                    f"Under decay {gamma:g} steps grow with the square of the norm (exponent)",
                    [exponent(NORMS, row) for row in steps[f"{gamma:g}"]],
                    (1.99, 2.01),
                    paper="2",
                    recipe=reading,
                )
            )
        fates = sorted({o for row in data["outcomes"][reading]["10"] for o in row})
        value, interval = share_interval(int((steps["10"] == -1).sum()), steps["10"].size)
        sentence = f"At decay 10 no set converges (share; ours: {', '.join(fates)})"
        claims.append(Claim(sentence, "divergence", value, interval, (0.9, 1.0), reading))
        quicker = {"0.5 than none": (plain, steps["0.5"]), "1 than 0.5": (steps["0.5"], steps["1"])}
        for what, (slow, fast) in quicker.items():
            claims.append(
                Claim.jointly(
                    f"Convergence is faster with decay {what} (largest quotient of steps over the "
                    "three norms)",
                    (fast / slow).T.tolist(),
                    (0.0, 1.0),
                    paper="< 1",
                    recipe=reading,
                    worst="largest",
                )
            )
    return claims


def plot(results: Results) -> Figure:
    """Steps over the norm for each decay in both readings, with the paper's cells."""
    figure = new_figure(9, 3.8)
    for axes, reading in zip(figure.subplots(1, 2, sharey=True), ("norm", "squared"), strict=True):
        steps = {"0": results.data["steps"]["norm"]["0"], **results.data["steps"][reading]}
        for (gamma, rows), color in zip(steps.items(), (GREY, BLUE, GREEN, PINK), strict=True):
            mean = np.mean(rows, 0)
            if (mean > 0).all():
                label = f"decay {gamma}: exponent {exponent(NORMS, list(mean)):.2f}"
                axes.loglog(NORMS, mean, "o-", color=color, label=label)
        cells = {"color": ORANGE, "markersize": 9, "markeredgewidth": 1.5}
        for printed in PRINTED.values():
            axes.loglog(NORMS, printed, "x", **cells)
        axes.plot([], [], "x", **cells, label="paper's Table 1")
        axes.set_xlabel("initial norm")
        axes.set_xticks(NORMS, [str(norm) for norm in NORMS])
        axes.minorticks_off()
        what = "the norm; at decay 10 nothing converges" if reading == "norm" else "its square"
        axes.set_title(f"Decay of {what}")
        axes.legend(loc="upper left")
        if reading == "norm":
            axes.set_ylabel("steps to convergence")
    return figure
