"""Steps of a known angle beside SGD: what is the optimizer's, and what a cut still does.

`AngularSGD` turns each weight matrix by a set angle a step and keeps its norm; its directions are
orthogonal matrices, or the momentum itself ("not orthogonal"). The rivals are SGD with the text's
rate and decay, with a cut, with GradScale, with the rate that the cut stands for, and with the best
of some rates and decays. Each angular arm has the best of four angles, SGD of no fewer settings.
These are chosen by kNN on a part of the training set that is held out; the arms are then trained
on the whole of it and judged on the test set. Batch and temperature are the same in all arms; the
text's own are a row of their own, which separates their share from the optimizer's. Steps of a
fixed angle ignore the size of a weight, so a cut should change nothing; a cut of all parameters
also divides gains and biases, which take SGD's steps. Dots are seeds, bars their mean.

    normscope reproduce angular --scale small --runs results/runs.jsonl --out again

Not in the paper. At small scale ResNet-18 for 40 epochs at batch 512 and, for SimCLR, temperature
.2. Settings are chosen on CIFAR-10 in 8 epochs and serve all datasets; where the best rate is the
highest or the lowest tried, one more is tried beyond it. The arms are the text's recipe, SGD and
`AngularSGD`, and for SimCLR the default too. At smoke scale all arms on digits, for a short
training of 10 epochs.
"""

from __future__ import annotations

import math
from itertools import product
from typing import Any

from matplotlib.figure import Figure

from normscope.methods import METHODS
from normscope.report import BLUE, new_figure
from normscope_paper.harness import (
    NOT_IN_PAPER,
    Cell,
    Claim,
    Results,
    RunTable,
    Scale,
    StoredRun,
    Sweep,
    above,
    finite,
    rounded,
    spec_at,
    train_cells,
)

TITLE = "Steps of a known angle"
PLACE = "not in the paper"
KIND = "training"
COST = "days on one GPU (ResNet-50, 130 cells of 100 epochs); small: some 25 minutes"
SEEDS: dict[Scale, int] = {"smoke": 3, "small": 2, "paper": 3}
EPOCHS: dict[Scale, int] = {"smoke": 10, "small": 40, "paper": 100}
TUNING_EPOCHS: dict[Scale, int] = {"smoke": 10, "small": 8, "paper": 100}

FURTHER: dict[Scale, int] = {"smoke": 0, "small": 1, "paper": 1}  # rates beyond an edge

CUTS = {"simclr": 3.0, "simsiam": 9.0, "byol": 9.0, "moco_v2": 3.0}
SGD, ANGULAR, PLAIN = "SGD, tuned", "angular", "angular, not orthogonal"
DEFAULT, TEXT = "default", "default, the text's batch and temperature"
CUT, SCALED, RAISED = "cut", "GradScale", "learning rate x c²"
ANGULAR_CUT, ANGULAR_CUT_WEIGHTS = "angular, cut", "angular, cut of weights"
ANGLES = (0.01, 0.02, 0.05, 0.1)
RATES, DECAYS = (1.0, 3.0, 9.0, 27.0), (5e-4, 1e-5)  # times the text's; as they are
_PLAIN = {"orthogonal": False}
TUNING_SEED = 1000  # of no arm of the table
LEVEL = 2.0  # points within which two arms count as level


def columns(scale: Scale) -> dict[str, str]:
    """The datasets by the name of their column; all arms are on the first alone."""
    if scale == "smoke":
        return {"digits": "digits"}
    return {"CIFAR-10": "cifar10", "CIFAR-10 unb.": "cifar10-unbalanced", "CIFAR-100": "cifar100"}


def methods(scale: Scale) -> list[str]:
    """What is trained; at small scale without MoCo v2."""
    return [method for method in CUTS if scale != "small" or method != "moco_v2"]


