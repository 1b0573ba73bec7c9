"""GradScale takes away the brake: how fast a head's weights grow, by its depth.

The gradient of a cosine loss shrinks as embeddings grow, which slows their growth. GradScale undoes
the first, and so the second. A head of L layers is trained by InfoNCE on noisy points; if w is the
norm of a layer's weights, counting powers says that the square of w grows at a rate proportional to
its own power p L - 1 (`simulation.heads`): without GradScale (p = 0) ever more slowly, at p L = 2
exponentially, and above that to infinity in a finite time, which goes with one over the square of
the learning rate. Left: embedding norms over steps, first seed. Right: the exponents found, dots
seeds, beside those of the count.

    normscope reproduce grad_scale_growth --scale paper

Not in the paper, which runs GradScale with p = 1. SimCLR's projector has two layers, and the gains
of the batch norms that its input comes from are about a third.
"""

from __future__ import annotations

import math

import numpy as np
from matplotlib.figure import Figure

from normscope.extend import invalid
from normscope.report import BLUE, GREEN, GREY, ORANGE, PINK, new_figure
from normscope_paper.harness import NOT_IN_PAPER, Claim, Results, Scale, rounded, share_interval
from normscope_paper.simulation import HeadCourse, train_head

TITLE = "GradScale's missing brake"
PLACE = "not in the paper"
KIND = "simulation"
COST = "3 min"
SEEDS: dict[Scale, int] = {"smoke": 2, "small": 5, "paper": 5}

DEPTHS = (1, 2, 3, 4)
LR = {0.0: 1.0, 0.5: 0.5, 1.0: 0.1}  # by power: low enough to see how what breaks begins
STEPS: dict[Scale, int] = {"smoke": 50, "small": 2000, "paper": 2000}
RATES: dict[Scale, tuple[float, ...]] = {  # at which three layers with power 1 are seen to the end
    "smoke": (0.2, 0.4),
    "small": (0.1, 0.2, 0.4),
    "paper": (0.1, 0.2, 0.4),
}
DEEP = 3
_FROM = 0.3  # of the steps: until then a head finds its directions
_QUIET = 0.05  # growth in one step beyond which steps are too coarse to measure a rate
_LONGEST = 20_000  # steps for which a head that breaks is waited for
_SEEN = 60  # points of a course that are kept for the figure


def run(scale: Scale, seed: int, seeds: int) -> Results:
    """Train each depth with each power, and three layers at several learning rates."""
    every, steps = range(seed, seed + seeds), STEPS[scale]
    heads: dict[str, dict[str, dict]] = {}
    for power, lr in LR.items():
        heads[f"{power:g}"] = of_power = {}
        for depth in DEPTHS:
            courses = [train_head(depth, power=power, lr=lr, steps=steps, seed=s) for s in every]
            of_power[str(depth)] = {
                "exponents": rounded([growth_exponent(course) for course in courses]),
                "broke": [course.broke for course in courses],
                **_sampled(courses[0]),
            }
    lasted = {
        f"{lr:g}": [
            len(train_head(DEEP, power=1.0, lr=lr, steps=_LONGEST, seed=s).norms) for s in every
        ]
        for lr in RATES[scale]
    }
    return Results("grad_scale_growth", scale, seeds, seed, {"heads": heads, "lasted": lasted})


def growth_exponent(course: HeadCourse) -> float:
    """The power of the squared weights at which they grow."""
    squares = np.array(course.squares)
    squares = squares[int(_FROM * len(squares)) :]
    coarse = np.flatnonzero(np.diff(squares) > _QUIET * squares[:-1])
    squares = squares[: coarse[0] + 1] if coarse.size else squares
    # enough windows for a slope; each grows by as much, so that none is all noise
    edges = np.geomspace(squares[0], squares[-1], 7)
    at = np.unique(np.searchsorted(np.maximum.accumulate(squares), edges).clip(0, len(squares) - 1))
    if len(at) < 3:
        raise invalid("course", "slow enough to measure a rate", squares.tolist(), "Lower the lr.")
    rates = np.diff(squares[at]) / np.diff(at)
    middles = np.sqrt(squares[at][1:] * squares[at][:-1])
    return float(np.polyfit(np.log(middles), np.log(rates), 1)[0])


