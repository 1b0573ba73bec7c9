"""Probability that random embeddings are nearly opposite, against its bound (Appendix C.2).

The probability that the cosine of two independent normal vectors is at most -(1 - eps), which by
symmetry is that of its being at least 1 - eps, for three dimensions, with the paper's Chebyshev
bound.

    normscope reproduce opposite_halves

The paper's claim: P[cos >= 1 - eps] <= 1 / (2 d (1 - eps)^2), "an extremely optimistic bound".
"""

from __future__ import annotations

import math

import torch
from matplotlib.figure import Figure

from normscope.report import BLUE, GREEN, ORANGE, new_figure
from normscope.theory import opposite_halves_bound, opposite_halves_probability
from normscope_paper.harness import NOT_IN_PAPER, Claim, Results, Scale, rounded

TITLE = "Nearly opposite random embeddings, and the bound on them"
PLACE = "Appendix C.2"
KIND = "simulation"
COST = "2 s"
SEEDS: dict[Scale, int] = {"smoke": 3, "small": 10, "paper": 20}

DIMENSIONS = (3, 20, 128)


def run(scale: Scale, seed: int, seeds: int) -> Results:
    """Exact tails and bounds on a grid, and the share among random pairs of one case."""
    d = torch.arange(2, 301)[:, None]
    eps = torch.linspace(0.005, 0.995, 199, dtype=torch.float64)
    quotient = opposite_halves_probability(d, eps) / opposite_halves_bound(d, eps)
    pairs = 20_000 if scale == "smoke" else 200_000
    shares = []
    for s in range(seed, seed + seeds):
        x, y = torch.randn(2, pairs, 5, generator=torch.Generator().manual_seed(s))
        shares.append(float((torch.cosine_similarity(x, y) <= -0.7).double().mean()))
    data = {
        "largest_quotient": float(quotient.max()),
        "at_20": [
            float(opposite_halves_probability(20, 0.1)),
            float(opposite_halves_bound(20, 0.1)),
        ],
        "eps": rounded(eps),
        "probability": {
            str(k): rounded(opposite_halves_probability(k, eps), 4) for k in DIMENSIONS
        },
        "bound": {str(k): rounded(opposite_halves_bound(k, eps), 4) for k in DIMENSIONS},
        "shares": shares,
        "expected_share": float(opposite_halves_probability(5, 0.3)),
    }
    return Results("opposite_halves", scale, seeds, seed, data)


def check(results: Results) -> list[Claim]:
    """The bound holds, how loose it is, and the exact tail is what random pairs show."""
    data = results.data
    probability, bound = data["at_20"]
    exact = data["expected_share"]
    return [
        Claim.exact(
            "The probability is at most 1 / (2 d (1 - eps)^2) (largest quotient of the two, d from "
            "2 to 300)",
            data["largest_quotient"],
            (0.0, 1.0),
            paper="<= 1",
            recipe="exact tail",
        ),
        Claim.exact(
            f"The bound is extremely optimistic: at d = 20, eps = .1 it is {bound:.3f} and the "
            f"probability {probability:.1e} (powers of ten between them)",
            math.log10(bound / probability),
            (1.0, math.inf),
            paper="many",
            recipe="exact tail",
        ),
        Claim.over_seeds(
            "The exact tail is the share of nearly opposite random pairs (their difference at "
            f"d = 5, eps = .3, where the tail is {exact:.4f})",
            [share - exact for share in data["shares"]],
            (-0.002, 0.002),
            paper=NOT_IN_PAPER,
            recipe="random pairs",
        ),
    ]


def plot(results: Results) -> Figure:
    """Probability and bound over eps for three dimensions."""
    figure = new_figure(5.4, 3.9)
    axes = figure.subplots()
    eps = results.data["eps"]
    for d, color in zip(DIMENSIONS, (GREEN, BLUE, ORANGE), strict=True):
        axes.semilogy(eps, results.data["probability"][str(d)], color=color, label=f"d = {d}")
        axes.semilogy(eps, results.data["bound"][str(d)], "--", color=color, linewidth=1.2)
    axes.plot([], [], "--", color="black", linewidth=1.2, label="the paper's bounds")
    axes.set(ylim=(1e-20, 1), xlim=(0, 1), xlabel="$\\varepsilon$")
    axes.set(
        ylabel="$P[\\cos \\leq -(1 - \\varepsilon)]$", title="Nearly opposite random embeddings"
    )
    axes.legend(loc="lower right")
    return figure
