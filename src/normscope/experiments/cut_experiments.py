"""Figure "cut_experiments": the cut constant against norms and kNN over epochs.

SimCLR, SimSiam and BYOL with their weights divided by c at the start, c below and above 1, and a
weight decay of 5e-4 in all of them: the mean embedding norm (above) and kNN (below) over epochs.

    normscope reproduce cut_experiments --scale small

Paper: ResNet-50 on CIFAR-10; no numbers are printed. Dividing "leads to immediate convergence
improvements in all models" and "degrades gracefully: as c > 1 becomes c < 1 ... the convergence is
slower", "more pronounced in attraction-only models".
"""

from __future__ import annotations

import math

from matplotlib.figure import Figure

from normscope.experiments.cell_views import plot_courses
from normscope.experiments.cells import NAMES, Cell, Record, cells_of, course, train_cells
from normscope.experiments.comparisons import above, difference
from normscope.experiments.ledger import Run
from normscope.experiments.results import Claim, Results, Scale
from normscope.experiments.runs import datasets_at, epochs_at

TITLE = "Fig. cut_experiments: the cut, norms and kNN over epochs"
KIND = "training"
COST = "days on one GPU (12 cells of 512 epochs, three seeds)"
SEEDS: dict[Scale, int] = {"smoke": 2, "small": 2, "paper": 3}

METHODS = ("simclr", "simsiam", "byol")
CUTS: dict[Scale, tuple[float, ...]] = {
    "smoke": (1 / 3, 1.0, 3.0),
    "small": (1 / 3, 1.0, 3.0, 9.0),
    "paper": (1 / 3, 1.0, 3.0, 9.0),
}
DECAY = 5e-4
EARLY = 8  # epochs after which "immediate" is judged


def run(scale: Scale, seed: int, seeds: int) -> Results:
    """Train every cell."""
    (data,) = datasets_at(scale, "cifar10")
    cells = [
        Cell(
            f"c = {c:.2g}",
            NAMES[method],
            {"method": method, "data": data, "cut": c, "weight_decay": DECAY}
            | epochs_at(scale, paper=512),
        )
        for method in METHODS
        for c in CUTS[scale]
    ]
    return train_cells("cut_experiments", scale, seed, seeds, cells, kept=_early)


def check(results: Results) -> list[Claim]:
    """Early kNN of each cut against none, and SimSiam's and BYOL's gain against SimCLR's."""
    cells = cells_of(results)
    claims = []
    gains: dict[str, list[float]] = {}
    for method in (NAMES[method] for method in METHODS):
        slow, none, *faster = (cells[f"c = {c:.2g}", method, "text"] for c in CUTS[results.scale])
        for cell in (slow, *faster):
            better = cell is not slow
            claims.append(
                above(
                    results,
                    f"{method}, {cell['row']}: {'faster' if better else 'slower'} than c = 1 "
                    f"(points of kNN by epoch {EARLY})",
                    cell,
                    none,
                    (0.0, math.inf) if better else (-math.inf, 0.0),
                    key="early",
                    paper="immediate improvement" if better else "slower",
                )
            )
            if cell["row"] == f"c = {3.0:.2g}":
                gains[method], _ = difference(results, cell, none, "early")
    for method in ("SimSiam", "BYOL"):
        claims.append(
            Claim.over_seeds(
                f"c = 3 gains {method} more than SimCLR (points of kNN by epoch {EARLY})",
                [a - b for a, b in zip(gains[method], gains["SimCLR"], strict=True)],
                (0.0, math.inf),
                paper="more pronounced",
                recipe="text",
            )
        )
    return claims


def _early(run: Run) -> Record:
    """The kNN after `EARLY` epochs, or at the end of a shorter run."""
    seen = course(run)
    early = [k for epoch, k in zip(seen["epochs"], seen["knns"], strict=True) if epoch <= EARLY]
    return {"early": early[-1]}


def plot(results: Results) -> Figure:
    """Norms and kNN over epochs."""
    return plot_courses(results)
