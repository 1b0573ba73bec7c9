"""Figure "cut_experiments": the cut constant against norms and kNN over epochs.

SimCLR, SimSiam and BYOL with their weights divided by c at the start, c below and above 1, and a
weight decay of 5e-4 in all of them: the mean embedding norm (above) and kNN (below) over epochs.

    normscope reproduce cut_experiments --scale small

Paper: ResNet-50 on CIFAR-10; no numbers are printed. Dividing "leads to immediate convergence
improvements in all models" and "degrades gracefully: as c > 1 becomes c < 1, the embeddings stay
large for longer and, as a result, the convergence is slower", and the cut has "a more pronounced
effect in attraction-only models".
"""

from __future__ import annotations

import math
from typing import Any

from normscope.methods import METHODS
from normscope_paper.harness import (
    Cell,
    Claim,
    Printed,
    Results,
    RunTable,
    Scale,
    StoredRun,
    above,
    datasets_at,
    epochs_at,
    finite,
    gains_more,
    highest_rate,
    log_ratio,
    plot_courses,
)

TITLE = "The cut constant, norms and kNN"
PLACE = "Figure 10"
KIND = "training"
COST = "days on one GPU (12 cells of 512 epochs, three seeds)"
SEEDS: dict[Scale, int] = {"smoke": 2, "small": 2, "paper": 3}

COMPARED = ("simclr", "simsiam", "byol")
CUTS: dict[Scale, tuple[float, ...]] = {
    "smoke": (1 / 3, 1.0, 3.0),
    "small": (1 / 3, 1.0, 3.0, 9.0),
    "paper": (1 / 3, 1.0, 3.0, 9.0),
}
DECAY = 5e-4
MORE: dict[str, Printed] = {"rate": {}}
EARLY = 8  # epochs after which "immediate" is judged


def cells(scale: Scale) -> list[Cell]:
    """Every cell."""
    (data,) = datasets_at(scale, "cifar10")
    return [
        Cell(
            f"c = {c:.2g}",
            METHODS[method].TITLE,
            {"method": method, "data": data, "cut": c, "weight_decay": DECAY}
            | epochs_at(scale, paper=512),
        )
        for method in COMPARED
        for c in CUTS[scale]
    ]


def check(results: Results) -> list[Claim]:
    """Early kNN and norms of each cut against none, and SimSiam's and BYOL's gain by SimCLR's."""
    table = RunTable.of(results)
    claims = []
    pairs = {}
    for method in (METHODS[name].TITLE for name in COMPARED):
        by_cut = {c: table[f"c = {c:.2g}", method, "text"] for c in CUTS[results.scale]}
        none = by_cut.pop(1.0)
        for c, cell in by_cut.items():
            better = c > 1
            claims.append(
                above(
                    table,
                    f"{method}, {cell.row}: {'faster' if better else 'slower'} than c = 1 "
                    f"(points of kNN by epoch {EARLY})",
                    cell,
                    none,
                    (0.0, math.inf) if better else (-math.inf, 0.0),
                    key="early",
                    paper="immediate improvement" if better else "slower",
                )
            )
            if not better:
                both = zip(cell.runs, none.runs, strict=True)
                claims.append(
                    Claim.over_seeds(
                        f"{method}, {cell.row}: norms stay above those of c = 1 (log quotient "
                        f"by epoch {EARLY})",
                        [log_ratio(a["early_norm"], b["early_norm"]) for a, b in both],
                        (0.0, math.inf),
                        paper="stay large for longer",
                        recipe="text",
                    )
                )
        pairs[method] = by_cut[3.0], none
    claims += [
        gains_more(
            table,
            f"c = 3 gains {method} more than SimCLR (points of kNN by epoch {EARLY})",
            pairs[method],
            pairs["SimCLR"],
            key="early",
            paper="more pronounced",
        )
        for method in ("SimSiam", "BYOL")
    ]
    return claims


def kept(run: StoredRun) -> dict[str, Any]:
    """The kNN and the norm after `EARLY` epochs, or at the end of a shorter run, and the rate."""
    seen = [record for record in run.metrics("epoch") if record["epoch"] <= EARLY][-1]
    early = {"early": finite(seen["knn"]), "early_norm": seen["norm_test"]}
    return early | highest_rate(run)


plot = plot_courses
