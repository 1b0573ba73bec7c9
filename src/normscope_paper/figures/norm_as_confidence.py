"""Figure "norm_as_confidence": the longer the embedding, the surer the network, and people too.

Norms divided by their maximum, in twenty buckets; of every bucket with more than 50 images the
kNN's accuracy (left), the share of CIFAR-10N's or CIFAR-100N's human labels that are right
(middle), and the entropy of CIFAR-10H's human votes in nats (right). The first seed has 95 %
intervals, and markers whose size goes with the number of images; the others are faint lines. At
smoke scale on digits, which have no human labels: the left panel alone.

    normscope reproduce norm_as_confidence --scale small

Paper: 512 epochs, ResNet-50, also on ImageNet-100. It prints no numbers: accuracy "shows a clear
monotonic trend", longer embeddings "correspond to more accurate consensus labels" and "less
entropy".
"""

from __future__ import annotations

import math
from typing import Any

from matplotlib.figure import Figure

from normscope.evaluation import spearman
from normscope.report import BLUE, GREEN, ORANGE, PINK, against_norm, new_figure
from normscope_paper.harness import (
    NOT_IN_PAPER,
    Claim,
    Results,
    Scale,
    Sweep,
    datasets_at,
    rounded,
    spec_at,
)

TITLE = "Accuracy and human agreement against the norm"
PLACE = "Figure 4"
KIND = "training"
COST = "days on one GPU (12 runs of 512 epochs, shared with in_out_violin)"
SEEDS: dict[Scale, int] = {"smoke": 2, "small": 3, "paper": 3}
METHODS = ("simclr", "simsiam")
DATASETS = ("cifar10", "cifar100")
COLORS = (BLUE, ORANGE, GREEN, PINK)
PANELS = {
    "knn": "kNN accuracy",
    "consensus": "human labels that are right",
    "entropy": "entropy of human votes, nats",
}
# what the paper says of each panel, and the sign of its trend
SENTENCES = {
    "knn": ("The kNN's accuracy rises with the norm", "clear monotonic trend", 1),
    "consensus": ("People label images of long embeddings right more often", "more accurate", 1),
    "entropy": ("People disagree less on images of long embeddings", "less entropy", -1),
}


def run(scale: Scale, seed: int, seeds: int, sweep: Sweep) -> Results:
    """Train, and set the norms against what each panel shows."""
    data: dict[str, Any] = {panel: {} for panel in PANELS}
    datasets = datasets_at(scale, *DATASETS)
    sweep.require(datasets)
    for dataset in datasets:
        for method in METHODS:
            for s in range(seed, seed + seeds):
                spec = spec_at(scale, method=method, data=dataset, seed=s)
                for panel, block in sweep.evaluation(spec)["confidence"].items():
                    data[panel].setdefault(f"{method} on {dataset}", []).append(_kept(block))
    return Results("norm_as_confidence", scale, seeds, seed, data)


def _kept(block: dict[str, Any]) -> dict[str, Any]:
    """One curve: its buckets, its numbers, and how far its buckets are in order.

    That is the rank correlation of their means with their norms: 0 where all means are alike, or
    where there are fewer than three.
    """
    buckets = block["buckets"]
    rank = math.nan
    if len(buckets["centres"]) > 2:
        rank = spearman(buckets["centres"], buckets["accuracy"])
    return rounded(block) | {"monotone": 0.0 if math.isnan(rank) else rank}


def check(results: Results) -> list[Claim]:
    """Each panel's correlation and order by seeds; and what the norm is worth as a score."""
    claims = []
    for panel, curves in results.data.items():
        sentence, printed, sign = SENTENCES[panel]
        for name, every in curves.items():
            claimed = {
                f"{sentence} (rank correlation over images)": ("spearman", 0.0, printed),
                f"{sentence}, in order (rank correlation of the buckets' means with their norms)": (
                    "monotone",
                    0.9,
                    printed,
                ),
            }
            if panel != "entropy":
                words = f"The norm tells right from wrong ({PANELS[panel]}, AUROC)"
                claimed[words] = ("auroc", 0.5, NOT_IN_PAPER)
            claims += [
                Claim.over_seeds(
                    words,
                    [_signed(one[key], key, sign) for one in every],
                    (least, math.inf),
                    paper=paper,
                    recipe=f"text, {name}",
                    possible=(0.0 if key == "auroc" else -1.0, 1.0),
                )
                for words, (key, least, paper) in claimed.items()
            ]
    return claims


def _signed(value: float | None, key: str, sign: int) -> float:
    """A number that is large if the claim is true; what could not be said is no correlation."""
    if key == "auroc":
        return 0.5 if value is None else value
    return 0.0 if value is None else sign * value


def plot(results: Results) -> Figure:
    """The panels that there is data for: the first seed with its intervals, the others faint."""
    shown = {panel: curves for panel, curves in results.data.items() if curves}
    figure = new_figure(1 + 3.6 * len(shown), 3.8)
    for axes, (panel, curves) in zip(
        figure.subplots(1, len(shown), squeeze=False)[0], shown.items(), strict=True
    ):
        for (name, every), color in zip(curves.items(), COLORS, strict=False):
            against_norm(axes, every[0], PANELS[panel], name=name, color=color)
            for other in every[1:]:
                buckets = other["buckets"]
                axes.plot(
                    buckets["centres"], buckets["accuracy"], color=color, alpha=0.4, linewidth=1
                )
    return figure
