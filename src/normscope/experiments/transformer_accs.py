"""Table "transformer_accs": MoCo v2, MoCo v3 and DINO with and without a cut.

kNN, right at the first and within the first five guesses. DINO's loss knows no cosine, and the
paper says that a cut does not help it.

    normscope reproduce transformer_accs --scale small

Paper: ImageNet-100, 100 epochs. At small scale CIFAR-100 and 30 epochs; MoCo v2 has a ResNet-18,
the others a ViT-Tiny.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from matplotlib.figure import Figure

from normscope.experiments.cell_views import Printed, plot_cells
from normscope.experiments.cells import NAMES, Cell, Record, train_cells
from normscope.experiments.comparisons import gains
from normscope.experiments.ledger import Run
from normscope.experiments.results import Claim, Results, Scale
from normscope.experiments.runs import epochs_at

TITLE = "Table transformer_accs: MoCo and DINO"
KIND = "training"
COST = "days on one GPU (6 cells of 100 epochs, three seeds)"
SEEDS: dict[Scale, int] = {"smoke": 2, "small": 3, "paper": 3}

METHODS = ("moco_v2", "moco_v3", "dino")
CUTS = (1.0, 3.0)
NETS: dict[Scale, dict[str, dict[str, Any]]] = {
    "smoke": {},
    "small": {"moco_v3": {"net": "vit_tiny_fixed"}, "dino": {"net": "vit_tiny"}},
    "paper": {"moco_v3": {"net": "vit_small_fixed"}, "dino": {"net": "vit_small"}},
}
COLUMNS: dict[Scale, str] = {
    "smoke": "digits",
    "small": "CIFAR-100 (the paper: ImageNet-100)",
    "paper": "ImageNet-100",
}
PRINTED = {  # method -> by cut, top-1 and top-5
    "moco_v2": ((38.7, 69.7), (43.8, 71.8)),
    "moco_v3": ((54.8, 82.7), (58.8, 86.0)),
    "dino": ((43.7, 76.6), (29.0, 55.6)),
}


def _row(method: str, cut: float) -> str:
    return f"{NAMES[method]}, {'default' if cut == 1 else f'cut {cut:g}'}"


MORE: dict[str, Printed] = {
    "knn_top5": {
        (_row(method, cut), column): top5
        for method, printed in PRINTED.items()
        for cut, (_, top5) in zip(CUTS, printed, strict=True)
        for column in (COLUMNS["small"], COLUMNS["paper"])
    }
}


def run(scale: Scale, seed: int, seeds: int) -> Results:
    """Train every cell."""
    data = {"smoke": "digits", "small": "cifar100", "paper": "imagenet100"}[scale]
    cells = []
    for method in METHODS:
        for cut, (paper, _) in zip(CUTS, PRINTED[method], strict=True):
            values = {"method": method, "data": data, "cut": cut}
            values |= NETS[scale].get(method, {}) | epochs_at(scale, paper=100)
            shown = None if scale == "smoke" else paper
            cells.append(Cell(_row(method, cut), COLUMNS[scale], values, shown))
    return train_cells("transformer_accs", scale, seed, seeds, cells, kept=_top5)


def _top5(run: Run) -> Record:
    return {"knn_top5": run.metrics("epoch")[-1]["knn_top5"] or 0.0}


def check(results: Results) -> list[Claim]:
    """The cut against none, at the first guess and within five."""
    claims = []
    for method in METHODS:
        rows = _row(method, CUTS[1]), _row(method, CUTS[0])
        claims += gains(results, *rows)
        for claim in gains(results, *rows, "knn_top5"):
            before, after = (printed[1] for printed in PRINTED[method])
            if results.scale != "smoke":
                claim = dataclasses.replace(claim, paper=f"{after - before:+.1f}")
            claims.append(claim)
    return claims


def plot(results: Results) -> Figure:
    """The first guesses as dots."""
    return plot_cells(results)
