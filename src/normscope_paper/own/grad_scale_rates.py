"""Whether GradScale breaks networks on images, at two learning rates, and by which law.

SimCLR with GradScale, at the text's learning rate (a sixth of the default's) and at the one that
the published code comes to. Without the brake (`grad_scale_growth`) the norm N of the embeddings
after L layers grows at a rate, d log N / dt, proportional to the squared learning rate and to N to
the power 2 (L - 2) / L; the projector's two layers and the gains of the batch norms before them are
about three, and give a power of 2/3. The count takes gradients to change with the norm alone, while
those of a network that learns may shrink too. Left: mean norms over steps, a line a seed. Right:
the rate over the squared learning rate, beside a line of that slope; shaded, the norms between
which the law was expected to hold; it is judged below and above them too.

    normscope reproduce grad_scale_rates --scale small

Not in the paper. ResNet-18 on CIFAR-10, 50 epochs at small scale; at smoke scale digits, at
learning rates of its own. The shaded range was chosen by the first two seeds, which therefore do
not count for it; beside it all seeds do.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from normscope.methods import METHODS
from normscope.report import BLUE, GREY, ORANGE, new_figure
from normscope_paper.harness import (
    NOT_IN_PAPER,
    UNKNOWN,
    Cell,
    Claim,
    Results,
    RunTable,
    Scale,
    StoredRun,
    TrainedRun,
    datasets_at,
    epochs_at,
    mean_interval,
    share_interval,
)

TITLE = "GradScale on images at two learning rates"
PLACE = "not in the paper"
KIND = "training"
COST = "a day on one GPU (2 cells of 1000 epochs, four seeds)"
SEEDS: dict[Scale, int] = {"smoke": 2, "small": 4, "paper": 4}  # four alike decide on a share

DIGITS = {"a rate of .4": 0.4, "a rate of .1": 0.1}  # at smoke scale, in the place of the two
FAR = (100.0, 3000.0)  # norms between which the law is judged
BESIDE = ((2.0, 3000.0), (3000.0, 1e5))  # where it is judged too, and may well not hold
CHOSEN_BY = 2  # seeds from 0 on
LAYERS = 3
COUNTED = 2 * (LAYERS - 2) / LAYERS
_FEWEST = 4  # rates that give a slope


def cells(scale: Scale) -> list[Cell]:
    """Both rates."""
    code = METHODS["simclr"].AS_CODED
    assert code is not None
    values: dict[str, Any] = {"method": "simclr", "grad_scale": 1.0}
    (values["data"],) = datasets_at(scale, "cifar10")
    values |= epochs_at(scale, small=50, paper=1000)
    lrs = {"the text's rate": None, "the code's rate": code.grad_scale_lr}
    return [
        Cell(row, values["data"], {**values, "lr": lr})
        for row, lr in (DIGITS if scale == "smoke" else lrs).items()
    ]


def kept(run: StoredRun) -> dict[str, Any]:
    """How the norm grew."""
    (course,) = run.metrics("course")
    return {"steps": course["steps"], "lrs": course["lrs"], "grown": course["norms"]}


def rates(run: TrainedRun) -> tuple[np.ndarray, np.ndarray]:
    """Norms, and their growth rates over the squared learning rate, until the network broke.

    Where the learning rate is below half its peak, chance outweighs what it does.
    """
    steps, lrs, norms = (np.array(run[k], float) for k in ("steps", "lrs", "grown"))
    broken = np.flatnonzero(~np.isfinite(norms))
    if broken.size:
        steps, lrs, norms = (every[: broken[0]] for every in (steps, lrs, norms))
    if len(norms) < 2:
        return np.array([]), np.array([])
    growth = np.diff(np.log(norms)) / np.diff(steps)
    middle, lr = np.sqrt(norms[1:] * norms[:-1]), (lrs[1:] + lrs[:-1]) / 2
    high = lr >= lr.max() / 2
    return middle[high], (growth / lr**2)[high]


def check(results: Results) -> list[Claim]:
    """Who breaks, and by which law."""
    high, low = RunTable.of(results).cells
    claims = []
    for cell, fate, region in ((high, "break", (0.5, 1.0)), (low, "do not", (0.0, 0.5))):
        value, interval = share_interval(cell.broken, len(cell.runs))
        sentence = f"At {cell.row} most networks {fate} (share that break)"
        claims.append(Claim(sentence, NOT_IN_PAPER, value, interval, region, "text"))
    fresh = [r for s, r in enumerate(high.runs, start=results.seed) if s >= CHOSEN_BY]
    for ends, runs in ((FAR, fresh), *((ends, high.runs) for ends in BESIDE)):
        least, most = (f"{end:,.0f}" for end in ends)
        sentence = f"At {high.row}, between norms of {least} and {most}, growth rates rise with "
        sentence += f"the norm's power {COUNTED:.2g}"
        powers = [_power(run, *ends) for run in runs]
        known = [power for power in powers if power is not None]
        value, interval = mean_interval(known) if len(known) > 1 else (0.0, UNKNOWN)
        claims.append(Claim(sentence, NOT_IN_PAPER, value, interval, (0.5, 0.83), "text"))
    return claims


def _power(run: TrainedRun, low: float, high: float) -> float | None:
    """The norm's power in its growth rate, between two norms; None if there are too few rates."""
    norms, rate = rates(run)
    within = (norms > low) & (norms < high) & (rate > 0)
    if within.sum() < _FEWEST:
        return None
    return float(np.polyfit(np.log(norms[within]), np.log(rate[within]), 1)[0])


def plot(results: Results) -> Figure:
    """Norms over steps, and their growth over norms."""
    figure = new_figure(9, 3.8)
    left, right = figure.subplots(1, 2)
    for cell, color in zip(RunTable.of(results).cells, (ORANGE, BLUE), strict=True):
        for run in cell.runs:
            norms = [math.nan if norm is None else norm for norm in run["grown"]]
            left.semilogy(run["steps"], norms, color=color)
            right.loglog(*rates(run), "o", color=color, markersize=3)
        left.plot([], [], color=color, label=cell.row)
    line = np.array([FAR[0], BESIDE[-1][1]])
    right.loglog(line, (line / line[0]) ** COUNTED, color=GREY, label=f"slope {COUNTED:.2g}")
    right.axvspan(*FAR, color=GREY, alpha=0.15)
    right.set_xlim(right=10 * line[1])
    left.set_xlabel("steps")
    left.set_ylabel("mean embedding norm")
    left.legend(loc="center right")
    right.set_xlabel("mean embedding norm")
    right.set_ylabel("growth rate / squared learning rate")
    right.legend(loc="upper left")
    return figure
