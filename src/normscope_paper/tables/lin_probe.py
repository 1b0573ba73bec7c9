"""Table "lin_probe": linear probes of default, cut and GradScale training.

A linear classifier on the frozen backbone's features, fitted on the training images.

    normscope reproduce lin_probe --scale small

Paper: ResNet-50, 500 epochs, CIFAR-100 and Tiny ImageNet. At small scale ResNet-18 and 30 epochs
on CIFAR-100, the runs of Table accuracies.
"""

from __future__ import annotations

from typing import Any

from normscope_paper.harness import (
    Cell,
    Claim,
    Results,
    RunTable,
    Scale,
    columns_at,
    epochs_at,
    finite,
    intervention_cells,
    intervention_claims,
    plot_cells,
)

TITLE = "Linear probes"
PLACE = "Table 9"
KIND = "training"
COST = "days on one GPU (8 cells of 500 epochs, three seeds)"
SEEDS: dict[Scale, int] = {"smoke": 2, "small": 2, "paper": 3}
KEY = "probe"

CIFAR, TINY = {"CIFAR-100": "cifar100"}, {"Tiny ImageNet": "tiny-imagenet"}
PRINTED = {
    "SimCLR, default": {"CIFAR-100": 59.8, "Tiny ImageNet": 41.9},
    "SimCLR, cut 3": {"CIFAR-100": 63.2, "Tiny ImageNet": 42.8},
    "SimCLR, GradScale": {"CIFAR-100": 62.2, "Tiny ImageNet": 43.2},
    "SimSiam, default": {"CIFAR-100": 63.7},
    "SimSiam, cut 9": {"CIFAR-100": 64.2},
}


def cells(scale: Scale) -> list[Cell]:
    """Every cell."""
    epochs = epochs_at(scale, paper=500)
    found = intervention_cells(columns_at(scale, CIFAR), PRINTED, **epochs)
    if scale == "paper":
        found += [c for c in intervention_cells(TINY, PRINTED, **epochs) if c.paper is not None]
    return found


def from_evaluation(found: dict[str, Any]) -> dict[str, float]:
    """The accuracy of the linear probe on the backbone's features."""
    return {"probe": finite(found["layers"]["backbone"]["probe"])}


def check(results: Results) -> list[Claim]:
    """Each intervention against its default."""
    return intervention_claims(RunTable.of(results))


plot = plot_cells