def shared(scale: Scale, method: str, data: str) -> dict[str, Any]:
    """The values of all of a method's arms."""
    values: dict[str, Any] = {"method": method, "data": data, "epochs": EPOCHS[scale]}
    if method == "simclr":
        values["options"] = {"temperature": 0.2}
    return values if scale == "smoke" else {**values, "batch": 512, "accumulate": 1}


def tries(scale: Scale, method: str) -> dict[str, list[dict[str, Any]]]:
    """By tuned arm, the settings that are tried."""
    (data, *_) = columns(scale).values()
    text = spec_at(scale, **shared(scale, method, data))
    rates = RATES[:3] if scale == "small" else RATES
    sgd = [{"lr": _short(text.lr * f), "weight_decay": d} for f, d in product(rates, DECAYS)]
    angular = [{"optimizer": "angular", "lr": angle} for angle in ANGLES]
    tried = {SGD: sgd, ANGULAR: angular}
    return tried if scale == "small" else {**tried, PLAIN: [a | _PLAIN for a in angular]}


def run(scale: Scale, seed: int, seeds: int, sweep: Sweep) -> Results:
    """Try every setting on held-out images, then train every arm with the best."""
    (data, *_) = columns(scale).values()
    compared = methods(scale)
    asked = [(m, arm, o) for m in compared for arm, some in tries(scale, m).items() for o in some]
    short = {"epochs": TUNING_EPOCHS[scale], "seed": TUNING_SEED}
    tuning: dict[str, dict[str, list[Any]]] = {method: {} for method in compared}
    for _ in range(1 + FURTHER[scale]):
        specs = [
            spec_at(scale, **{**shared(scale, method, f"{data}-held-out"), **one, **short})
            for method, _, one in asked
        ]
        for (method, arm, one), found in zip(asked, sweep.runs(specs), strict=True):
            tuning[method].setdefault(arm, []).append([one, rounded(finite(found.knn))])
        asked = [
            (m, arm, o) for m in compared for arm, some in tuning[m].items() for o in further(some)
        ]
    table = [
        cell
        for (column, on), method in product(columns(scale).items(), compared)
        if (scale, on) != ("small", "cifar100") or method == "simclr"
        for cell in _cells(scale, method, column, on, best(tuning[method]), whole=on == data)
    ]
    results = train_cells("angular", scale, seed, seeds, table, sweep, kept=kept)
    results.data["tuning"] = tuning
    return results


def further(some: list[Any]) -> list[dict[str, Any]]:
    """The tried settings at one more rate, if the best rate is the highest or the lowest tried."""
    rates = sorted({one["lr"] for one, _ in some})
    edge = best({"": some})[""]["lr"]
    if rates[0] < edge < rates[-1] or len(rates) == 1:
        return []
    inner = rates[1] if edge == rates[0] else rates[-2]
    return [{**one, "lr": _short(edge**2 / inner)} for one, _ in some if one["lr"] == edge]


def best(tuning: dict[str, list[Any]]) -> dict[str, dict[str, Any]]:
    """By tuned arm, its settings of the highest kNN; of equals the first."""
    return {arm: max(some, key=lambda one: one[1])[0] for arm, some in tuning.items()}


def kept(run: StoredRun) -> dict[str, Any]:
    """What the arm was trained with."""
    return {"lr": run.spec.lr, "weight_decay": run.spec.weight_decay}


def _cells(
    scale: Scale,
    method: str,
    column: str,
    data: str,
    tuned: dict[str, dict[str, Any]],
    *,
    whole: bool,
) -> list[Cell]:
    """A method's arms on a dataset; without interventions unless the whole is asked for."""
    values = shared(scale, method, data)
    text = spec_at(scale, **values)
    small = scale == "small"
    arms: dict[str, dict[str, Any]] = {DEFAULT: {}, **tuned}
    if small and (method != "simclr" or not whole):
        del arms[DEFAULT]
    if whole and not small:
        c = CUTS[method]
        arms |= {
            CUT: {"cut": c},
            SCALED: {"grad_scale": 1.0},
            RAISED: {
                "lr": _short(text.lr * c**2),
                "weight_decay": _short(text.weight_decay / c**2),
            },
            ANGULAR_CUT: {**tuned[ANGULAR], "cut": c},
            ANGULAR_CUT_WEIGHTS: {**tuned[ANGULAR], "cut": c, "cut_scope": "weights"},
        }
    place = f"{METHODS[method].TITLE}, {column}"
    cells = [Cell(row, place, {**values, **arm}) for row, arm in arms.items()]
    own = {"method": method, "data": data, "epochs": EPOCHS[scale]}
    if (whole or small) and spec_at(scale, **own) != text:
        cells.append(Cell(TEXT, place, own))
    return cells


