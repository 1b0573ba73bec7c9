"""Tables of training runs: what stands in a cell, what two cells say, and how they are drawn."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from normscope.engine import RunResult
from normscope.experiments.results import (
    NOT_IN_PAPER,
    Claim,
    Results,
    Scale,
    mean_interval,
    rounded,
)
from normscope.experiments.runs import spec_at, trained
from normscope.report.figures import BLUE, GREEN, GREY, ORANGE, PINK, SKY, YELLOW, new_figure

Recipe = Literal["text", "as_coded"]
Record = dict[str, Any]  # what is kept of a run

# What Section 6 compares, by method: the values of a spec.
INTERVENTIONS: dict[str, dict[str, dict[str, Any]]] = {
    "simclr": {"default": {}, "cut 3": {"cut": 3.0}, "GradScale": {"grad_scale": 1.0}},
    "simsiam": {"default": {}, "cut 9": {"cut": 9.0}},
}
NAMES = {
    "simclr": "SimCLR",
    "simsiam": "SimSiam",
    "byol": "BYOL",
    "moco_v2": "MoCo v2",
    "moco_v3": "MoCo v3",
    "dino": "DINO",
}
_COLORS = (BLUE, GREEN, PINK, SKY, YELLOW, GREY)


@dataclass(frozen=True)
class Cell:
    """One cell of a table.

    Args:
        row: what is compared, such as "SimCLR, cut 3".
        column: on what, such as "CIFAR-10".
        values: of the spec that is trained for it, but for scale and seed.
        paper: what the paper prints there; None where it prints nothing.
        recipe: which reading of the paper.
    """

    row: str
    column: str
    values: Mapping[str, Any]
    paper: float | None = None
    recipe: Recipe = "text"


def columns_at(scale: Scale, columns: Mapping[str, str], smoke: str = "digits") -> dict[str, str]:
    """The datasets of a table by the name of their column; at smoke scale digits alone."""
    return {smoke: smoke} if scale == "smoke" else dict(columns)


def recipes_at(scale: Scale) -> tuple[Recipe, ...]:
    """Both readings; at smoke scale, which judges nothing of the paper's data, the text's."""
    return ("text",) if scale == "smoke" else ("text", "as_coded")


def intervention_cells(
    columns: Mapping[str, str],
    printed: Mapping[str, Mapping[str, float]],
    *,
    recipe: Recipe = "text",
    **values: Any,
) -> list[Cell]:
    """Default, cut and GradScale of SimCLR and SimSiam on each column.

    Args:
        columns: datasets by the name of their column.
        printed: the paper's cells, row -> column -> per cent.
        recipe: which reading.
        values: of every spec.
    """
    return [
        Cell(
            row := f"{NAMES[method]}, {name}",
            column,
            {"method": method, "data": data, "recipe": recipe, **given, **values},
            printed.get(row, {}).get(column),
            recipe,
        )
        for column, data in columns.items()
        for method, interventions in INTERVENTIONS.items()
        for name, given in interventions.items()
    ]


def train_cells(
    experiment: str,
    scale: Scale,
    seed: int,
    seeds: int,
    cells: Sequence[Cell],
    kept: Callable[[RunResult], Record] | None = None,
) -> Results:
    """Train what every cell asks for; all cells with the first seed, then with the next.

    Args:
        experiment: its ID.
        scale: of the runs.
        seed: the first.
        seeds: how many.
        cells: what to train.
        kept: what is kept of a run beside `course`.
    """
    runs: list[list[Record]] = [[] for _ in cells]
    for s in range(seed, seed + seeds):
        for cell, every in zip(cells, runs, strict=True):
            spec = spec_at(scale, **{"seed": s, **cell.values})
            result = trained(spec)
            every.append({"run": spec.name, **course(result), **(kept(result) if kept else {})})
    data = [{**asdict(c), "runs": rounded(every)} for c, every in zip(cells, runs, strict=True)]
    return Results(experiment, scale, seeds, seed, {"cells": data})


def course(result: RunResult) -> Record:
    """The kNN and norm of a run at its end and, as lists, after 1, 2, 4, ... epochs.

    A network that broke has no kNN: it counts as 0.
    """
    epochs = [r for r in result.metrics("epoch") if "knn" in r]
    return {
        "knn": _finite(result.knn),
        "norm": None if math.isnan(result.norm) else result.norm,
        "epochs": [r["epoch"] for r in epochs],
        "knns": [_finite(r["knn"]) for r in epochs],
        "norms": [r["norm_test"] for r in epochs],
    }


def _finite(value: float | None) -> float:
    return 0.0 if value is None or math.isnan(value) else value


# ------------------------------------------------------------------------- claims


def cells_of(results: Results) -> dict[tuple[str, str, str], dict[str, Any]]:
    """The cells of stored results by row, column and recipe."""
    return {(c["row"], c["column"], c["recipe"]): c for c in results.data["cells"]}


def per_cent(cell: Mapping[str, Any], key: str = "knn") -> list[float]:
    """A share of every seed's run, in per cent."""
    return [100 * run[key] for run in cell["runs"]]


def gains(results: Results, better: str, base: str, *, key: str = "knn") -> Iterator[Claim]:
    """For each column and recipe that has both rows: whether one is above the other, as printed.

    Where the paper has it below, the claim is that it is below; where it prints nothing, the claim
    is ours.
    """
    cells = cells_of(results)
    for (row, column, recipe), cell in cells.items():
        other = cells.get((base, column, recipe))
        if row != better or other is None:
            continue
        printed = None
        if cell["paper"] is not None and other["paper"] is not None:
            printed = cell["paper"] - other["paper"]
        below = printed is not None and printed < 0
        yield Claim.over_seeds(
            f"{better} is {'below' if below else 'above'} {base} on {column} (points of "
            f"{key.replace('_', ' ')})",
            [a - b for a, b in zip(per_cent(cell, key), per_cent(other, key), strict=True)],
            (-math.inf, 0.0) if below else (0.0, math.inf),
            paper=NOT_IN_PAPER if printed is None else f"{printed:+.1f}",
            recipe=recipe,
        )


