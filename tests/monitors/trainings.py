"""Trainings of a second or less: digits, two layers with batch norms, any method."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from normscope import GradScale, NormMonitor, data
from normscope.losses import negative_cosine
from normscope.methods import METHODS, Method
from normscope.methods.base import other_view

SIZES: dict[str, dict[str, int]] = {
    "simclr": {"dimension": 32},
    "simsiam": {"dimension": 64},
    "byol": {"dimension": 32, "hidden": 64},
    "moco_v2": {"dimension": 32, "queue": 256},
    "moco_v3": {"dimension": 32, "hidden": 64},
    "vicreg": {"dimension": 64},
    "supcon": {"dimension": 32},
}


class Trained(NamedTuple):
    """What a training left."""

    monitor: NormMonitor
    records: list[dict[str, Any]]


@cache
def digits() -> tuple[Tensor, Tensor]:
    """Pixels between 0 and 1, n (h w), and labels."""
    train = data.load("digits").train
    pixels = torch.tensor(train.images[:, 0], dtype=torch.float32).flatten(1) / 255
    return pixels, torch.as_tensor(train.labels).long()


class Layers(nn.Sequential):
    """Pixels to 64 features."""

    width = 64

    def __init__(self, pixels: int) -> None:
        first = nn.Linear(pixels, 64, bias=False), nn.BatchNorm1d(64), nn.ReLU()
        second = nn.Linear(64, 64, bias=False), nn.BatchNorm1d(64), nn.ReLU()
        super().__init__(nn.Flatten(1), *first, *second)


def views(x: Tensor) -> Tensor:
    """Two noisy views with holes, 2 n (h w)."""
    return torch.stack(
        [x * (torch.rand_like(x) > 0.15) + 0.15 * torch.randn_like(x) for _ in range(2)]
    )


def train(
    method: str,
    *,
    lr: float,
    seed: int,
    optimizer: Callable[..., torch.optim.Optimizer] = torch.optim.SGD,
    steps: int = 150,
    scale: float = 1.0,
    grad_scale: float = 0.0,
    of: Any = "each",
    warmup: float = 0.1,
    broken: Callable[[Method], None] | None = None,
    options: dict[str, Any] | None = None,
    **settings: Any,
) -> Trained:
    """A training with a warm-up, a cosine and a log point every ten steps.

    Args:
        method: a name of METHODS.
        lr: peak rate.
        seed: of everything.
        optimizer: takes parameters, lr and `settings`.
        steps: in all.
        scale: multiplies the initial weights.
        grad_scale: GradScale's power, and `of` whose norm it takes.
        warmup: share of the steps.
        broken: changes the method before training.
        options: of the method.
    """
    torch.manual_seed(seed)
    x, labels = digits()
    net = METHODS[method](Layers(x.shape[1]), **{**SIZES[method], **(options or {})})
    with torch.no_grad():
        for p in net.parameters():
            p.mul_(scale)
    net.follow(0.0)
    if broken:
        broken(net)
    if grad_scale:
        net.embedder.append(GradScale(grad_scale, of=of))
    named = {name: p for name, p in net.named_parameters() if p.requires_grad}
    if optimizer is torch.optim.SGD:
        settings = {"momentum": 0.9, **settings}
    rule = optimizer(named.values(), lr=lr, **settings)
    layers = {name: p for name, p in named.items() if p.ndim > 1}
    monitor = NormMonitor(layers=layers, power=grad_scale, power_of=of)
    monitor.start()
    net.train()
    records: list[dict[str, Any]] = []
    for step in range(steps):
        rate = lr * share(step / steps, warmup)
        for group in rule.param_groups:
            group["lr"] = rate
        rows = torch.randint(len(x), (64,))
        out = net(views(x[rows]), labels[rows])
        rule.zero_grad()
        out.loss.backward()
        logs = (step + 1) % 10 == 0
        if logs:
            monitor.step = step
            monitor.observe(out.embeddings, lr=rate, targets=out.targets.detach())
        rule.step()
        net.after_step((step + 1) / steps)
        if logs:
            records += monitor.records()
    return Trained(monitor, records)


def share(t: float, warmup: float) -> float:
    """Of the peak rate, at a time from 0 to 1."""
    if t < warmup:
        return (t + 0.02) / (warmup + 0.02)
    return (1 + math.cos(math.pi * (t - warmup) / (1 - warmup))) / 2


def without_stop_gradient(net: Method) -> None:
    """SimSiam whose loss pulls both sides, and no batch norm at its end holds rows apart."""
    net.projector = net.projector[:-1]

    def forward(views: Tensor, labels: Tensor) -> Any:
        out = type(net).forward(net, views, labels)
        z = other_view(net.projector(out.features))
        return out._replace(loss=negative_cosine(out.embeddings, z))

    net.forward = forward  # pyright: ignore[reportAttributeAccessIssue]


def without_negatives(net: Method) -> None:
    """A loss that draws two views together, and nothing else."""

    def forward(views: Tensor, labels: Tensor) -> Any:
        out = type(net).forward(net, views, labels)
        z1, z2 = out.embeddings.chunk(2)
        return out._replace(loss=negative_cosine(z1, z2))

    net.forward = forward  # pyright: ignore[reportAttributeAccessIssue]