def _short(value: float) -> float:
    """To three digits, so that a value computed on another machine names the same run."""
    return float(f"{value:.3g}")


def check(results: Results) -> list[Claim]:
    """What the angle brings beyond tuned SGD, what batch and temperature do, what a cut does."""
    table = RunTable.of(results)
    # the arm that may break varies far more than the others, and tells nothing of their noise
    steady = RunTable(table.key, [cell for cell in table.cells if cell.row != ANGULAR_CUT])
    more, level = (0.0, math.inf), (-LEVEL, LEVEL)
    small = results.scale == "small"
    compared = [
        (ANGULAR, DEFAULT, "above", more),
        (ANGULAR, SGD, "above", more),
        (PLAIN, SGD, "above", more),
        (ANGULAR, PLAIN, "above", more),
        (SGD, DEFAULT, "above", more),
        (DEFAULT, TEXT, "above", more),
        *([(ANGULAR, TEXT, "above", more), (SGD, TEXT, "above", more)] if small else []),
        (CUT, DEFAULT, "above", more),
        (SCALED, DEFAULT, "above", more),
        (RAISED, DEFAULT, "above", more),
        (ANGULAR_CUT_WEIGHTS, ANGULAR, "level with", level),
        (ANGULAR_CUT, ANGULAR, "level with", level),
    ]
    claims = []
    for column, (row, base, how, region) in product(table.columns, compared):
        cell, other = table.get(row, column), table.get(base, column)
        if cell and other:
            sentence = f"{column}: {row} is {how} {base} (points of kNN)"
            of = table if row == ANGULAR_CUT else steady
            claims.append(above(of, sentence, cell, other, region))
    tuning = results.data["tuning"]
    return claims + [_inside(results, method, arm) for method in tuning for arm in (SGD, ANGULAR)]


def _inside(results: Results, method: str, arm: str) -> Claim:
    """Whether the best rate lies inside those tried, so that more would not have been better."""
    some = results.data["tuning"][method][arm]
    rates = sorted({one["lr"] for one, _ in some})
    place = rates.index(best({arm: some})[arm]["lr"])
    sentence = f"{METHODS[method].TITLE}: {arm}'s best rate lies inside those tried (its place)"
    return Claim.exact(sentence, place, (1, len(rates) - 2), paper=NOT_IN_PAPER, recipe="text")


def plot(results: Results) -> Figure:
    """A panel for each method and dataset: every arm's seeds and mean."""
    table = RunTable.of(results)
    across = len(CUTS)
    figure = new_figure(2.4 + 2.3 * across, 0.8 + 2.9 * len(table.columns) / across)
    axes = figure.subplots(-(-len(table.columns) // across), across, sharey="row", squeeze=False)
    for ax, column in zip(axes.flat, table.columns, strict=True):
        for i, row in enumerate(table.rows):
            if cell := table.get(row, column):
                values = cell.per_cent("knn")
                ax.plot(values, [i] * len(values), "o", color="black", markersize=3, alpha=0.6)
                mean = sum(values) / len(values)
                ax.plot([mean], [i], "|", color=BLUE, markersize=14, markeredgewidth=2)
        ax.set_title(column)
        ax.set_xlabel("kNN, %")
        ax.set_yticks(range(len(table.rows)), table.rows)
        ax.set_ylim(len(table.rows) - 0.5, -0.5)
    return figure
