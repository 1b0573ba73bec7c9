"""What stands between a backbone and a loss: projectors, predictors and prototypes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from normscope._checks import invalid
from normscope._sphere import unit
from normscope.nets.layers import norm_relu


class MLP(nn.Sequential):
    """Layers one after the other; a norm with the ReLU behind it in one go where that is faster."""

    def forward(self, input: Tensor) -> Tensor:
        """The last layer's output."""
        x, layers = input, list(self)
        while layers:
            layer = layers.pop(0)
            if isinstance(layer, nn.BatchNorm1d) and layers and isinstance(layers[0], nn.ReLU):
                x = norm_relu(layer, layers.pop(0), x)
            else:
                x = layer(x)
        return x


def mlp(
    widths: Sequence[int],
    *,
    batch_norm: bool,
    last_batch_norm: Literal["none", "plain"] = "none",
    last_bias: bool = True,
    activation: Literal["relu", "gelu"] = "relu",
) -> MLP:
    """Linear layers with an activation between, (n, widths[0]) -> (n, widths[-1]).

    Args:
        widths: of the input, of each hidden layer, and of the output.
        batch_norm: whether a batch norm stands before each activation. The linear layer before
            a batch norm has no bias: the norm would take it out again.
        last_batch_norm: a batch norm after the last layer: `"none"`, or `"plain"`, one without
            weights (SimSiam's and MoCo v3's).
        last_bias: whether the last layer has a bias where no batch norm follows; BYOL's has none.
        activation: ReLU nearly everywhere; DINO's head takes GELU.

    >>> [type(layer).__name__ for layer in mlp([8, 4, 2], batch_norm=True)]
    ['Linear', 'BatchNorm1d', 'ReLU', 'Linear']
    """
    if len(widths) < 2:
        raise invalid("widths", "at least two numbers", list(widths), "The input's and output's.")
    if last_batch_norm not in ("none", "plain"):
        constraint = "'none' or 'plain'"
        raise invalid("last_batch_norm", constraint, last_batch_norm, "SimSiam's is 'plain'.")
    if activation not in ("relu", "gelu"):
        raise invalid("activation", "'relu' or 'gelu'", activation, "Only DINO takes 'gelu'.")
    layers: list[nn.Module] = []
    *hidden, last = pairwise(widths)
    for d, d_out in hidden:
        layers.append(nn.Linear(d, d_out, bias=not batch_norm))
        if batch_norm:
            layers.append(nn.BatchNorm1d(d_out))
        layers.append(nn.ReLU(inplace=True) if activation == "relu" else nn.GELU())
    layers.append(nn.Linear(*last, bias=last_bias and last_batch_norm == "none"))
    if last_batch_norm != "none":
        layers.append(nn.BatchNorm1d(widths[-1], affine=False))
    return MLP(*layers)


class Prototypes(nn.Module):
    r"""Cosines with m learned directions, $\hat z^\top \hat w_m$: (n, d) -> (n, m).

    The last layer of DINO's head, its prototypes' norms fixed to one (`norm_last_layer`). The
    norms of z and of the weights do not change the output; gradients are inversely proportional
    to them.

    Args:
        d: width of the input.
        m: number of prototypes; DINO takes 65,536 on ImageNet.

    Source: Caron et al. (2021) and their published code.

    >>> prototypes = Prototypes(2, 3)
    >>> _ = prototypes.weight.data.copy_(torch.tensor([[2.0, 0.0], [0.0, 5.0], [-1.0, 0.0]]))
    >>> prototypes(torch.tensor([[3.0, 4.0]])).detach()
    tensor([[ 0.6000,  0.8000, -0.6000]])
    """

    def __init__(self, d: int, m: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(m, d))
        nn.init.trunc_normal_(self.weight, std=0.02)  # only its directions matter

    def forward(self, z: Tensor) -> Tensor:
        """Cosines, in float32 or wider unless autocast says otherwise."""
        return F.linear(unit(z)[0], unit(self.weight)[0])
