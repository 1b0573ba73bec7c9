"""The learning rate at every step, and the optimizer that takes it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from normscope.engine.spec import RunSpec
from normscope.methods import Method


def peak_lr(spec: RunSpec) -> float:
    """The learning rate at the end of the warm-up: linear in the batch (Appendix C.1)."""
    return spec.lr * spec.batch / 256


def lr_share(spec: RunSpec, epoch: float) -> float:
    r"""The share of the peak learning rate at a time in epochs.

    Linear up to the warm-up's end, then $\frac12 (1 + \cos \pi t)$, t from the warm-up's end (or
    from the run's start, as the published code has it) to the horizon.

    >>> spec = RunSpec(epochs=100)  # ten epochs of warm-up
    >>> [round(lr_share(spec, t), 3) for t in (0, 5, 10, 55, 100)]
    [0.0, 0.5, 1.0, 0.5, 0.0]
    """
    if epoch < spec.warmup_epochs:
        return epoch / spec.warmup_epochs
    start = spec.warmup_epochs if spec.cosine_start == "warmup" else 0.0
    t = min(1.0, (epoch - start) / max(spec.horizon_epochs - start, 1e-12))
    return (1 + math.cos(math.pi * t)) / 2


def optimizer_for(method: Method, spec: RunSpec) -> torch.optim.Optimizer:
    """The optimizer over everything that needs a gradient, in groups that share a rule."""
    groups = [g for g in _groups(method, spec) if g["params"]]
    lr = peak_lr(spec)
    fused = next(method.parameters()).is_cuda  # one kernel for all; a CPU keeps torch's own choice
    if spec.optimizer == "sgd":
        nesterov = spec.nesterov and spec.momentum > 0
        rule = {"momentum": spec.momentum, "nesterov": nesterov}
        return torch.optim.SGD(groups, lr=lr, fused=fused or None, **rule)
    if spec.optimizer == "lars":
        return LARS(groups, lr=lr, momentum=spec.momentum)
    # Adam adds the decay to the gradient; AdamW takes it from the weight (Loshchilov & Hutter)
    kind = torch.optim.Adam if spec.optimizer == "adam" else torch.optim.AdamW
    return kind(groups, lr=lr, fused=fused or None)


def set_lr_(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Give every group that follows the schedule this learning rate."""
    for group in optimizer.param_groups:
        if group["scheduled"]:
            group["lr"] = lr


def _groups(method: Method, spec: RunSpec) -> Iterable[dict[str, Any]]:
    """Parameters by whether they decay and whether they follow the schedule."""
    predictor = getattr(method, "predictor", None) if spec.predictor_lr is not None else None
    own = {id(p) for p in predictor.parameters()} if isinstance(predictor, nn.Module) else set()
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


class LARS(torch.optim.Optimizer):
    r"""SGD whose steps are in proportion to the weights (You et al., 2017).

    $g \leftarrow \eta \frac{\|w\|}{\|g + \lambda w\|} (g + \lambda w)$ for every parameter of more
    than one dimension; biases and norms are not rescaled, as in SimCLR.

    Args:
        params: parameters or groups.
        lr: learning rate.
        momentum: .9 in SimCLR.
        weight_decay: $\lambda$; 1e-6 in SimCLR.
        trust: $\eta$; .001 in SimCLR.
    """

    def __init__(
        self,
        params: Any,
        *,
        lr: float,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        trust: float = 0.001,
    ) -> None:
        defaults = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "trust": trust}
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """One step."""
        if closure is not None:
            raise RuntimeError("closure must be left out: LARS evaluates the loss once.")
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    self._step(p, p.grad, group)

    def _step(self, p: Tensor, grad: Tensor, group: dict[str, Any]) -> None:
        grad = grad.add(p, alpha=group["weight_decay"])
        if p.ndim > 1:
            w, g = p.norm(), grad.norm()
            grad = grad * torch.where((w > 0) & (g > 0), group["trust"] * w / g, 1.0)
        velocity = self.state[p].get("velocity")
        if velocity is None:
            velocity = self.state[p]["velocity"] = grad.clone()
        else:
            velocity.mul_(group["momentum"]).add_(grad)
        p.sub_(velocity, alpha=group["lr"])
