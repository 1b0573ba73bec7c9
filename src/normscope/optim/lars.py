"""LARS, for batches of thousands of images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from normscope._checks import invalid
from normscope.optim.builder import Group


def lars(groups: Sequence[Group], *, lr: float, momentum: float, **_: Any) -> torch.optim.Optimizer:
    """LARS as SimCLR has it."""
    return LARS(groups, lr=lr, momentum=momentum)


class LARS(torch.optim.Optimizer):
    r"""SGD whose steps are in proportion to the weights (You et al., 2017).

    $g \leftarrow \eta \frac{\|w\|}{\|g + \lambda w\|} (g + \lambda w)$ for every parameter of more
    than one dimension; biases and norms are not rescaled, as in SimCLR.

    The rate is outside the velocity, as in PyTorch's SGD: $v \leftarrow \mu v + g$,
    $w \leftarrow w - \gamma v$. A new rate acts on all that was gathered. SimCLR's code has it
    inside: $v \leftarrow \mu v + \gamma g$, $w \leftarrow w - v$. What was gathered keeps its old
    rate. At a constant rate the two are equal; under a schedule they are not.

    Args:
        params: parameters or groups.
        lr: learning rate.
        momentum: .9 in SimCLR.
        weight_decay: $\lambda$; 1e-6 in SimCLR.
        trust: $\eta$; .001 in SimCLR.
        rate: `"outside"` the velocity, or `"inside"` it, as SimCLR's code has it.
    """

    def __init__(
        self,
        params: Any,
        *,
        lr: float,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        trust: float = 0.001,
        rate: Literal["outside", "inside"] = "outside",
    ) -> None:
        if rate not in ("outside", "inside"):
            raise invalid("rate", "'outside' or 'inside'", rate, "SimCLR's code has it inside.")
        defaults = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "trust": trust}
        super().__init__(params, defaults)
        self.rate = rate

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """One step; the loss, if a closure computes it."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    self._step(p, p.grad, group)
        return loss

    def _step(self, p: Tensor, grad: Tensor, group: dict[str, Any]) -> None:
        grad = grad.add(p, alpha=group["weight_decay"])
        if p.ndim > 1:
            w, g = p.norm(), grad.norm()
            grad = grad * torch.where((w > 0) & (g > 0), group["trust"] * w / g, 1.0)
        inside = self.rate == "inside"
        grad = grad * group["lr"] if inside else grad
        velocity = self.state[p].get("velocity")
        if velocity is None:
            velocity = self.state[p]["velocity"] = grad.clone()
        else:
            velocity.mul_(group["momentum"]).add_(grad)
        p.sub_(velocity, alpha=1.0 if inside else group["lr"])
