"""Table "wd_cut": kNN over cut constant and weight decay.

SimCLR on CIFAR-100 (and, at paper scale, SimSiam) with its weights divided by 1, 2, 4 or 8 at the
start and with four weight decays; ours beside the paper's, colours by the points above c = 1. One
seed: an interval is over the four weight decays, not over seeds, and by that measure the paper's
own c = 4 is inconclusive for SimCLR.

    normscope reproduce wd_cut --scale small

Paper: ResNet-50, 100 epochs, SimSiam on ImageNet-100. At small scale ResNet-18 and 30 epochs, and
SimCLR's half alone; at paper scale both. The highest effective learning rate, lr / |w|² of the
weights that a batch norm follows, is of the ends of epochs 1, 2, 4, ... and the last.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from normscope.methods import METHODS
from normscope.report import HEAT, new_figure
from normscope_paper.harness import (
    NOT_IN_PAPER,
    Cell,
    Claim,
    Printed,
    Results,
    RunTable,
    Scale,
    datasets_at,
    epochs_at,
    highest_rate,
)

TITLE = "Cut against weight decay"
PLACE = "Table 2"
KIND = "training"
COST = "days on one GPU (32 cells of 100 epochs)"
SEEDS: dict[Scale, int] = {"smoke": 1, "small": 1, "paper": 1}
kept = highest_rate

MORE: dict[str, Printed] = {"rate": {}}  # which the paper does not print
CUTS = (1, 2, 4, 8)
DECAYS = {"simclr": (1e-8, 1e-6, 5e-6, 1e-5), "simsiam": (5e-5, 1e-4, 5e-4, 1e-3)}
DATA = {"simclr": "cifar100", "simsiam": "imagenet100"}
PRINTED: dict[str, dict[int, tuple[float, ...]]] = {
    "simclr": {
        1: (40.8, 40.5, 40.9, 41.5),
        2: (42.7, 42.8, 42.9, 42.2),
        4: (42.3, 41.4, 42.0, 41.1),
        8: (37.1, 36.8, 37.9, 37.3),
    },
    "simsiam": {
        1: (36.7, 38.5, 40.5, 44.7),
        2: (41.1, 44.0, 48.8, 42.1),
        4: (40.2, 41.2, 49.8, 49.1),
        8: (44.4, 46.4, 50.2, 53.2),
    },
}


def cells(scale: Scale) -> list[Cell]:
    """The grid."""
    found = []
    for method in DECAYS if scale == "paper" else ("simclr",):
        for c, printed in PRINTED[method].items():
            for decay, paper in zip(DECAYS[method], printed, strict=True):
                values = {"method": method, "cut": float(c), "weight_decay": decay}
                (values["data"],) = datasets_at(scale, DATA[method])
                values |= epochs_at(scale, paper=100)
                row = f"{METHODS[method].TITLE}, cut {c}"
                shown = None if scale == "smoke" else paper  # digits are not the paper's
                found.append(Cell(row, f"decay {decay:g}", values, shown))
    if scale == "smoke":  # a corner of it
        found = [cell for cell in found if cell.values["cut"] in (1, 4)]
    return found


def check(results: Results) -> list[Claim]:
    """Each cut against none, over the weight decays."""
    claims = []
    for method, grid in _grids(results).items():
        for c, ours in grid.items():
            if c == 1:
                continue
            printed = PRINTED[method]
            paper = [a - b for a, b in zip(printed[c], printed[1], strict=True)]
            below = sum(paper) < 0
            claims.append(
                Claim.over_seeds(
                    f"{METHODS[method].TITLE}, cut {c} is {'below' if below else 'above'} none "
                    "(points of kNN, mean over weight decays)",
                    [a - b for a, b in zip(ours, grid[1], strict=True)],
                    (-math.inf, 0.0) if below else (0.0, math.inf),
                    paper=NOT_IN_PAPER
                    if results.scale == "smoke"
                    else ", ".join(f"{gain:+.1f}" for gain in paper),
                    recipe="text",
                )
            )
    return claims


def _grids(results: Results) -> dict[str, dict[int, list[float]]]:
    """The kNN in per cent, method -> cut -> by weight decay."""
    cells = RunTable.of(results).cells
    grids: dict[str, dict[int, list[float]]] = {}
    for method in DECAYS:
        for c in CUTS:
            row = f"{METHODS[method].TITLE}, cut {c}"
            found = [cell.per_cent("knn")[0] for cell in cells if cell.row == row]
            if found:
                grids.setdefault(method, {})[c] = found
    return grids


def plot(results: Results) -> Figure:
    """Heat maps, ours beside the paper's."""
    grids = _grids(results)
    figure = new_figure(9.5, 0.6 + 2.4 * len(grids))
    axes = figure.subplots(len(grids), 2, squeeze=False)
    for (method, ours), pair in zip(grids.items(), axes, strict=True):
        theirs = {c: PRINTED[method][c] for c in ours}
        cells = RunTable.of(results).cells
        data = next(cell.values["data"] for cell in cells if cell.method == method)
        whose = (f"ours on {data}", f"paper's on {DATA[method]}")
        gains = [_gains(grid) for grid in (ours, theirs)]
        most = max(abs(gain) for grid in gains for row in grid for gain in row)
        for ax, grid, gained, who in zip(pair, (ours, theirs), gains, whose, strict=True):
            ax.imshow(gained, cmap=HEAT, aspect="auto", vmin=-most, vmax=most)
            _label(ax, method, grid, gained)
            ax.set_title(f"{METHODS[method].TITLE}, {who}: kNN, %")
        figure.colorbar(pair[0].images[0], ax=list(pair), label="points above c = 1")
    return figure


def _gains(grid: Mapping[int, Sequence[float]]) -> list[list[float]]:
    return [[a - b for a, b in zip(row, grid[1], strict=True)] for row in grid.values()]


def _label(ax, method: str, grid: Mapping[int, Sequence[float]], gained: list[list[float]]) -> None:
    for i, (row, gains) in enumerate(zip(grid.values(), gained, strict=True)):
        for j, (value, gain) in enumerate(zip(row, gains, strict=True)):
            color = "white" if gain < 0 else "black"
            ax.text(j, i, f"{value:.1f}", ha="center", va="center", color=color)
    ax.set_xticks(range(len(DECAYS[method])), [f"{decay:g}" for decay in DECAYS[method]])
    ax.set_yticks(range(len(grid)), [f"c = {c}" for c in grid])
    ax.set_xlabel("weight decay")
    ax.grid(visible=False)
