"""The optimizer of a run, over groups of parameters that share a rule."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from normscope.engine.schedule import peak_lr
from normscope.engine.spec import RunSpec
from normscope.methods import Method
from normscope.optim import OPTIMIZERS


def optimizer_for(method: Method, spec: RunSpec) -> torch.optim.Optimizer:
    """The optimizer over everything that needs a gradient."""
    groups = [group for group in _groups(method, spec) if group["params"]]
    return OPTIMIZERS[spec.optimizer].build(
        groups,
        lr=peak_lr(spec),
        momentum=spec.momentum,
        nesterov=spec.nesterov,
        scalar_lr=spec.scalar_lr,
        orthogonal=spec.orthogonal,
    )


def set_lr_(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Give every group that follows the schedule this learning rate."""
    for group in optimizer.param_groups:
        if not group["scheduled"]:
            continue
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(lr)
        else:
            group["lr"] = lr


def _groups(method: Method, spec: RunSpec) -> Iterable[dict[str, Any]]:
    """Parameters by whether they decay and whether they follow the schedule."""
    apart = spec.predictor_lr is not None
    own = {id(p) for p in method.predictor.parameters()} if apart else set()
    for scheduled in (True, False):
        for decays in (True, False):
            members = [
                p
                for p in method.parameters()
                if p.requires_grad
                and (id(p) not in own) == scheduled
                and (spec.decay == "all" or p.ndim > 1) == decays
            ]
            group = {"params": members, "weight_decay": spec.weight_decay if decays else 0.0}
            yield (
                group | {"scheduled": scheduled} | ({} if scheduled else {"lr": spec.predictor_lr})
            )
