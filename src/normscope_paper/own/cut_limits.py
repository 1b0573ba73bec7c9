"""Why a cut is not quite a learning rate: linear biases and the batch norms' epsilon.

Where all linear layers without a batch norm behind them have no bias, and batch norms no epsilon, a
cut by c is a learning rate c squared times as high with a c squared-th of the decay, step by step.
Real networks have both. A cut divides a bias by c, and what it is added to by a higher power; its
effective rate too grows by more than c squared. Epsilon beside small variances normalises less.
SimCLR's small network is trained on digits with a cut of 3, and uncut at 9 times the rate with a
ninth of the decay: as it is, without biases in the projector, with an epsilon of 1e-12, and with
both. Points of kNN of the cut above the raised rate; dots are seeds, lines intervals.

    normscope reproduce cut_limits --scale smoke

Not in the paper. On digits at any scale, by a plain loop in float32.
"""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from normscope import data
from normscope.augment import PRESETS
from normscope.engine import RunSpec, build
from normscope.evaluation import knn
from normscope.methods import Method
from normscope.report import BLUE, GREY, new_figure
from normscope_paper.harness import (
    NOT_IN_PAPER,
    Claim,
    Results,
    Scale,
    Sweep,
    mean_interval,
    rounded,
)

TITLE = "What keeps a cut from being a learning rate"
PLACE = "not in the paper"
KIND = "training"
SHARES_RUNS = False  # it trains by a loop of its own
COST = "25 min (24 runs of 60 epochs, three seeds)"
SEEDS: dict[Scale, int] = {"smoke": 3, "small": 3, "paper": 5}
EPOCHS: dict[Scale, int] = {"smoke": 20, "small": 60, "paper": 60}

C = 3.0
AS_IS, NEITHER = "as it is", "neither"
ARMS = {  # whether the projector has biases, and the batch norms' epsilon
    AS_IS: (True, 1e-5),
    "no biases": (False, 1e-5),
    "no epsilon": (True, 1e-12),
    NEITHER: (False, 1e-12),
}
LEVEL = 2.0  # points within which cut and raised rate count as level


def run(scale: Scale, seed: int, seeds: int, sweep: Sweep) -> Results:  # noqa: ARG001
    """Train each arm both ways."""
    knns: dict[str, dict[str, list[float]]] = {arm: {"cut": [], "rate": []} for arm in ARMS}
    for s, (arm, (biases, epsilon)) in product(range(seed, seed + seeds), ARMS.items()):
        for way, found in knns[arm].items():
            cut = C if way == "cut" else 1.0
            spec = RunSpec(epochs=EPOCHS[scale], seed=s, cut=cut)
            method = network(spec, biases=biases, epsilon=epsilon)
            found.append(rounded(trained(method, spec, factor=(C / cut) ** 2)))
    return Results("cut_limits", scale, seeds, seed, {"knns": knns})


def network(spec: RunSpec, *, biases: bool, epsilon: float) -> Method:
    """A fresh network, with biases of zero that stay so unless it is to have them."""
    method = build(spec, side=8)
    for layer in method.modules():
        if isinstance(layer, (nn.BatchNorm1d, nn.BatchNorm2d)):
            layer.eps = epsilon
        if isinstance(layer, nn.Linear) and layer.bias is not None and not biases:
            nn.init.zeros_(layer.bias).requires_grad_(False)
    return method


def trained(method: Method, spec: RunSpec, *, factor: float) -> float:
    """Per cent of kNN after training by SGD at `factor` times a spec's rate, like a run of it."""
    digits = data.load(spec.data)
    x = torch.from_numpy(np.asarray(digits.train.images))
    augment, generator = PRESETS[spec.augmentation](8), torch.Generator().manual_seed(spec.seed)
    optimizer = torch.optim.SGD(
        (p for p in method.parameters() if p.requires_grad),
        lr=factor * spec.lr * spec.batch / 256,
        momentum=spec.momentum,
        weight_decay=spec.weight_decay / factor,
    )
    steps = len(x) // spec.batch * spec.epochs
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda i: _share(i / steps))
    for _ in range(spec.epochs):
        for rows in torch.randperm(len(x), generator=generator).split(spec.batch):
            if len(rows) < spec.batch:
                continue
            views = [
                augment(x[rows], augment.draw(len(rows), height=8, width=8, generator=generator))
                for _ in range(2)
            ]
            optimizer.zero_grad()
            method(torch.stack(views), torch.zeros(len(rows))).loss.backward()
            optimizer.step()
            schedule.step()
    method.eval()
    bank, queries = (_features(method, part.images) for part in (digits.train, digits.test))
    found = knn(bank, torch.from_numpy(digits.train.labels), queries, k=spec.knn_k)
    return 100 * found.accuracy(torch.from_numpy(digits.test.labels))


def _share(t: float) -> float:
    """Of the rate, after a share of the steps: a fifth of warm-up, then half a cosine."""
    return 5 * t if t < 0.2 else (1 + math.cos(math.pi * (t - 0.2) / 0.8)) / 2


@torch.no_grad()
def _features(method: Method, images: object) -> Tensor:
    return method.layers(torch.from_numpy(np.asarray(images)).float() / 255)["backbone"]


def gaps(results: Results) -> dict[str, list[float]]:
    """By arm, the points of kNN of the cut above the raised rate, seed by seed."""
    return {
        arm: [cut - rate for cut, rate in zip(found["cut"], found["rate"], strict=True)]
        for arm, found in results.data["knns"].items()
    }


def check(results: Results) -> list[Claim]:
    """Where the cut falls short of the raised rate, and where it does not."""
    claimed = {
        AS_IS: ("below", (-math.inf, 0.0)),
        "no biases": ("level with", (-LEVEL, LEVEL)),
        "no epsilon": ("level with", (-LEVEL, LEVEL)),
        NEITHER: ("level with", (-LEVEL, LEVEL)),
    }
    return [
        Claim.over_seeds(
            f"The network {arm}: cut 3 is {how} 9 times the rate (points of kNN)",
            points,
            claimed[arm][1],
            paper=NOT_IN_PAPER,
            recipe="text",
        )
        for arm, points in gaps(results).items()
        for how in [claimed[arm][0]]
    ]


def plot(results: Results) -> Figure:
    """For each arm the cut's points above the raised rate."""
    figure = new_figure(5.4, 2.4)
    ax = figure.subplots()
    for i, points in enumerate(gaps(results).values()):
        mean, interval = mean_interval(points)
        ax.barh(i, mean, color=BLUE, alpha=0.7)
        ax.plot(interval, [i, i], color=GREY)
        ax.plot(points, [i] * len(points), "o", color="black", markersize=3)
    ax.set_yticks(range(len(ARMS)), list(ARMS))
    ax.invert_yaxis()
    ax.set_xlabel("kNN of cut 3 above 9 times the rate, points")
    return figure
