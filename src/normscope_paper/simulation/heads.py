r"""Heads of several layers under a cosine loss: how their weights grow.

Each row's gradient lies across its embedding, also after GradScale has multiplied it. Layers
without biases, with ReLUs between them, pass a factor on; so the gradient in the weights $W$ of
each lies across them too, and a step of size $\eta$ lengthens them: $\|W\|^2$ grows by
$\eta^2 \|\nabla_W\|^2$. Let all $L$ layers be about as large, $\|W\| = w$. Embeddings are then as
large as $w^L$, the gradient that GradScale of power $p$ sends back as large as $w^{(p - 1) L}$, and
in a layer $\|\nabla_W\| \propto w^{p L - 1}$:

$$\frac{d w^2}{d t} \propto \eta^2 (w^2)^{p L - 1}.$$

Without GradScale that is a brake: $w \propto t^{1/4}$. At $p L = 2$ the growth is exponential.
Above it, $w$ is infinite after a finite time, which goes with $1/\eta^2$. The count takes gradients
to depend on the norm alone, and no weight decay.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import nn

from normscope.extend import check_number, invalid
from normscope.interventions import GradScale
from normscope.losses import info_nce

_D = 16  # width of all layers
_POINTS, _PAIRS = 1024, 32  # what there is, and what a step sees, each in two noisy views
_NOISE = 0.5
_TEMPERATURE = 0.5
_BOUND = 1e8  # of the mean norm


class HeadCourse(NamedTuple):
    """How a head fared.

    Attributes:
        norms: mean embedding norm before each step.
        squares: mean over layers of the squared norm of their weights, before each step.
        broke: whether the norm left all bounds, and ended it.
    """

    norms: list[float]
    squares: list[float]
    broke: bool


def train_head(depth: int, *, power: float, lr: float, steps: int, seed: int) -> HeadCourse:
    """Train linear layers with ReLUs between them by InfoNCE, on points with noise.

    Args:
        depth: how many layers.
        power: GradScale's.
        lr: of plain gradient descent.
        steps: at most so many.
        seed: of points, noise and weights.

    >>> train_head(3, power=1.0, lr=0.4, steps=500, seed=0).broke
    True
    """
    for name, value in (("depth", depth), ("steps", steps)):
        if not isinstance(value, int) or value < 1:
            raise invalid(name, "a whole number from 1 up", value, "Usual: 3 layers, 2000 steps.")
    check_number("lr", lr, "Usual: .1.")
    random = torch.Generator().manual_seed(seed)
    layers: list[nn.Module] = []
    for _ in range(depth):
        layers += [nn.Linear(_D, _D, bias=False), nn.ReLU()]
    weights = [layer.weight for layer in layers if isinstance(layer, nn.Linear)]
    for weight in weights:
        nn.init.normal_(weight, std=1 / math.sqrt(_D), generator=random)
    head, scale = nn.Sequential(*layers[:-1]), GradScale(power)
    optimizer = torch.optim.SGD(weights, lr=lr)
    points = torch.randn(_POINTS, _D, generator=random)
    norms, squares = [], []
    for _ in range(steps):
        x = points[torch.randint(_POINTS, (_PAIRS,), generator=random)]  # n d
        z1, z2 = (head(x + _NOISE * torch.randn(x.shape, generator=random)) for _ in range(2))
        norms.append(float(torch.cat([z1, z2]).detach().norm(dim=1).mean()))
        squares.append(float(torch.stack([w.detach().square().sum() for w in weights]).mean()))
        if not norms[-1] < _BOUND:
            return HeadCourse(norms[:-1], squares[:-1], broke=True)
        optimizer.zero_grad()
        info_nce(scale(z1), scale(z2), temperature=_TEMPERATURE).backward()
        optimizer.step()
    return HeadCourse(norms, squares, broke=False)