def _sampled(course: HeadCourse) -> dict[str, list]:
    """Some of the norms, closer together at first."""
    at = np.unique(np.geomspace(1, len(course.norms), _SEEN).astype(int)) - 1
    return {"steps": (at + 1).tolist(), "norms": rounded(np.array(course.norms)[at])}


def check(results: Results) -> list[Claim]:
    """The exponents against the count, who breaks, and when."""
    heads = [
        (power * depth, results.data["heads"][f"{power:g}"][str(depth)])
        for power in LR
        for depth in DEPTHS
    ]
    places, found = zip(*((at, head["exponents"]) for at, head in heads), strict=True)
    slopes, starts = np.polyfit(places, found, 1)  # of each seed
    lasted = {float(lr): steps for lr, steps in results.data["lasted"].items()}
    lives = np.polyfit(np.log(list(lasted)), np.log(list(lasted.values())), 1)[0]  # of each seed
    seen = (
        (
            "The exponent of growth rises with p L one to one, within 10 % (slope)",
            slopes,
            (0.9, 1.1),
        ),
        (
            "Without GradScale growth brakes itself: it begins at -1, within .2",
            starts,
            (-1.2, -0.8),
        ),
        (
            f"With power 1, {DEEP} layers last the longer the lower the squared learning rate "
            "(exponent of the steps in the rate)",
            lives,
            (-2.2, -1.8),
        ),
    )
    claims = [
        Claim.over_seeds(sentence, list(values), region, paper=NOT_IN_PAPER, recipe="text")
        for sentence, values, region in seen
    ]
    fates = (
        ("Heads with p L < 2 do not break (share that does)", (0.0, 2.0), (0.0, 0.1)),
        ("Most heads with p L > 2 do (share)", (2.0, math.inf), (0.5, 1.0)),
    )
    for sentence, (low, high), region in fates:
        broke = [b for at, head in heads if low <= at < high and at != 2 for b in head["broke"]]
        value, interval = share_interval(sum(broke), len(broke))
        claims.append(Claim(sentence, NOT_IN_PAPER, value, interval, region, "text"))
    return claims


def plot(results: Results) -> Figure:
    """Norms over steps, and exponents beside the count."""
    figure = new_figure(9, 3.8)
    left, right = figure.subplots(1, 2)
    colors = dict(zip(LR, (GREY, BLUE, ORANGE), strict=True))
    styles = dict(zip(DEPTHS, (":", "--", "-.", "-"), strict=True))
    for power, color in colors.items():
        for depth, style in styles.items():
            head = results.data["heads"][f"{power:g}"][str(depth)]
            left.loglog(head["steps"], head["norms"], style, color=color)
            place = [power * depth] * len(head["exponents"])
            right.plot(place, head["exponents"], "o", color=color, markersize=4)
        right.plot([], [], "o", color=color, label=f"power {power:g}")
    for depth, style in styles.items():
        left.plot([], [], style, color="black", label=f"{depth} layer" + "s" * (depth > 1))
    left.set_xlabel("steps")
    left.set_ylabel("mean embedding norm")
    left.legend(loc="upper left")
    ends = [0.0, max(LR) * max(DEPTHS)]
    right.plot(ends, [end - 1 for end in ends], color=GREEN, zorder=0, label="counted: p L - 1")
    right.axvline(2, color=PINK, linestyle=":")
    right.annotate(
        "no end above", (2, ends[1] - 1.2), xytext=(-4, 0), textcoords="offset points", ha="right"
    )
    right.set_xlabel("power x layers")
    right.set_ylabel("growth exponent of squared weights")
    right.legend(loc="lower right")
    return figure
