"""Figures "in_out_violin" and "in_out_distribution_norms": norms of known and of new images.

Embedding norms of each split of the data, divided by the training mean: violins of the first seed
above, bars of all seeds' means below. SimCLR and SimSiam, trained on CIFAR-10 and read on
CIFAR-100, and the reverse; at smoke scale trained on digits and read on patches of photographs, on
negatives, and on digits laid over each other. All images are read as they are, not augmented.

    normscope reproduce in_out_violin --scale small

Paper: 512 epochs, ResNet-50. No numbers are printed; held-out images have "only slightly reduced
norms", the other dataset "substantially smaller" ones. Evaluations from now on also read MNIST,
Fashion-MNIST, scikit-learn's digits, noise and textures; the stored results precede them.
"""

from __future__ import annotations

import math
from typing import Any

from matplotlib.figure import Figure

from normscope.report import bars, new_figure, violins
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

TITLE = "Norms fall on new images"
PLACE = "Figures 3 and 11"
KIND = "training"
COST = "days on one GPU (12 runs of 512 epochs)"
SEEDS: dict[Scale, int] = {"smoke": 2, "small": 3, "paper": 3}
METHODS = ("simclr", "simsiam")
DATASETS = ("cifar10", "cifar100")
SLIGHTLY = 0.1  # of the training mean: what "slightly" allows, and "substantially" is beyond


def run(scale: Scale, seed: int, seeds: int, sweep: Sweep) -> Results:
    """Train, and read the norms of every split."""
    data: dict[str, Any] = {}
    datasets = datasets_at(scale, *DATASETS)
    sweep.require(datasets)
    for dataset in datasets:
        for method in METHODS:
            every = [
                sweep.evaluation(spec_at(scale, method=method, data=dataset, seed=s))
                for s in range(seed, seed + seeds)
            ]
            layer = every[0]["layer"]
            data[f"{method} on {dataset}"] = {
                "layer": layer,
                "splits": rounded(every[0]["splits"]),
                "means": {
                    name: [e["splits"][name]["mean"] for e in every] for name in every[0]["splits"]
                },
                "auroc": {
                    name: [e["novelty"][name][layer]["norm"]["auroc"] for e in every]
                    for name in every[0]["novelty"]
                },
            }
    return Results("in_out_violin", scale, seeds, seed, data)


def check(results: Results) -> list[Claim]:
    """Held-out images are near 1, new ones below them; and how well the norm separates them."""
    claims = []
    for name, found in results.data.items():
        means, recipe = found["means"], f"text, {name}"
        test = means["test"]
        claims.append(
            Claim.over_seeds(
                "Held-out images have only slightly smaller norms (their mean over the training "
                "mean)",
                test,
                (1 - SLIGHTLY, 1.0),
                paper="slightly below 1",
                recipe=recipe,
            )
        )
        claims += [
            Claim.over_seeds(
                f"Images of another kind ({new}) have smaller norms (held-out mean less theirs, "
                "over the training mean)",
                [t - o for t, o in zip(test, means[new], strict=True)],
                (SLIGHTLY, math.inf),
                paper="substantially smaller" if new in DATASETS else NOT_IN_PAPER,
                recipe=recipe,
            )
            for new in found["auroc"]
        ]
        claims += [
            Claim.over_seeds(
                f"The norm tells held-out images from others ({new}; AUROC)",
                found["auroc"][new],
                (0.5, math.inf),
                paper=NOT_IN_PAPER,
                recipe=recipe,
            )
            for new in found["auroc"]
        ]
    return claims


def plot(results: Results) -> Figure:
    """A column for each method and dataset: violins of the first seed, bars of all seeds' means."""
    columns = len(results.data)
    figure = new_figure(3.4 * columns, 6.4)
    axes = figure.subplots(2, columns, squeeze=False)
    for (name, found), (top, bottom) in zip(results.data.items(), axes.T, strict=True):
        violins(top, found["splits"])
        means = {split: sum(values) / len(values) for split, values in found["means"].items()}
        bars(bottom, {split: found["splits"][split] | {"mean": m} for split, m in means.items()})
        top.set_title(f"{name}, seed {results.seed}")
        bottom.set_title(f"mean of {results.seeds} seeds")
    for inner in axes[:, 1:].flat:
        inner.set_ylabel("")
    return figure
