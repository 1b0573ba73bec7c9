"""Table "imbalanced_experiments": kNN of default, cut and GradScale training on unbalanced data.

Classes of CIFAR with exponentially fewer images from one to the next, and Flowers-102, trained on
its long-tailed test images and judged on its validation images. Lines are means, dots seeds.
Rates and ranks are those of Table accuracies.

    normscope reproduce imbalanced_experiments --scale small

Paper: ResNet-50, 500 epochs. At small scale ResNet-18 and 60 epochs; at smoke scale digits, of
which class i keeps a share of 1.5^-i.
"""

from __future__ import annotations

from normscope_paper.harness import (
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
    plot_cells,
    rate_and_rank,
)

TITLE = "Interventions on unbalanced data"
PLACE = "Table 5"
KIND = "training"
COST = "days on one GPU (23 cells of 500 epochs, three seeds)"
SEEDS: dict[Scale, int] = {"smoke": 2, "small": 2, "paper": 3}
kept = rate_and_rank

CIFAR = {"CIFAR-10 unb.": "cifar10-unbalanced", "CIFAR-100 unb.": "cifar100-unbalanced"}
FLOWERS = {"Flowers unb.": "flowers102"}
PRINTED = {
    row: dict(zip((*CIFAR, *FLOWERS), cells, strict=True))
    for row, cells in {
        "SimCLR, default": (56.5, 24.3, 42.6),
        "SimCLR, cut 3": (61.1, 26.3, 61.6),
        "SimCLR, GradScale": (61.3, 29.1, 47.2),
        "SimSiam, default": (47.0, 21.6, 22.5),
        "SimSiam, cut 9": (61.7, 31.5, 39.9),
    }.items()
}
MORE: dict[str, Printed] = {"rate": {}, "rank": {}}  # which the paper does not print


def cells(scale: Scale) -> list[Cell]:
    """Every cell; by the code's reading CIFAR-10's alone, except at paper scale."""
    columns = columns_at(scale, CIFAR, smoke="digits-unbalanced")
    epochs = epochs_at(scale, small=60, paper=500)
    found = intervention_cells(columns, PRINTED, **epochs)
    if scale != "smoke":
        found += intervention_cells(FLOWERS, PRINTED, **epochs)
        judged = columns if scale == "paper" else {"CIFAR-10 unb.": "cifar10-unbalanced"}
        coded = {column: f"{data}-as-coded" for column, data in judged.items()}
        found += intervention_cells(coded, PRINTED, recipe="as_coded", **epochs)
    return found


def check(results: Results) -> list[Claim]:
    """Each intervention against its default."""
    return intervention_claims(RunTable.of(results))


plot = plot_cells
