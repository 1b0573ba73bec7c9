"""Table "lin_probe": linear probes of default, cut and GradScale training.

A linear classifier on the frozen backbone's features, fitted on the training images.

    normscope reproduce lin_probe --scale small

Paper: ResNet-50, 500 epochs, CIFAR-100 and Tiny ImageNet. At small scale ResNet-18 and 30 epochs
on CIFAR-100, the runs of Table accuracies.
"""

from __future__ import annotations

from matplotlib.figure import Figure

from normscope_paper.harness.cell_tables import plot_cells
from normscope_paper.harness.cells import (
    Cell,
    RunTable,
    columns_at,
    intervention_cells,
    train_cells,
)
from normscope_paper.harness.claims import Claim
from normscope_paper.harness.comparisons import intervention_claims
from normscope_paper.harness.ledger import StoredRun
from normscope_paper.harness.results import Results, Scale, finite
from normscope_paper.harness.sweep import Sweep, epochs_at

TITLE = "Linear probes"
PLACE = "Table 9"
KIND = "training"
COST = "days on one GPU (8 cells of 500 epochs, three seeds)"
SEEDS: dict[Scale, int] = {"smoke": 2, "small": 2, "paper": 3}

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


def run(scale: Scale, seed: int, seeds: int, sweep: Sweep) -> Results:
    """Train every cell and probe it."""

    def probe(run: StoredRun) -> dict[str, float]:
        return {"probe": finite(sweep.evaluation(run.spec)["layers"]["backbone"]["probe"])}

    every = cells(scale)
    return train_cells(
        "lin_probe", scale, seed, seeds, every, sweep, kept=probe, key="probe", weights=True
    )


def check(results: Results) -> list[Claim]:
    """Each intervention against its default."""
    return intervention_claims(RunTable.of(results))


def plot(results: Results) -> Figure:
    """The table as dots."""
    return plot_cells(results)
