"""Figure "weight_decay_imbalanced": weight decay on unbalanced CIFAR-10.

As in weight_decay_ablation, with classes of exponentially fewer images; below, what the
paper calls the effective learning rate, the learning rate over the mean embedding norm.

    normscope reproduce weight_decay_imbalanced --scale small

Paper: ResNet-50; no numbers are printed. High weight decay "does not perform as poorly on SimCLR"
as on balanced data "and, on SimSiam, outperforms the other weight decay options".
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from matplotlib.figure import Figure

from normscope.report import BLUE, GREEN, PINK, new_figure
from normscope_paper.figures.weight_decay_ablation import HIGH, NONE, ROWS, STANDARD, decay_cells
from normscope_paper.harness import (
    Cell,
    Claim,
    Results,
    RunTable,
    Scale,
    StoredRun,
    datasets_at,
    epochs_at,
    gains,
)

TITLE = "Weight decay on unbalanced data"
PLACE = "Figure 9"
KIND = "training"
COST = "a day on one GPU (6 cells of 256 epochs, three seeds)"
SEEDS: dict[Scale, int] = {"smoke": 2, "small": 3, "paper": 3}
BALANCED = "SimCLR, balanced"


def cells(scale: Scale) -> list[Cell]:
    """Every cell, and SimCLR's on balanced data, which weight_decay_ablation has too."""
    (whole,) = datasets_at(scale, "cifar10")
    epochs = epochs_at(scale, paper=256)
    balanced = [
        dataclasses.replace(cell, column=BALANCED)
        for cell in decay_cells(whole, **epochs)
        if cell.column == "SimCLR" and cell.row != NONE
    ]
    return decay_cells(f"{whole}-unbalanced", **epochs) + balanced


def kept(run: StoredRun) -> dict[str, Any]:
    """The effective learning rate at the end of each epoch that has a kNN."""
    ends = {record["epoch"]: record["lr_over_norm"] for record in run.metrics("step")}
    return {"rates": [ends.get(record["epoch"]) for record in run.metrics("epoch")]}


def check(results: Results) -> list[Claim]:
    """What high weight decay is worth here."""
    table = RunTable.of(results)
    claims = [
        dataclasses.replace(claim, paper="outperforms")
        for base in (NONE, STANDARD)
        for claim in gains(table, HIGH, base)
        if "SimSiam" in claim.sentence
    ]
    claims += [
        dataclasses.replace(claim, paper="improves the convergence of both")
        for claim in gains(table, STANDARD, NONE)
    ]
    lost = {}
    for column in ("SimCLR", BALANCED):
        runs = (table[row, column, "text"].runs for row in (HIGH, STANDARD))
        lost[column] = [1 - a.knn / max(b.knn, 1e-9) for a, b in zip(*runs, strict=True)]
    less = zip(lost[BALANCED], lost["SimCLR"], strict=True)
    claims.append(
        Claim.over_seeds(
            "High weight decay costs SimCLR less kNN than on balanced data (share of the usual's)",
            [a - b for a, b in less],
            (0.0, math.inf),
            paper="not as poorly",
            recipe="text",
        )
    )
    return claims


def plot(results: Results) -> Figure:
    """Norms, kNN and effective learning rates over epochs."""
    table = RunTable.of(results)
    columns = ("SimCLR", "SimSiam")
    figure = new_figure(1 + 3.3 * len(columns), 7.6)
    axes = figure.subplots(3, len(columns), sharex="col", squeeze=False)
    for ax, column in zip(axes.T, columns, strict=True):
        for row, color in zip(ROWS, (BLUE, GREEN, PINK), strict=True):
            for i, run in enumerate(table[row, column, "text"].runs):
                shown = {"color": color, "marker": "o", "markersize": 3, "linewidth": 1.2}
                label = row if i == 0 and column == columns[0] else None
                series = (run.norms, [100 * x for x in run.knns], run["rates"])
                for panel, values in zip(ax, series, strict=True):
                    values = [math.nan if x is None else x for x in values]
                    panel.plot(run.epochs, values, **shown, label=label)
        ax[0].set_title(column)
        ax[0].set_yscale("log")
        ax[2].set_yscale("log")
        ax[2].set_xscale("log", base=2)
        ax[2].set_xlabel("epoch")
    for ax, label in zip(axes[:, 0], ("norm", "kNN, %", "learning rate / norm"), strict=True):
        ax.set_ylabel(label)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3)
    return figure
