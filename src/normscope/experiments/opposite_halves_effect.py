"""Table "opposite_halves_effect": how often a pair's embeddings point away from each other.

The share of positive pairs with an angle beyond 90 degrees at the end of the first and of the
sixteenth epoch, over their last log points.

    normscope reproduce opposite_halves_effect --scale small

Paper: ResNet-50 on ImageNet-100 and CIFAR-100, epochs 1 and 16. At small scale CIFAR-100 alone,
with ResNet-18.
"""

from __future__ import annotations

import statistics

from matplotlib.figure import Figure

from normscope._checks import invalid
from normscope.experiments.cell_views import Printed, legend_below
from normscope.experiments.cells import NAMES, Cell, Record, cells_of, per_cent, train_cells
from normscope.experiments.ledger import Run
from normscope.experiments.results import Claim, Results, Scale
from normscope.report.figures import BLUE, GREEN, ORANGE, new_figure

TITLE = "Table opposite_halves_effect: pairs that point away from each other"
KIND = "training"
COST = "days on one GPU (6 cells of 512 epochs, three seeds; sixteen would do)"
SEEDS: dict[Scale, int] = {"smoke": 2, "small": 3, "paper": 3}

METHODS = ("simclr", "simsiam", "byol")
BY_NAME = {NAMES[method]: method for method in METHODS}
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
        (NAMES[method], data): float(later)
        for data, methods in PRINTED.items()
        for method, (_, later) in methods.items()
    },
    "cosine": {},
}
FEW = 5.0  # per cent: what the paper's "effectively 0" allows


def run(scale: Scale, seed: int, seeds: int) -> Results:
    """Train every cell."""
    cells = [
        Cell(
            NAMES[method],
            data,
            {"method": method, "data": data},
            PRINTED.get(data, {}).get(method, (None,))[0],
        )
        for data in DATA[scale]
        for method in METHODS
    ]
    return train_cells(
        "opposite_halves_effect", scale, seed, seeds, cells, kept=_rates, key="epoch_1"
    )


def _rates(run: Run) -> Record:
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
    for (row, column, recipe), cell in cells_of(results).items():
        method = BY_NAME[row]
        printed = PRINTED.get(column, {}).get(method)
        first, later = (per_cent(cell, f"epoch_{epoch}") for epoch in EPOCHS)
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
                    f"{said.format(row)} (per cent on {column})",
                    values,
                    region,
                    paper=("some", "effectively 0")[at] if printed is None else f"{printed[at]} %",
                    recipe=recipe,
                    possible=(0.0, 100.0),
                )
            )
    return claims


def plot(results: Results) -> Figure:
    """Bars of both epochs beside the paper's."""
    cells = cells_of(results)
    figure = new_figure(1.5 + 1.6 * len(cells), 3.4)
    axes = figure.subplots()
    for i, ((row, column, _), cell) in enumerate(cells.items()):
        method = BY_NAME[row]
        printed = PRINTED.get(column, {}).get(method)
        for j, (epoch, color) in enumerate(zip(EPOCHS, (BLUE, GREEN), strict=True)):
            values = per_cent(cell, f"epoch_{epoch}")
            place = i + 0.3 * (j - 0.5)
            label = f"epoch {epoch}" if i == 0 else None
            axes.bar(place, statistics.fmean(values), 0.26, color=color, label=label)
            axes.plot([place] * len(values), values, "o", color="black", markersize=3)
            if printed is not None:
                label = "paper" if i == j == 0 else None
                axes.plot([place], [printed[j]], "x", color=ORANGE, markersize=8, label=label)
    axes.set_xticks(range(len(cells)), [f"{row}\n{column}" for row, column, _ in cells])
    axes.set_ylabel("pairs beyond 90°, %")
    legend_below(figure, [axes])
    return figure
