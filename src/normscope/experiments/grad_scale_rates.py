"""GradScale on images at two learning rates: one breaks the network, by the law of three layers.

SimCLR with GradScale, at the text's learning rate (a sixth of the default's) and at the one that
the published code comes to. Without the brake (`grad_scale_growth`) the norm N of the embeddings
under L layers grows at a rate, d log N / dt, proportional to the squared learning rate and to N to
the power 2 (L - 2) / L; the projector's two layers and the gains of the batch norm before them
make three, and a power of 2/3. Left: mean norms over steps, a line a seed. Right: the rate over the
squared learning rate, beside a line of that slope; judged where norms are far above those at first.

    normscope reproduce grad_scale_rates --scale small

Not in the paper. ResNet-18 on CIFAR-10, 50 epochs at small scale; at smoke scale digits, at
learning rates of its own.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from normscope.experiments.cells import Cell, Record, cells_of, train_cells
from normscope.experiments.ledger import Run
from normscope.experiments.results import NOT_IN_PAPER, Claim, Results, Scale, share_interval
from normscope.experiments.runs import epochs_at
from normscope.report.figures import BLUE, GREY, ORANGE, new_figure

TITLE = "GradScale on images at two learning rates (not in the paper)"
KIND = "training"
COST = "a day on one GPU (2 cells of 1000 epochs, three seeds)"
SEEDS: dict[Scale, int] = {"smoke": 2, "small": 3, "paper": 3}

RATES: dict[Scale, dict[str, float]] = {
    "smoke": {"high rate": 0.4, "low rate": 0.1},
    "small": {"the text's rate": 0.03, "the code's rate": 0.01},
    "paper": {"the text's rate": 0.03, "the code's rate": 0.01},
}
FAR = (100.0, 3000.0)  # norms between which the law is judged
LAYERS = 3
COUNTED = 2 * (LAYERS - 2) / LAYERS
_FEWEST = 4  # rates that give a slope


def run(scale: Scale, seed: int, seeds: int) -> Results:
    """Train at both rates."""
    values: dict[str, Any] = {"method": "simclr", "grad_scale": 1.0}
    values |= {"data": "digits" if scale == "smoke" else "cifar10"}
    values |= epochs_at(scale, small=50, paper=1000)
    cells = [Cell(row, values["data"], {**values, "lr": lr}) for row, lr in RATES[scale].items()]
    return train_cells("grad_scale_rates", scale, seed, seeds, cells, kept=_norms)


def _norms(run: Run) -> Record:
    """How the norm grew."""
    (course,) = run.metrics("course")
    return {"steps": course["steps"], "lrs": course["lrs"], "grown": course["norms"]}


def rates(record: Record) -> tuple[np.ndarray, np.ndarray]:
    """Norms, and their growth rates over the squared learning rate, until the network broke.

    Where the learning rate is below half its peak, chance outweighs what it does.
    """
    steps, lrs, norms = (np.array(record[k], float) for k in ("steps", "lrs", "grown"))
    broken = np.flatnonzero(~np.isfinite(norms))
    if broken.size:
        steps, lrs, norms = (every[: broken[0]] for every in (steps, lrs, norms))
    growth = np.diff(np.log(norms)) / np.diff(steps)
    middle, lr = np.sqrt(norms[1:] * norms[:-1]), (lrs[1:] + lrs[:-1]) / 2
    high = lr >= lr.max() / 2
    return middle[high], (growth / lr**2)[high]


def check(results: Results) -> list[Claim]:
    """Who breaks, and by which law."""
    cells, claims = cells_of(results), []
    fates = ("break", (0.5, 1.0)), ("do not", (0.0, 0.5))
    for (row, lr), (fate, region) in zip(RATES[results.scale].items(), fates, strict=True):
        runs = [run for (name, *_), cell in cells.items() if name == row for run in cell["runs"]]
        broke = sum(run["norm"] is None for run in runs)
        value, interval = share_interval(broke, len(runs))
        sentence = f"At {row}, {lr:g}, most networks {fate} (share that break)"
        claims.append(Claim(sentence, NOT_IN_PAPER, value, interval, region, "text"))
        powers = [power for power in map(_power, runs) if power is not None]
        if len(powers) > 1:
            sentence = f"At {row} the growth rate rises with the norm's power {COUNTED:.2g} (power)"
            region = (0.5, 0.83)
            claims.append(
                Claim.over_seeds(sentence, powers, region, paper=NOT_IN_PAPER, recipe="text")
            )
    return claims


def _power(record: Record) -> float | None:
    """Of the norm, at which its growth rate rises, where it is far from where it began."""
    norms, rate = rates(record)
    far = (norms > FAR[0]) & (norms < FAR[1]) & (rate > 0)
    if far.sum() < _FEWEST:
        return None
    return float(np.polyfit(np.log(norms[far]), np.log(rate[far]), 1)[0])


def plot(results: Results) -> Figure:
    """Norms over steps, and their growth over norms."""
    figure = new_figure(9, 3.8)
    left, right = figure.subplots(1, 2)
    for cell, color in zip(results.data["cells"], (ORANGE, BLUE), strict=True):
        for record in cell["runs"]:
            norms = [math.nan if norm is None else norm for norm in record["grown"]]
            left.semilogy(record["steps"], norms, color=color)
            right.loglog(*rates(record), "o", color=color, markersize=3)
        left.plot([], [], color=color, label=f"{cell['row']}, {cell['values']['lr']:g}")
    line = np.array(FAR)
    right.loglog(line, (line / line[0]) ** COUNTED, color=GREY, label=f"slope {COUNTED:.2g}")
    left.set_xlabel("steps")
    left.set_ylabel("mean embedding norm")
    left.legend(loc="upper left")
    right.set_xlabel("mean embedding norm")
    right.set_ylabel("growth rate / squared learning rate")
    right.legend(loc="upper left")
    return figure
