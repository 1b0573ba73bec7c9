"""Figure "weight_decay_ablation": weight decay against norms and kNN.

SimCLR and SimSiam without weight decay, with the usual, and with far too much: the mean embedding
norm (above; a line that leaves the panel goes on towards zero) and kNN (below) over epochs. Where
weights vanish, their effective learning rate in the table grows without bound.

    normscope reproduce weight_decay_ablation --scale small

Paper: ResNet-50 on CIFAR-10, 256 epochs; no numbers are printed. Without decay norms "grow
unconstrained"; 5e-2 "causes collapse"; the usual lets them "decrease gradually, leading to improved
kNN accuracy", and the effect is "much more pronounced in the attraction-only setting".
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from normscope.methods import METHODS
from normscope_paper.harness import (
    Cell,
    Claim,
    Printed,
    Results,
    RunTable,
    Scale,
    TrainedCell,
    TrainedRun,
    above,
    datasets_at,
    epochs_at,
    gains_more,
    highest_rate,
    log_ratio,
    plot_courses,
)

TITLE = "Weight decay, norms and kNN"
PLACE = "Figure 5"
KIND = "training"
COST = "days on one GPU (6 cells of 256 epochs, three seeds)"
SEEDS: dict[Scale, int] = {"smoke": 2, "small": 3, "paper": 3}
kept = highest_rate

DECAYS = {"simclr": (0.0, 1e-5, 5e-2), "simsiam": (0.0, 5e-4, 5e-2)}
ROWS = ("no weight decay", "standard weight decay", "high weight decay")
NONE, STANDARD, HIGH = ROWS
MORE: dict[str, Printed] = {"rate": {}}
COLLAPSED = 0.5  # of the kNN without decay: what is below it counts as collapsed


def cells(scale: Scale) -> list[Cell]:
    """Every cell."""
    (data,) = datasets_at(scale, "cifar10")
    return decay_cells(data, **epochs_at(scale, paper=256))


def decay_cells(data: str, **values: float) -> list[Cell]:
    """Both methods at their three weight decays on a dataset."""
    return [
        Cell(
            row,
            METHODS[method].TITLE,
            {"method": method, "data": data, "weight_decay": decay, **values},
        )
        for method, decays in DECAYS.items()
        for row, decay in zip(ROWS, decays, strict=True)
    ]


def check(results: Results) -> list[Claim]:
    """Growth, collapse, and what the usual decay does to norms and kNN.

    Without decay SimCLR's norms should grow; of SimSiam's the paper says that they shrink even so.
    """
    table = RunTable.of(results)
    titles = [METHODS[method].TITLE for method in DECAYS]
    methods = {title: [table[row, title, "text"] for row in ROWS] for title in titles}
    claims = []
    for method, (none, standard, high) in methods.items():
        grows = method == "SimCLR"
        claims += [
            _over_seeds(
                f"{method}: norms {'grow' if grows else 'shrink'} without weight decay (log of "
                "last over first)",
                [log_ratio(run.norms[-1], run.norms[0]) for run in none.runs],
                (0.0, math.inf) if grows else (-math.inf, 0.0),
                paper="grow unconstrained" if grows else "can shrink",
            ),
            _over_seeds(
                f"{method}: 5e-2 lets the kNN collapse (share lost)",
                [1 - a.knn / max(b.knn, 1e-9) for a, b in _by_seed(high, none)],
                (COLLAPSED, math.inf),
                paper="collapse",
            ),
            _over_seeds(
                f"{method}: the usual decay keeps norms below none's (log quotient)",
                [log_ratio(b.norm, a.norm) for a, b in _by_seed(standard, none)],
                (0.0, math.inf),
                paper="lower",
            ),
            _over_seeds(
                f"{method}: norms fall under the usual decay (log of first over last)",
                [log_ratio(run.norms[0], run.norms[-1]) for run in standard.runs],
                (0.0, math.inf),
                paper="fall",
            ),
            above(
                table,
                f"{method}: the usual decay improves the kNN (points)",
                standard,
                none,
                paper="improved",
            ),
        ]
    pairs = {method: (standard, none) for method, (none, standard, _) in methods.items()}
    claims.append(
        gains_more(
            table,
            "Weight decay improves SimSiam's kNN more than SimCLR's (points)",
            pairs["SimSiam"],
            pairs["SimCLR"],
            paper="much more pronounced",
        )
    )
    return claims


def _by_seed(cell: TrainedCell, base: TrainedCell) -> Iterator[tuple[TrainedRun, TrainedRun]]:
    return zip(cell.runs, base.runs, strict=True)


def _over_seeds(
    sentence: str, values: list[float], region: tuple[float, float], *, paper: str
) -> Claim:
    return Claim.over_seeds(sentence, values, region, paper=paper, recipe="text")


plot = plot_courses
