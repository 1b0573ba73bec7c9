"""Tables of training runs as pictures and as Markdown, ours beside the paper's."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from itertools import cycle

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from normscope.report import BLUE, GREEN, GREY, ORANGE, PINK, SKY, YELLOW, new_figure
from normscope_paper.harness.cells import NO_SHARES, WORDS, RunTable, TrainedCell
from normscope_paper.harness.results import Results

COLORS = (BLUE, GREEN, PINK, SKY, YELLOW, GREY, ORANGE)
Printed = Mapping[tuple[str, str], float | None]  # the paper's cells, by row and column
_DEEP = 1e-6  # of the largest norm: a norm below it has vanished, and would flatten all others


def plot_cells(results: Results) -> Figure:
    """A panel for each column: every row's seeds and mean beside the paper's cell."""
    table = RunTable.of(results)
    figure = new_figure(1.2 + 3.2 * len(table.columns), 1.1 + 0.42 * len(table.rows))
    axes = figure.subplots(1, len(table.columns), sharey=True, squeeze=False)[0]
    for ax, column in zip(axes, table.columns, strict=True):
        _draw_column(ax, table.rows, [c for c in table.cells if c.column == column], table.key)
        ax.set_title(column)
        ax.set_xlabel(f"{WORDS[table.key]}, %")
    axes[0].set_yticks(range(len(table.rows)), table.rows)
    axes[0].set_ylim(len(table.rows) - 0.5, -0.5)  # the first row on top, none on the edge
    legend_below(figure, list(axes))
    return figure


def legend_below(figure: Figure, axes: list[Axes], across: int = 4) -> None:
    """One below all panels, each name once, so many beside each other."""
    handles = {}
    for ax in axes:
        handles |= dict(zip(*reversed(ax.get_legend_handles_labels()), strict=True))
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=across)


def _draw_column(ax: Axes, rows: list[str], cells: Sequence[TrainedCell], key: str) -> None:
    recipes = list(dict.fromkeys(cell.recipe for cell in cells))
    for i, recipe in enumerate(recipes):
        shift = 0.16 * (i - (len(recipes) - 1) / 2)
        name, color = f"ours, {recipe.replace('_', ' ')}", COLORS[i]
        for cell in cells:
            if cell.recipe != recipe:
                continue
            place, values = rows.index(cell.row) + shift, cell.per_cent(key)
            ax.plot(values, [place] * len(values), "o", color=color, markersize=3, alpha=0.5)
            mean = sum(values) / len(values)
            ax.plot([mean], [place], "|", color=color, markersize=13, label=name)
            if cell.broken:
                ax.annotate("  broke", (0, place), color=color, va="center", fontsize="small")
    printed = {cell.row: cell.paper for cell in cells}
    known = [(value, rows.index(row)) for row, value in printed.items() if value is not None]
    if known:
        ax.plot(*zip(*known, strict=True), "x", color=ORANGE, label="paper")


def plot_courses(results: Results) -> Figure:
    """Norm above and kNN below over epochs: a panel for each column, a line for each row.

    Norms below a millionth of the largest are below the panel.
    """
    table = RunTable.of(results)
    figure = new_figure(1 + 3.3 * len(table.columns), 5.6)
    axes = figure.subplots(2, len(table.columns), sharex=True, sharey="row", squeeze=False)
    for (above, below), column in zip(axes.T, table.columns, strict=True):
        for row, color in zip(table.rows, cycle(COLORS), strict=False):
            cell = table.get(row, column)
            for run in [] if cell is None else cell.runs:
                shown = {"color": color, "marker": "o", "markersize": 3, "linewidth": 1.2}
                values = [math.nan if x is None else x for x in run.norms]
                above.plot(run.epochs, values, **shown, label=row)
                below.plot(run.epochs, [100 * x for x in run.knns], **shown)
        above.set_title(column)
        above.set_yscale("log")
        below.set_xscale("log", base=2)
        below.set_xlabel("epoch")
    every = [x for cell in table.cells for run in cell.runs for x in run.norms if x]
    largest = max(every, default=1.0)
    if min(every, default=1.0) < _DEEP * largest:
        axes[0, 0].set_ylim(_DEEP * largest, 2 * largest)
    axes[0, 0].set_ylabel("embedding norm")
    axes[1, 0].set_ylabel("kNN, %")
    legend_below(figure, list(axes[0]))
    return figure


def rates_and_knns(cell: TrainedCell) -> list[tuple[float, float]]:
    """Of each of a cell's runs its highest effective learning rate and its kNN in per cent."""
    pairs = zip((run["rate"] for run in cell.runs), cell.per_cent("knn"), strict=True)
    return [(math.nan if rate is None else rate, knn) for rate, knn in pairs]


def middle(points: list[tuple[float, float]]) -> tuple[float, float]:
    """The geometric mean of rates and the mean of kNNs."""
    rates, knns = zip(*points, strict=True)
    return statistics.geometric_mean(rates), statistics.fmean(knns)


def tables_markdown(results: Results, more: Mapping[str, Printed]) -> list[str]:
    """The table with the paper's cells beside ours: mean, range over seeds, (paper).

    Networks that broke are counted; as a share they count as 0.

    Args:
        results: with cells.
        more: other numbers of the same runs to show, a table each, with the paper's cells.
    """
    table = RunTable.of(results)
    printed = {(cell.row, cell.column): cell.paper for cell in table.cells}
    return [_markdown(table, key, cells) for key, cells in {table.key: printed, **more}.items()]


def _markdown(table: RunTable, key: str, printed: Printed) -> str:
    head = [WORDS[key] + ("" if key in NO_SHARES else ", %")]
    both = len({recipe for _, recipe in table.readings}) > 1
    head += [f"{c}, {recipe.replace('_', ' ')}" if both else c for c, recipe in table.readings]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for row in table.rows:
        texts = [
            "-"
            if (cell := table.get(row, column, recipe)) is None
            else _ours_and_paper(cell, key, printed.get((row, column)))
            for column, recipe in table.readings
        ]
        lines.append(f"| {row} | " + " | ".join(texts) + " |")
    return "\n".join(lines)


def _ours_and_paper(cell: TrainedCell, key: str, paper: float | None) -> str:
    no_share, broke = key in NO_SHARES, cell.broken
    values = [run[key] for run in cell.runs if run[key] is not None]
    values = values if no_share else cell.per_cent(key)
    if not values:
        return "broke" if broke else "-"
    form = ".3g" if no_share else ".1f"
    text = f"{sum(values) / len(values):{form}}"
    if len(values) > 1:
        text += f" [{min(values):{form}}, {max(values):{form}}]"
    if broke:
        every = broke == len(cell.runs)
        note = "broke" if every else f"{broke} of {len(cell.runs)} broke"
        text = note if every and not no_share else f"{text}, {note}"
    return text + ("" if paper is None else f" (paper: {paper:g})")
