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

from normscope.methods import METHODS
from normscope_paper.harness import (
    Cell,
    Claim,
    Printed,
    Results,
    RunTable,
    Scale,
    StoredRun,
    epochs_at,
    finite,
    gains,
    plot_cells,
)

TITLE = "MoCo and DINO with and without a cut"
PLACE = "Table 3"
KIND = "training"
COST = "days on one GPU (6 cells of 100 epochs, three seeds)"
SEEDS: dict[Scale, int] = {"smoke": 2, "small": 3, "paper": 3}

COMPARED = ("moco_v2", "moco_v3", "dino")
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
    return f"{METHODS[method].TITLE}, {'default' if cut == 1 else f'cut {cut:g}'}"


MORE: dict[str, Printed] = {
    "knn_top5": {
        (_row(method, cut), column): top5
        for method, printed in PRINTED.items()
        for cut, (_, top5) in zip(CUTS, printed, strict=True)
        for column in (COLUMNS["small"], COLUMNS["paper"])
    }
}


def cells(scale: Scale) -> list[Cell]:
    """Every cell."""
    data = {"smoke": "digits", "small": "cifar100", "paper": "imagenet100"}[scale]
    found = []
    for method in COMPARED:
        for cut, (paper, _) in zip(CUTS, PRINTED[method], strict=True):
            values = {"method": method, "data": data, "cut": cut}
            values |= NETS[scale].get(method, {}) | epochs_at(scale, paper=100)
            shown = None if scale == "smoke" else paper
            found.append(Cell(_row(method, cut), COLUMNS[scale], values, shown))
    return found


def kept(run: StoredRun) -> dict[str, Any]:
    """The kNN within five guesses."""
    return {"knn_top5": finite(run.metrics("epoch")[-1]["knn_top5"])}


def check(results: Results) -> list[Claim]:
    """The cut against none, at the first guess and within five."""
    table, claims = RunTable.of(results), []
    for method in COMPARED:
        rows = _row(method, CUTS[1]), _row(method, CUTS[0])
        claims += gains(table, *rows)
        for claim in gains(table, *rows, "knn_top5"):
            before, after = (printed[1] for printed in PRINTED[method])
            if results.scale != "smoke":
                claim = dataclasses.replace(claim, paper=f"{after - before:+.1f}")
            claims.append(claim)
    return claims


plot = plot_cells
