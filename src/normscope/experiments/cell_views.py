"""Tables of training runs as pictures and as Markdown, ours beside the paper's."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from itertools import cycle
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from normscope.experiments.cells import NO_SHARES, WORDS, broken, cells_of, per_cent
from normscope.experiments.results import Results
from normscope.report.figures import BLUE, GREEN, GREY, ORANGE, PINK, SKY, YELLOW, new_figure

COLORS = (BLUE, GREEN, PINK, SKY, YELLOW, GREY, ORANGE)
Printed = Mapping[tuple[str, str], float | None]  # the paper's cells, by row and column
_DEEP = 1e-6  # of the largest norm: a norm below it has vanished, and would flatten all others


def plot_cells(results: Results) -> Figure:
    """A panel for each column: every row's seeds and mean beside the paper's cell."""
    cells, key = cells_of(results), results.data["key"]
    columns = list(dict.fromkeys(column for _, column, _ in cells))
    rows = list(dict.fromkeys(row for row, _, _ in cells))
    figure = new_figure(1.2 + 3.2 * len(columns), 1.1 + 0.42 * len(rows))
    axes = figure.subplots(1, len(columns), sharey=True, squeeze=False)[0]
    for ax, column in zip(axes, columns, strict=True):
        _rows_of(ax, rows, {k: c for k, c in cells.items() if k[1] == column}, key)
        ax.set_title(column)
        ax.set_xlabel(f"{WORDS[key]}, %")
    axes[0].set_yticks(range(len(rows)), rows)
    axes[0].set_ylim(len(rows) - 0.5, -0.5)  # the first row on top, none on the edge
    legend_below(figure, list(axes))
    return figure


def legend_below(figure: Figure, axes: list[Axes], across: int = 4) -> None:
    """One below all panels, each name once, so many beside each other."""
    handles = {}
    for ax in axes:
        handles |= dict(zip(*reversed(ax.get_legend_handles_labels()), strict=True))
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=across)


def _rows_of(ax: Axes, rows: list[str], cells: Mapping[Any, Any], key: str) -> None:
    recipes = list(dict.fromkeys(recipe for _, _, recipe in cells))
    for i, recipe in enumerate(recipes):
        shift = 0.16 * (i - (len(recipes) - 1) / 2)
        name, color = f"ours, {recipe.replace('_', ' ')}", COLORS[i]
        for (row, _, of), cell in cells.items():
            if of != recipe:
                continue
            place, values = rows.index(row) + shift, per_cent(cell, key)
            ax.plot(values, [place] * len(values), "o", color=color, markersize=3, alpha=0.5)
            mean = sum(values) / len(values)
            ax.plot([mean], [place], "|", color=color, markersize=13, label=name)
            if broken(cell):
                ax.annotate("  broke", (0, place), color=color, va="center", fontsize="small")
    printed = {row: cell["paper"] for (row, _, _), cell in cells.items()}
    known = [(value, rows.index(row)) for row, value in printed.items() if value is not None]
    if known:
        ax.plot(*zip(*known, strict=True), "x", color=ORANGE, label="paper")


def plot_courses(results: Results) -> Figure:
    """Norm above and kNN below over epochs: a panel for each column, a line for each row.

    Norms below a millionth of the largest are below the panel.
    """
    cells = cells_of(results)
    columns = list(dict.fromkeys(column for _, column, _ in cells))
    rows = list(dict.fromkeys(row for row, _, _ in cells))
    figure = new_figure(1 + 3.3 * len(columns), 5.6)
    norms, knns = figure.subplots(2, len(columns), sharex=True, sharey="row", squeeze=False)
    for above, below, column in zip(norms, knns, columns, strict=True):
        for row, color in zip(rows, cycle(COLORS), strict=False):
            cell = cells.get((row, column, "text"))
            for run in [] if cell is None else cell["runs"]:
                shown = {"color": color, "marker": "o", "markersize": 3, "linewidth": 1.2}
                values = [math.nan if x is None else x for x in run["norms"]]
                above.plot(run["epochs"], values, **shown, label=row)
                below.plot(run["epochs"], [100 * x for x in run["knns"]], **shown)
        above.set_title(column)
        above.set_yscale("log")
        below.set_xscale("log", base=2)
        below.set_xlabel("epoch")
    every = [x for cell in cells.values() for run in cell["runs"] for x in run["norms"] if x]
    largest = max(every, default=1.0)
    if min(every, default=1.0) < _DEEP * largest:
        norms[0].set_ylim(_DEEP * largest, 2 * largest)
    norms[0].set_ylabel("embedding norm")
    knns[0].set_ylabel("kNN, %")
    legend_below(figure, list(norms))
    return figure


def rates_and_knns(cell: Mapping[str, Any]) -> list[tuple[float, float]]:
    """Of each of a cell's runs its highest effective learning rate and its kNN in per cent."""
    pairs = zip((run["rate"] for run in cell["runs"]), per_cent(cell, "knn"), strict=True)
    return [(math.nan if rate is None else rate, knn) for rate, knn in pairs]


def middle(points: list[tuple[float, float]]) -> tuple[float, float]:
    """The geometric mean of rates and the mean of kNNs."""
    rates, knns = zip(*points, strict=True)
    return statistics.geometric_mean(rates), statistics.fmean(knns)


def tables_markdown(results: Results, more: Mapping[str, Printed]) -> list[str]:
    """The table with the paper's cells beside ours: mean, range over seeds, (paper).

    A network that broke is told; of a share it counts as 0.

    Args:
        results: with cells.
        more: what else to tell of the same runs, a table each, with the paper's cells.
    """
    cells = cells_of(results)
    printed = {(row, column): cell["paper"] for (row, column, _), cell in cells.items()}
    every = {results.data["key"]: printed, **more}
    return [_table(cells, key, printed) for key, printed in every.items()]


def _table(cells: Mapping[Any, Any], key: str, printed: Printed) -> str:
    columns = list(dict.fromkeys((column, recipe) for _, column, recipe in cells))
    head = [WORDS[key] + ("" if key in NO_SHARES else ", %")]
    both = len({recipe for _, recipe in columns}) > 1
    head += [f"{c}, {recipe.replace('_', ' ')}" if both else c for c, recipe in columns]
    lines = [f"| {' | '.join(head)} |"]
    lines.append("|---" * (1 + len(columns)) + "|")
    for row in dict.fromkeys(row for row, _, _ in cells):
        texts = [
            "-"
            if (cell := cells.get((row, column, recipe))) is None
            else _ours_and_paper(cell, key, printed.get((row, column)))
            for column, recipe in columns
        ]
        lines.append(f"| {row} | " + " | ".join(texts) + " |")
    return "\n".join(lines)


def _numbers(cell: Mapping[str, Any], key: str) -> list[float]:
    if key in NO_SHARES:
        return [run[key] for run in cell["runs"] if run[key] is not None]
    return per_cent(cell, key)


def _ours_and_paper(cell: Mapping[str, Any], key: str, paper: float | None) -> str:
    values, broke = _numbers(cell, key), broken(cell)
    if not values:
        return "broke" if broke else "-"
    form = ".3g" if key in NO_SHARES else ".1f"
    text = f"{sum(values) / len(values):{form}}"
    if len(values) > 1:
        text += f" [{min(values):{form}}, {max(values):{form}}]"
    if broke:
        every = broke == len(cell["runs"])
        told = "broke" if every else f"{broke} of {len(cell['runs'])} broke"
        text = told if every and key not in NO_SHARES else f"{text}, {told}"
    return text + ("" if paper is None else f" (paper: {paper:g})")
