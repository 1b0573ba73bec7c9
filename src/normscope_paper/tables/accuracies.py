"""Table "accuracies": kNN of default, cut and GradScale training on balanced data.

SimCLR with the weights divided by 3 or with GradScale, and SimSiam with the weights divided by 9,
beside the same without. Lines are means, dots seeds. The effective learning rate is that over the
squared norm of a weight that a batch norm follows, the median of them, times what multiplies its
gradients (micro-batches that are summed, the mean norm under GradScale), the highest of epochs 1,
2, 4, ... and the last. The effective rank is the exponential of the entropy of the embeddings'
singular values, at the end.

    normscope reproduce accuracies --scale small

Paper: ResNet-50, 1000 epochs (500 on ImageNet-100 and Tiny ImageNet). At small scale CIFAR alone,
with ResNet-18 and 30 epochs (50 for the text's SimCLR on CIFAR-10): what is judged is whether an
intervention helps, not the height. The code's SimSiam warms up for 80 epochs, so that 30 of them
never see its full learning rate. GradScale is also run with the learning rate that the code comes
to, a third of the text's: .1 multiplied by itself.
"""

from __future__ import annotations

from dataclasses import replace

from normscope.methods import METHODS
from normscope_paper.harness import (
    Cell,
    Claim,
    Printed,
    Results,
    RunTable,
    Scale,
    columns_at,
    epochs_at,
    gains,
    intervention_cells,
    intervention_claims,
    plot_cells,
    rate_and_rank,
)

TITLE = "Interventions on balanced data"
PLACE = "Table 4"
KIND = "training"
COST = "weeks on one GPU (29 cells of 500 to 1000 epochs, three seeds)"
SEEDS: dict[Scale, int] = {"smoke": 2, "small": 2, "paper": 3}
kept = rate_and_rank

CIFAR = {"CIFAR-10": "cifar10", "CIFAR-100": "cifar100"}
SLOWER = "SimCLR, GradScale at the code's rate"
LARGER = {"ImageNet-100": "imagenet100", "Tiny ImageNet": "tiny-imagenet"}
PRINTED = {
    row: dict(zip((*CIFAR, *LARGER), cells, strict=True))
    for row, cells in {
        "SimCLR, default": (87.7, 56.6, 59.4, 36.0),
        "SimCLR, cut 3": (88.2, 60.1, 60.9, 37.7),
        "SimCLR, GradScale": (88.2, 58.2, 1.0, 38.1),
        "SimSiam, default": (88.1, 61.8, 62.0, 41.4),
        "SimSiam, cut 9": (88.4, 62.6, 67.2, 41.7),
    }.items()
}
MORE: dict[str, Printed] = {"rate": {}, "rank": {}}  # which the paper does not print


def cells(scale: Scale) -> list[Cell]:
    """Every cell; by the code's reading CIFAR-10's alone, except at paper scale."""
    columns, epochs = columns_at(scale, CIFAR), epochs_at(scale, paper=1000)
    found = intervention_cells(columns, PRINTED, **epochs)
    if scale != "smoke":
        found.append(_slower(next(c for c in found if "grad_scale" in c.values)))
    if scale == "small":
        found = [_longer(cell) for cell in found]
    if scale != "smoke":
        coded = columns if scale == "paper" else {"CIFAR-10": "cifar10"}
        found += intervention_cells(coded, PRINTED, recipe="as_coded", **epochs)
    if scale == "paper":
        found += intervention_cells(LARGER, PRINTED, epochs=500)
    return found


def _slower(cell: Cell) -> Cell:
    """GradScale with the learning rate that the published code comes to."""
    code = METHODS["simclr"].AS_CODED
    assert code is not None
    return replace(cell, row=SLOWER, values={**cell.values, "lr": code.grad_scale_lr}, paper=None)


def _longer(cell: Cell) -> Cell:
    """SimCLR on CIFAR-10 trains for longer: its gains are small."""
    if (cell.values["method"], cell.values["data"]) != ("simclr", "cifar10"):
        return cell
    return replace(cell, values={**cell.values, "epochs": 50})


def check(results: Results) -> list[Claim]:
    """Each intervention against its default."""
    table = RunTable.of(results)
    return [*intervention_claims(table), *gains(table, SLOWER, "SimCLR, default")]


plot = plot_cells
