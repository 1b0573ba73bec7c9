"""Which ingredient of the recipe decides whether the cut helps SimSiam.

The text's recipe and the published code's differ in learning rate, in weight decay for each unit of
learning rate (gradients are summed over eight micro-batches, so that decay counts an eighth), in
warm-up and horizon, in the micro-batch that batch norm sees, and in the predictor's own learning
rate. The text's recipe with one of them taken from the code at a time, and the code's own: kNN with
the weights divided by 9 beside kNN without.

    normscope reproduce simsiam_recipes --scale small

Not in the paper, whose claim is that the cut helps (Tables accuracies, wd_cut). ResNet-18 on
CIFAR-10, 30 epochs at small scale.
"""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure

from normscope.experiments.cell_views import plot_courses
from normscope.experiments.cells import Cell, Recipe, above, cells_of, train_cells
from normscope.experiments.results import Claim, Results, Scale
from normscope.experiments.runs import epochs_at
from normscope.methods import METHODS

TITLE = "Which ingredient decides on SimSiam's cut (not in the paper)"
KIND = "training"
COST = "days on one GPU (14 cells of 100 epochs, three seeds)"
SEEDS: dict[Scale, int] = {"smoke": 2, "small": 2, "paper": 3}
CUT = 9.0
ROWS = {"default": 1.0, "cut 9": CUT}


def ingredients(scale: Scale) -> dict[str, dict[str, Any]]:
    """The values that differ from the text's recipe, by the ingredient's name."""
    text, code = METHODS["simsiam"].TEXT, METHODS["simsiam"].AS_CODED
    assert code is not None
    assert code.micro_batch is not None
    parts = code.batch // code.micro_batch  # whose gradients the code sums
    swapped = {
        "text": {},
        "code's learning rate": {"lr": code.lr * parts},
        "code's weight decay": {"weight_decay": text.weight_decay / parts},
        "code's schedule": {
            "warmup_epochs": float(code.warmup_epochs),
            "horizon_epochs": float(code.horizon_epochs or 0),
            "cosine_start": code.cosine_start,
        },
        "code's micro-batch": {"accumulate": parts},
        "code's predictor": {"predictor_lr": code.predictor_lr, "nesterov": code.nesterov},
        "as coded": {"recipe": "as_coded"},
    }
    if scale == "smoke":  # digits have batches of their own
        return {name: swapped[name] for name in ("text", "code's weight decay", "as coded")}
    return swapped


def run(scale: Scale, seed: int, seeds: int) -> Results:
    """Train every recipe, with and without the cut."""
    data = "digits" if scale == "smoke" else "cifar10"
    epochs = epochs_at(scale, paper=100)
    cells = []
    for name, values in ingredients(scale).items():
        recipe: Recipe = values.get("recipe", "text")
        shared = {"method": "simsiam", "data": data, "recipe": recipe, **epochs, **values}
        cells += [
            Cell(row, name, {**shared, "cut": cut}, recipe="text") for row, cut in ROWS.items()
        ]
    return train_cells("simsiam_recipes", scale, seed, seeds, cells)


def check(results: Results) -> list[Claim]:
    """The cut's gain under each recipe."""
    cells = cells_of(results)
    claims = []
    for name in dict.fromkeys(column for _, column, _ in cells):
        default, cut = (cells[row, name, "text"] for row in ROWS)
        told = name if name in ("text", "as coded") else f"text with the {name}"
        sentence = "Cut 9 is above SimSiam's default (points of kNN)"
        claims.append(above(results, sentence, cut, default, recipe=told))
    return claims


def plot(results: Results) -> Figure:
    """Norms and kNN over epochs under each recipe."""
    return plot_courses(results)