def intervention_claims(results: Results, *, key: str = "knn") -> list[Claim]:
    """Each intervention against its method's default."""
    return [
        claim
        for method, interventions in INTERVENTIONS.items()
        for name in list(interventions)[1:]
        for claim in gains(
            results, f"{NAMES[method]}, {name}", f"{NAMES[method]}, default", key=key
        )
    ]


# ------------------------------------------------------------------------- pictures


def plot_cells(results: Results, *, key: str = "knn", label: str = "kNN, %") -> Figure:
    """A panel for each column: every row's seeds and mean beside the paper's cell."""
    cells = cells_of(results)
    columns = list(dict.fromkeys(column for _, column, _ in cells))
    rows = list(dict.fromkeys(row for row, _, _ in cells))
    figure = new_figure(1.2 + 3.2 * len(columns), 1.1 + 0.42 * len(rows))
    axes = figure.subplots(1, len(columns), sharey=True, squeeze=False)[0]
    for ax, column in zip(axes, columns, strict=True):
        _rows_of(ax, rows, {k: c for k, c in cells.items() if k[1] == column}, key)
        ax.set_title(column)
        ax.set_xlabel(label)
    axes[0].set_yticks(range(len(rows)), rows)
    axes[0].invert_yaxis()
    if len(rows) > 0:
        handles = {}
        for ax in axes:
            handles |= dict(zip(*reversed(ax.get_legend_handles_labels()), strict=True))
        figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=3)
    return figure


def _rows_of(ax: Axes, rows: list[str], cells: Mapping[Any, Any], key: str) -> None:
    recipes = list(dict.fromkeys(recipe for _, _, recipe in cells))
    for i, recipe in enumerate(recipes):
        shift = 0.16 * (i - (len(recipes) - 1) / 2)
        name, color = f"ours, {recipe.replace('_', ' ')}", _COLORS[i]
        for (row, _, of), cell in cells.items():
            if of != recipe:
                continue
            place, values = rows.index(row) + shift, per_cent(cell, key)
            ax.plot(values, [place] * len(values), "o", color=color, markersize=3, alpha=0.5)
            mean = sum(values) / len(values)
            ax.plot([mean], [place], "|", color=color, markersize=13, label=name)
    printed = {row: cell["paper"] for (row, _, _), cell in cells.items()}
    known = [(value, rows.index(row)) for row, value in printed.items() if value is not None]
    if known:
        ax.plot(*zip(*known, strict=True), "x", color=ORANGE, label="paper")


def plot_courses(results: Results, *, recipe: Recipe = "text") -> Figure:
    """Norm above and kNN below over epochs: a panel for each column, a line for each row."""
    cells = {k: c for k, c in cells_of(results).items() if k[2] == recipe}
    columns = list(dict.fromkeys(column for _, column, _ in cells))
    rows = list(dict.fromkeys(row for row, _, _ in cells))
    figure = new_figure(1 + 3.3 * len(columns), 5.6)
    axes = figure.subplots(2, len(columns), sharex="col", squeeze=False)
    for ax, column in zip(axes.T, columns, strict=True):
        for row, color in zip(rows, _COLORS, strict=False):
            cell = cells.get((row, column, recipe))
            for run in [] if cell is None else cell["runs"]:
                shown = {"color": color, "marker": "o", "markersize": 3, "linewidth": 1.2}
                norms = [math.nan if x is None else x for x in run["norms"]]
                ax[0].plot(run["epochs"], norms, **shown, label=row)
                ax[1].plot(run["epochs"], [100 * x for x in run["knns"]], **shown)
        ax[0].set_title(column)
        ax[0].set_yscale("log")
        ax[1].set_xscale("log", base=2)
        ax[1].set_xlabel("epoch")
    axes[0, 0].set_ylabel("embedding norm")
    axes[1, 0].set_ylabel("kNN, %")
    handles = {}
    for ax in axes[0]:
        handles |= dict(zip(*reversed(ax.get_legend_handles_labels()), strict=True))
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=4)
    return figure


def cells_markdown(results: Results, key: str = "knn") -> str:
    """The table with the paper's cells beside ours: mean, interval, (paper)."""
    cells = cells_of(results)
    columns = list(dict.fromkeys((column, recipe) for _, column, recipe in cells))
    lines = ["| | " + " | ".join(f"{c}, {r.replace('_', ' ')}" for c, r in columns) + " |"]
    lines.append("|---" * (1 + len(columns)) + "|")
    for row in dict.fromkeys(row for row, _, _ in cells):
        texts = [_ours_and_paper(cells.get((row, *place)), key) for place in columns]
        lines.append(f"| {row} | " + " | ".join(texts) + " |")
    return "\n".join(lines)


def _ours_and_paper(cell: Mapping[str, Any] | None, key: str) -> str:
    if cell is None:
        return "-"
    values = per_cent(cell, key)
    text = f"{sum(values) / len(values):.1f}"
    if len(values) > 1:
        mean, (_, high) = mean_interval(values)
        text += f" ± {high - mean:.1f}"
    return text + ("" if cell["paper"] is None else f" (paper: {cell['paper']:g})")
