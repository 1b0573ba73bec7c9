"""Figure "weight_decay_ablation": weight decay against norms and kNN.

SimCLR and SimSiam without weight decay, with the usual, and with far too much: the mean embedding
norm (above; a line that leaves the panel goes on towards zero) and kNN (below) over epochs.

    normscope reproduce weight_decay_ablation --scale small

Paper: ResNet-50 on CIFAR-10, 256 epochs; no numbers are printed. Without decay norms "grow
unconstrained"; 5e-2 "causes collapse"; the usual lets them "decrease gradually, leading to improved
kNN accuracy", and the effect is "much more pronounced in the attraction-only setting".
"""

from __future__ import annotations

import math
from collections.abc import Callable

from matplotlib.figure import Figure

from normscope.experiments.cell_views import Printed, plot_courses
from normscope.experiments.cells import NAMES, Cell, cells_of, highest_rate, log_ratio, train_cells
from normscope.experiments.results import Claim, Results, Scale
from normscope.experiments.runs import datasets_at, epochs_at

TITLE = "Fig. weight_decay_ablation: weight decay, norms and kNN"
KIND = "training"
COST = "days on one GPU (6 cells of 256 epochs, three seeds)"
SEEDS: dict[Scale, int] = {"smoke": 2, "small": 3, "paper": 3}

DECAYS = {"simclr": (0.0, 1e-5, 5e-2), "simsiam": (0.0, 5e-4, 5e-2)}
ROWS = ("no weight decay", "standard weight decay", "high weight decay")
NONE, STANDARD, HIGH = ROWS
MORE: dict[str, Printed] = {"rate": {}}
COLLAPSED = 0.5  # of the kNN without decay: what is below it counts as collapsed


def run(scale: Scale, seed: int, seeds: int) -> Results:
    """Train every cell."""
    (data,) = datasets_at(scale, "cifar10")
    cells = decay_cells(data, **epochs_at(scale, paper=256))
    return train_cells("weight_decay_ablation", scale, seed, seeds, cells, kept=highest_rate)


def decay_cells(data: str, **values: float) -> list[Cell]:
    """Both methods at their three weight decays on a dataset."""
    return [
        Cell(row, NAMES[method], {"method": method, "data": data, "weight_decay": decay, **values})
        for method, decays in DECAYS.items()
        for row, decay in zip(ROWS, decays, strict=True)
    ]


def check(results: Results) -> list[Claim]:
    """Growth, collapse, and what the usual decay does to norms and kNN.

    Without decay SimCLR's norms should grow; of SimSiam's the paper says that they shrink even so.
    """
    told = {
        name: (sentence, paper, least)
        for name, sentence, paper, least in (
            ("collapses", "5e-2 lets the kNN collapse (share lost)", "collapse", COLLAPSED),
            ("shrinks", "the usual decay keeps norms below none's (log quotient)", "lower", 0.0),
            ("falls", "norms fall under the usual decay (log of first over last)", "fall", 0.0),
            ("helps", "the usual decay improves the kNN (points)", "improved", 0.0),
        )
    }
    claims = []
    gains: dict[str, list[float]] = {}
    for method in NAMES.values():
        values = _by_seed(results, method)
        if not values:
            continue
        gains[method] = values["helps"]
        grows = method == "SimCLR"
        claims.append(
            Claim.over_seeds(
                f"{method}: norms {'grow' if grows else 'shrink'} without weight decay (log of "
                "last over first)",
                values["grows"],
                (0.0, math.inf) if grows else (-math.inf, 0.0),
                paper="grow unconstrained" if grows else "can shrink",
                recipe="text",
            )
        )
        for name, (sentence, paper, least) in told.items():
            claims.append(
                Claim.over_seeds(
                    f"{method}: {sentence}",
                    values[name],
                    (least, math.inf),
                    paper=paper,
                    recipe="text",
                )
            )
    more = zip(gains["SimSiam"], gains["SimCLR"], strict=True)
    claims.append(
        Claim.over_seeds(
            "Weight decay improves SimSiam's kNN more than SimCLR's (points)",
            [a - b for a, b in more],
            (0.0, math.inf),
            paper="much more pronounced",
            recipe="text",
        )
    )
    return claims


def _by_seed(results: Results, method: str) -> dict[str, list[float]]:
    """What each claim is about, by seed."""
    cells = cells_of(results)
    if (NONE, method, "text") not in cells:
        return {}
    none, standard, high = (cells[row, method, "text"]["runs"] for row in ROWS)

    def each(number: Callable[..., float], *rows: list) -> list[float]:
        return [number(*runs) for runs in zip(*rows, strict=True)]

    return {
        "grows": each(lambda run: log_ratio(run["norms"][-1], run["norms"][0]), none),
        "falls": each(lambda run: log_ratio(run["norms"][0], run["norms"][-1]), standard),
        "collapses": each(lambda run, other: 1 - run["knn"] / max(other["knn"], 1e-9), high, none),
        "shrinks": each(lambda run, other: log_ratio(other["norm"], run["norm"]), standard, none),
        "helps": each(lambda run, other: 100 * (run["knn"] - other["knn"]), standard, none),
    }


def plot(results: Results) -> Figure:
    """Norms and kNN over epochs."""
    return plot_courses(results)
