"""Turn weights by PyTorch's own operations, those of one shape as one batch."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from normscope.optim.builder import Group
from normscope.optim.newton_schulz import orthogonalised


def batches(matrices: list[Tensor], *, apart: bool) -> list[list[Tensor]]:
    """Those of one shape, dtype and device together, or each apart; the largest first."""
    if apart:
        return [[p] for p in matrices]
    alike: dict[Any, list[Tensor]] = {}
    for p in matrices:
        alike.setdefault((p.shape, p.stride(), p.dtype, p.device), []).append(p)
    return sorted(alike.values(), key=lambda batch: -len(batch) * batch[0].numel())


def turn_(params: list[Tensor], states: list[dict[str, Tensor]], group: Group) -> None:
    """Turn weights of one shape by the group's angle."""
    order = order_of(params[0])  # of dimensions, so that columns lie in memory as they are read
    ours = [p.permute(order) for p in params]
    velocities = [state["velocity"].permute(order) for state in states]
    wide = velocities[0].dtype
    grads = [p.grad.permute(order).to(wide) for p in params if p.grad is not None]
    torch._foreach_lerp_(velocities, grads, 1 - group["momentum"])  # pyright: ignore
    v = torch.stack(velocities).flatten(2)  # k rows columns
    w = torch.stack(ours).flatten(2).to(wide)
    norm = torch.stack([state["norm"] for state in states])[:, None, None]
    d = orthogonalised(v).where(norm > 0, v) if group["orthogonal"] else v
    moves = torch.stack(torch._foreach_norm(grads)) != 0  # pyright: ignore
    plain = scalar_rate(group) / (1 - group["momentum"])
    new = turned(w, d, norm, group["lr"], moves[:, None, None], plain)
    torch._foreach_copy_(ours, list(new.unflatten(2, ours[0].shape[1:]).unbind()))  # pyright: ignore


def order_of(p: Tensor) -> list[int]:
    """Outputs first; channels last where they are so in memory."""
    last = p.ndim == 4 and p.is_contiguous(memory_format=torch.channels_last)
    return [0, 2, 3, 1] if last else list(range(p.ndim))


def turned(
    w: Tensor,
    d: Tensor,
    norm: Tensor,
    angle: float | Tensor,
    moves: Tensor,
    plain: float | Tensor,
) -> Tensor:
    r"""$\|w_0\| (\cos\gamma \hat w - \sin\gamma \hat d_\perp)$, without building $d_\perp$.

    A weight that was zero has no direction: a plain step at the rate `plain`, until the end.
    """
    over = {"dim": (1, 2), "keepdim": True}
    along = (w * d).sum(**over)
    w_square = torch.linalg.vector_norm(w, **over).square()
    d_square = torch.linalg.vector_norm(d, **over).square()
    # |d_perp|^2 = |d|^2 - (d.w)^2 / |w|^2; rounding leaves 1e-6 of it where d is along w
    apart = d_square - along.square() / w_square
    # a NaN is neither zero nor small, so that it shows in the weights
    turns = moves & ~(apart <= 1e-6 * d_square)
    cos, sin = (angle.cos(), angle.sin()) if isinstance(angle, Tensor) else _of(angle)
    per_d = torch.where(turns, sin * norm / apart.sqrt(), 0.0)
    per_w = torch.where(turns, cos * norm / w_square.sqrt() + per_d * along / w_square, 1.0)
    has_direction = norm > 0
    per_d, per_w = per_d.where(has_direction, plain), per_w.where(has_direction, 1.0)
    return torch.addcmul(per_w * w, per_d, d, value=-1)


def _of(angle: float) -> tuple[float, float]:
    return math.cos(angle), math.sin(angle)


def scalar_rate(group: Group) -> float | Tensor:
    """Of plain steps, in proportion to the schedule."""
    return group["scalar_lr"] / group["full_lr"] * group["lr"]
