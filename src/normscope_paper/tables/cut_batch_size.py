"""Table "cut_batch_size": SimSiam with and without a cut, over the batch size.

The mean embedding norm (above) and kNN (below) over epochs. The kNN within the first fifth of the
training, at the last epoch that has one (64 of 500), and at its end stand for the paper's epochs
100 and 500.

    normscope reproduce cut_batch_size --scale small

Paper: ResNet-50, epochs 100 and 500, its dataset not named (the heights are CIFAR-100's). Large
batches "significantly slow down convergence", and the cut "seems to counteract this".
"""

from __future__ import annotations

import math
from typing import Any

from normscope_paper.harness import (
    NOT_IN_PAPER,
    Cell,
    Claim,
    Printed,
    Results,
    RunTable,
    Scale,
    StoredRun,
    datasets_at,
    epochs_at,
    finite,
    plot_courses,
)

TITLE = "SimSiam's cut over batch sizes"
PLACE = "Table 8"
KIND = "training"
COST = "days on one GPU (6 cells of 500 epochs, three seeds)"
SEEDS: dict[Scale, int] = {"smoke": 2, "small": 3, "paper": 3}

BATCHES: dict[Scale, tuple[int, ...]] = {
    "smoke": (32, 64, 128),
    "small": (256, 512, 1024),
    "paper": (256, 512, 1024),
}
PRINTED = {  # row -> by batch, at epochs 100 and 500
    "default": ((46.1, 41.2, 32.6), (59.1, 60.4, 61.3)),
    "cut 9": ((43.1, 46.5, 44.3), (59.4, 58.9, 61.5)),
}

MORE: dict[str, Printed] = {
    "early_knn": {
        (row, f"batch {batch}"): early
        for row, (printed, _) in PRINTED.items()
        for batch, early in zip(BATCHES["paper"], printed, strict=True)
    }
}


def cells(scale: Scale) -> list[Cell]:
    """Every cell."""
    (data,) = datasets_at(scale, "cifar100")
    found = []
    for row, (_, printed) in PRINTED.items():
        for batch, paper in zip(BATCHES[scale], printed, strict=True):
            values = {"method": "simsiam", "data": data, "batch": batch}
            values |= {"cut": 1.0 if row == "default" else 9.0} | epochs_at(scale, paper=500)
            shown = None if scale == "smoke" else paper
            found.append(Cell(row, f"batch {batch}", values, shown))
    return found


def kept(run: StoredRun) -> dict[str, Any]:
    """The kNN at the last epoch, of those that have one, within the first fifth."""
    fifth = max(1, run.spec.epochs // 5)
    seen = [r for r in run.metrics("epoch") if r["epoch"] <= fifth]
    return {"early_knn": finite(seen[-1]["knn"])}


def check(results: Results) -> list[Claim]:
    """The default slows down with the batch, and the cut takes that back."""
    table = RunTable.of(results)
    columns = table.columns
    early = {
        (row, column): table[row, column, "text"].per_cent("early_knn")
        for row in PRINTED
        for column in (columns[0], columns[-1])
    }
    small, large = columns[0], columns[-1]
    slowed = {
        row: [a - b for a, b in zip(early[row, small], early[row, large], strict=True)]
        for row in PRINTED
    }
    gain = zip(early["cut 9", large], early["default", large], strict=True)
    claimed = (
        (
            f"Without a cut, {large} learns more slowly than {small} (points of early kNN)",
            slowed["default"],
            "+13.5 (46.1 against 32.6)",
        ),
        (
            f"At {large} the cut is ahead early (points of kNN)",
            [a - b for a, b in gain],
            "+11.7 (44.3 against 32.6)",
        ),
        (
            "The cut takes the slowing back (points by which large batches lose less)",
            [a - b for a, b in zip(slowed["default"], slowed["cut 9"], strict=True)],
            "+14.7",
        ),
    )
    return [
        Claim.over_seeds(
            sentence,
            values,
            (0.0, math.inf),
            paper=NOT_IN_PAPER if results.scale == "smoke" else paper,  # digits are not its data
            recipe="text",
        )
        for sentence, values, paper in claimed
    ]


plot = plot_courses
