"""Table "lin_probe": linear probes of default, cut and GradScale training.

A linear classifier on the frozen backbone's features, fitted on the training images.

    normscope reproduce lin_probe --scale small

Paper: ResNet-50, 500 epochs, CIFAR-100 and Tiny ImageNet. At small scale ResNet-18 and 30 epochs
on CIFAR-100, the runs of Table accuracies.
"""

from __future__ import annotations

from matplotlib.figure import Figure

from normscope.experiments.cell_views import plot_cells
from normscope.experiments.cells import Record, columns_at, intervention_cells, train_cells
from normscope.experiments.comparisons import intervention_claims
from normscope.experiments.ledger import Run
from normscope.experiments.results import Claim, Results, Scale
from normscope.experiments.runs import epochs_at, judged

TITLE = "Table lin_probe: linear probes"
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


def run(scale: Scale, seed: int, seeds: int) -> Results:
    """Train every cell and probe it."""
    epochs = epochs_at(scale, paper=500)
    cells = intervention_cells(columns_at(scale, CIFAR), PRINTED, **epochs)
    if scale == "paper":
        cells += [c for c in intervention_cells(TINY, PRINTED, **epochs) if c.paper is not None]
    return train_cells(
        "lin_probe", scale, seed, seeds, cells, kept=_probe, key="probe", weights=True
    )


def _probe(run: Run) -> Record:
    return {"probe": judged(run.spec)["layers"]["backbone"]["probe"] or 0.0}


def check(results: Results) -> list[Claim]:
    """Each intervention against its default."""
    return intervention_claims(results)


def plot(results: Results) -> Figure:
    """The table as dots."""
    return plot_cells(results)
