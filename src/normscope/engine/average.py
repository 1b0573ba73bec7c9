"""A moving average of a network's weights, for evaluating and for keeping."""

from __future__ import annotations

import copy
from itertools import chain

import torch
from torch import Tensor, nn

from normscope.methods import Method


class Average:
    r"""A copy of a network that follows it: $\xi \leftarrow m \xi + (1 - m) \theta$ at each step.

    Running statistics of batch norms are averaged as weights are. While the learning rate is still
    high, the average is better than the network itself, as if the rate had been lowered.

    Args:
        method: the network.
        momentum: m; the average reaches back some $1 / (1 - m)$ steps.
    """

    def __init__(self, method: Method, momentum: float) -> None:
        self.network = copy.deepcopy(method).requires_grad_(False)
        self._momentum = momentum
        self._theirs, self._ours = _reals(self.network), _reals(method)

    @torch.no_grad()
    def follow(self) -> None:
        """Move towards the network, in a few kernels."""
        torch._foreach_lerp_(self._theirs, self._ours, 1 - self._momentum)  # pyright: ignore


def _reals(module: nn.Module) -> list[Tensor]:
    """Weights and running statistics; counters are no numbers to average."""
    every = chain(module.parameters(), module.buffers())
    return [x.data for x in every if x.is_floating_point()]
