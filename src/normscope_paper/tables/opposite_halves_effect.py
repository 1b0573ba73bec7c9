"""Table "opposite_halves_effect": how often a pair's embeddings point away from each other.

The share of positive pairs with an angle beyond 90 degrees at the end of the first and of the
sixteenth epoch, over their last log points.

    normscope reproduce opposite_halves_effect --scale small

Paper: ResNet-50 on ImageNet-100 and CIFAR-100, epochs 1 and 16. At small scale CIFAR-100 alone,
with ResNet-18.
"""

from __future__ import annotations

import statistics
from typing import Any

from matplotlib.figure import Figure

from normscope.extend import invalid
from normscope.methods import METHODS
from normscope.report import BLUE, GREEN, ORANGE, new_figure
from normscope_paper.harness import (
    Cell,
    Claim,
    Printed,
    Results,
    RunTable,
    Scale,
    StoredRun,
    legend_below,
)

TITLE = "Pairs that point away from each other"
PLACE = "Table 7"
KIND = "training"
COST = "days on one GPU (6 cells of 512 epochs, three seeds; sixteen would do)"
SEEDS: dict[Scale, int] = {"smoke": 2, "small": 3, "paper": 3}
KEY = "epoch_1"

COMPARED = ("simclr", "simsiam", "byol")
BY_TITLE = {METHODS[method].TITLE: method for method in COMPARED}
EPOCHS = (1, 16)
DATA: dict[Scale, tuple[str, ...]] = {
    "smoke": ("digits",),
    "small": ("cifar100",),
    "paper": ("cifar100", "imagenet100"),
}
PRINTED = {  # dataset -> method -> per cent at epochs 1 and 16
    "cifar100": {"simclr": (11, 1), "simsiam": (21, 0), "byol": (20, 0)},
    "imagenet100": {"simclr": (2, 0), "simsiam": (26, 1), "byol": (28, 1)},
}
MORE: dict[str, Printed] = {
    "epoch_16": {
        (METHODS[method].TITLE, data): float(later)
        for data, methods in PRINTED.items()
        for method, (_, later) in methods.items()
    },
    "cosine": {},
}
FEW = 5.0  # per cent: what the paper's "effectively 0" allows


def cells(scale: Scale) -> list[Cell]:
    """Every cell."""
    return [
        Cell(
            METHODS[method].TITLE,
            data,
            {"method": method, "data": data},
            PRINTED.get(data, {}).get(method, (None,))[0],
        )
        for data in DATA[scale]
        for method in COMPARED
    ]


def kept(run: StoredRun) -> dict[str, Any]:
    """The rate at the end of each of the two epochs; of a shorter run, at its own end.

    And how alike any two embeddings are by then: pairs that are all alike are not apart either.
    """
    ends = {r["epoch"]: r for r in run.metrics("step")}
    for epoch in [min(epoch, run.spec.epochs) for epoch in EPOCHS]:
        if epoch not in ends:
            advice = f"Lower it: epoch {epoch} of {run.spec.name} has no log point."
            raise invalid("log_every", "at most an epoch's steps", run.spec.log_every, advice)
    rates = {
        f"epoch_{epoch}": ends[min(epoch, run.spec.epochs)]["opposite_halves"] for epoch in EPOCHS
    }
    return {**rates, "cosine": ends[EPOCHS[0]]["mean_cosine"]}


def check(results: Results) -> list[Claim]:
    """There are some at first, and next to none later."""
    claims = []
    for cell in RunTable.of(results).cells:
        method = BY_TITLE[cell.row]
        printed = PRINTED.get(cell.column, {}).get(method)
        first, later = (cell.per_cent(f"epoch_{epoch}") for epoch in EPOCHS)
        for values, region, said, at in (
            (
                first,
                (FEW, 100.0),
                "After one epoch many pairs of {} point away from each other",
                0,
            ),
            (later, (0.0, FEW), "Next to no pairs of {} do so at epoch 16", 1),
        ):
            claims.append(
                Claim.over_seeds(
                    f"{said.format(cell.row)} (per cent on {cell.column})",
                    values,
                    region,
                    paper=("some", "effectively 0")[at] if printed is None else f"{printed[at]} %",
                    recipe=cell.recipe,
                    possible=(0.0, 100.0),
                )
            )
    return claims


def plot(results: Results) -> Figure:
    """Bars of both epochs beside the paper's."""
    cells = RunTable.of(results).cells
    figure = new_figure(1.5 + 1.6 * len(cells), 3.4)
    axes = figure.subplots()
    for i, cell in enumerate(cells):
        method = BY_TITLE[cell.row]
        printed = PRINTED.get(cell.column, {}).get(method)
        for j, (epoch, color) in enumerate(zip(EPOCHS, (BLUE, GREEN), strict=True)):
            values = cell.per_cent(f"epoch_{epoch}")
            place = i + 0.3 * (j - 0.5)
            label = f"epoch {epoch}" if i == 0 else None
            axes.bar(place, statistics.fmean(values), 0.26, color=color, label=label)
            axes.plot([place] * len(values), values, "o", color="black", markersize=3)
            if printed is not None:
                label = "paper" if i == j == 0 else None
                axes.plot([place], [printed[j]], "x", color=ORANGE, markersize=8, label=label)
    axes.set_xticks(range(len(cells)), [f"{cell.row}\n{cell.column}" for cell in cells])
    axes.set_ylabel("pairs beyond 90°, %")
    legend_below(figure, [axes])
    return figure
