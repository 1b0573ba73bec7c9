"""Tables "adam_performance" and "adam_embedding_norms": the norm effect under Adam.

SimCLR and SimSiam trained with Adam instead of SGD, with and without the interventions; the
table also has the norms that SimCLR ends with on CIFAR-10.

    normscope reproduce adam_performance --scale small

Paper: ResNet-50, 100 epochs; its learning rate is not printed. Here it is Adam's usual .001,
for every batch size, and with GradScale too: Adam ignores the overall size of gradients, so a
sixth of the rate would only be slower. All warm up alike.
"""

from __future__ import annotations

import math

from normscope.engine import RunSpec
from normscope_paper.harness import (
    NOT_IN_PAPER,
    Cell,
    Claim,
    Printed,
    Results,
    RunTable,
    Scale,
    columns_at,
    epochs_at,
    intervention_cells,
    intervention_claims,
    log_ratio,
    plot_cells,
)

TITLE = "Interventions under Adam"
PLACE = "Tables 6 and 10"
KIND = "training"
COST = "days on one GPU (10 cells of 100 epochs, three seeds)"
SEEDS: dict[Scale, int] = {"smoke": 2, "small": 2, "paper": 3}

LR = 1e-3
COLUMNS = {"CIFAR-10": "cifar10", "CIFAR-100": "cifar100"}
PRINTED = {
    row: dict(zip(COLUMNS, cells, strict=True))
    for row, cells in {
        "SimCLR, default": (79.6, 44.3),
        "SimCLR, cut 3": (79.9, 45.3),
        "SimCLR, GradScale": (80.5, 46.6),
        "SimSiam, default": (73.7, 36.4),
        "SimSiam, cut 9": (79.8, 44.9),
    }.items()
}
PRINTED_NORMS = {"SimCLR, default": 81.0, "SimCLR, cut 3": 2.1, "SimCLR, GradScale": 174.8}
MORE: dict[str, Printed] = {
    "norm": {(row, "CIFAR-10"): norm for row, norm in PRINTED_NORMS.items()}
}


def cells(scale: Scale) -> list[Cell]:
    """Every cell."""
    alike = {"optimizer": "adam", "warmup_epochs": 10.0}
    alike |= epochs_at(scale, paper=100)
    return [
        Cell(c.row, c.column, {**c.values, **alike, "lr": _lr(c)}, c.paper)
        for c in intervention_cells(columns_at(scale, COLUMNS), PRINTED)
    ]


def _lr(cell: Cell) -> float:
    """What a spec takes for a step of `LR`: it multiplies by batch / 256."""
    return LR * 256 / RunSpec(**cell.values).batch


def check(results: Results) -> list[Claim]:
    """Each intervention against its default, in kNN and in SimCLR's norm."""
    table = RunTable.of(results)
    claims, column = intervention_claims(table), table.columns[0]
    default = table["SimCLR, default", column, "text"]
    for row, grows in (("SimCLR, cut 3", False), ("SimCLR, GradScale", True)):
        pairs = zip(table[row, column, "text"].runs, default.runs, strict=True)
        paper = PRINTED_NORMS[row] / PRINTED_NORMS["SimCLR, default"]
        claims.append(
            Claim.over_seeds(
                f"Under Adam on {column}, {row} ends with {'larger' if grows else 'smaller'} norms "
                "than the default (logarithm of the quotient)",
                [log_ratio(run.norm, other.norm) for run, other in pairs],
                (0.0, math.inf) if grows else (-math.inf, 0.0),
                paper=NOT_IN_PAPER
                if results.scale == "smoke"
                else f"{math.log(paper):+.2f} ({PRINTED_NORMS[row]:g} against 81)",
                recipe="text",
            )
        )
    return claims


plot = plot_cells
