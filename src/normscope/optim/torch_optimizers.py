"""PyTorch's own optimizers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from normscope.optim.builder import Group


def sgd(
    groups: Sequence[Group], *, lr: float, momentum: float, nesterov: bool, **_: Any
) -> torch.optim.Optimizer:
    """SGD; Nesterov is ignored without momentum."""
    rule = {"momentum": momentum, "nesterov": nesterov and momentum > 0}
    return torch.optim.SGD(groups, lr=lr, fused=_fused(groups), **rule)


def adam(groups: Sequence[Group], *, lr: float, **_: Any) -> torch.optim.Optimizer:
    """Adam, which adds the weight decay to the gradient."""
    return torch.optim.Adam(groups, lr=lr, fused=_fused(groups))


def adamw(groups: Sequence[Group], *, lr: float, **_: Any) -> torch.optim.Optimizer:
    """AdamW, which takes the decay from the weight itself (Loshchilov & Hutter)."""
    return torch.optim.AdamW(groups, lr=lr, fused=_fused(groups))


def _fused(groups: Sequence[Group]) -> bool | None:
    """One kernel for all parameters on a GPU; elsewhere PyTorch's choice."""
    return True if groups[0]["params"][0].is_cuda else None
