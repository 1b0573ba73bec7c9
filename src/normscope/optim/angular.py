r"""Steps of a known angle: each turns a weight by `lr` radians, and keeps its norm."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor

from normscope._checks import check_number, invalid
from normscope.optim.builder import Group
from normscope.optim.newton_schulz import orthogonalised

_RIGHT_ANGLE = math.pi / 2
_USUAL = "Usual: 0.02."
_LANES = 5  # streams on a GPU


def angular(
    groups: Sequence[Group],
    *,
    lr: float,
    momentum: float,
    scalar_lr: float,
    orthogonal: bool,
    **_: Any,
) -> torch.optim.Optimizer:
    """AngularSGD, on a GPU with a rate that lies there, so that steps can be recorded."""
    device = groups[0]["params"][0].device
    rate = torch.tensor(lr, device=device) if device.type == "cuda" else lr
    rule = {"momentum": momentum, "scalar_lr": scalar_lr, "orthogonal": orthogonal}
    return AngularSGD(groups, lr=rate, **rule)


class AngularSGD(torch.optim.Optimizer):
    r"""SGD with momentum whose steps turn each weight by a known angle.

    For a parameter w of more than one dimension, all its entries one vector, with momentum v:

    $v \leftarrow \mu v + (1 - \mu) g, \quad
    w \leftarrow \|w_0\| \left( \cos\gamma \, \hat w - \sin\gamma \, \hat d_{\perp w} \right)$

    where $\gamma$ is the learning rate in radians and d the direction: v as a matrix with all its
    singular values set to one (by Newton-Schulz iterations, as in Muon), or v itself. The norm
    stays $\|w_0\|$, that of the first step, so there is no weight decay. A normalisation that
    follows a weight removes its size, and only the angle counts: for such weights neither the scale
    of the loss nor that of the initial weights matters.

    Parameters of one dimension, such as biases and gains, take plain SGD's steps
    $v \leftarrow \mu v + g, \; w \leftarrow w - \gamma_1 v$ at the rate `scalar_lr` times the share
    that `lr` has of its first value: a schedule acts on both. Both scales do matter to these. So do
    they to parameters that are zero at first: these have no direction, and take the same steps.

    Args:
        params: parameters or groups; each group may have its own settings.
        lr: radians per step, above zero and below a right angle. With a tensor on the parameters'
            device, a step can be recorded in a CUDA graph, and `fill_` changes the rate.
        momentum: $\mu$.
        orthogonal: whether d has singular values of one. Convolutions are matrices of one row per
            output channel.
        scalar_lr: the rate of parameters of one dimension.
        foreach: whether matrices of one shape are computed as one batch: quicker, and the memory
            of another copy of the parameters. None means yes.

    A weight whose gradient is exactly zero stays as it is. The state is kept in float32 or wider.
    No step waits for the device.

    Source: the orthogonal direction is Muon's (Jordan et al., 2024).

    >>> w = torch.nn.Parameter(torch.tensor([[3.0, 4.0]]))
    >>> optimizer = AngularSGD([w], lr=0.1)
    >>> w.grad = torch.tensor([[1.0, 0.0]])
    >>> optimizer.step()
    >>> print(f"{w.norm():.4f}, at {torch.atan2(w[0, 1], w[0, 0]):.4f} rad")  # was .9273
    5.0000, at 1.0273 rad
    """

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 0.02,
        momentum: float = 0.9,
        orthogonal: bool = True,
        scalar_lr: float = 0.3,
        *,
        foreach: bool | None = None,
    ) -> None:
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "orthogonal": orthogonal,
            "scalar_lr": scalar_lr,
            "foreach": foreach,
        }
        self._streams: list[torch.cuda.Stream] = []
        super().__init__(params, defaults)

    def __getstate__(self) -> dict[str, Any]:
        """Without the streams, which can't be copied."""
        return {**super().__getstate__(), "_streams": []}

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters, whose settings are checked."""
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        try:
            _check(group)
        except ValueError:
            self.param_groups.pop()
            raise
        group.setdefault("full_lr", float(group["lr"]))  # what scalar_lr belongs to

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """One step; the loss, if a closure computes it."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            with_grad = [p for p in group["params"] if p.grad is not None]
            if any(p.grad.is_sparse for p in with_grad):
                raise RuntimeError("gradients must be dense, got a sparse one. Use sparse=False.")
            for p in with_grad:
                self._prepare(p)
            _plain_steps_([p for p in with_grad if p.ndim < 2], self.state, group)
            matrices = [p for p in with_grad if p.ndim > 1]
            batches = _batches(matrices, apart=group["foreach"] is False)
            with self._lanes(batches) as lanes:
                for alike, lane in zip(batches, lanes, strict=True):
                    with lane:
                        _turn_(alike, [self.state[p] for p in alike], group)
        return loss

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Continue from another's `state_dict`; its state is not rounded to the weights' dtype."""
        own_rates = [group["lr"] for group in self.param_groups]
        super().load_state_dict(dict(state_dict))
        for group, rate in zip(self.param_groups, own_rates, strict=True):
            saved_rate = float(group["lr"])
            # a recorded step reads a tensor where it is
            group["lr"] = rate.fill_(saved_rate) if isinstance(rate, Tensor) else saved_rate
        saved = state_dict["state"]
        numbers = (i for group in state_dict["param_groups"] for i in group["params"])
        own = (p for group in self.param_groups for p in group["params"])
        for i, p in zip(numbers, own, strict=True):
            if i in saved:
                self.state[p] = {k: v.to(p.device, copy=True) for k, v in saved[i].items()}

    @contextmanager
    def _lanes(self, batches: Sequence[list[Tensor]]) -> Iterator[list[AbstractContextManager]]:
        """Where each batch is computed: on a GPU side by side, the first, largest one alone.

        Each kernel of a small batch takes longer to launch than to run.
        """
        if not batches or not batches[0][0].is_cuda:
            yield [nullcontext() for _ in batches]
            return
        device = batches[0][0].device
        if not self._streams:
            self._streams = [torch.cuda.Stream(device) for _ in range(_LANES)]
        here = torch.cuda.current_stream(device)
        for stream in self._streams:
            stream.wait_stream(here)
        places = [0 if i == 0 else 1 + i % (_LANES - 1) for i in range(len(batches))]
        yield [torch.cuda.stream(self._streams[place]) for place in places]
        for stream in self._streams:
            here.wait_stream(stream)

    def _prepare(self, p: Tensor) -> None:
        state = self.state[p]
        if state:
            return
        wide = torch.promote_types(p.dtype, torch.float32)
        state["velocity"] = torch.zeros_like(p, dtype=wide)
        if p.ndim > 1:
            state["norm"] = torch.linalg.vector_norm(p, dtype=wide)


def _batches(matrices: list[Tensor], *, apart: bool) -> list[list[Tensor]]:
    """Those of one shape, dtype and device together, or each apart; the largest first."""
    if apart:
        return [[p] for p in matrices]
    alike: dict[Any, list[Tensor]] = {}
    for p in matrices:
        alike.setdefault((p.shape, p.stride(), p.dtype, p.device), []).append(p)
    return sorted(alike.values(), key=lambda batch: -len(batch) * batch[0].numel())


def _plain_steps_(params: list[Tensor], state: Mapping[Any, Any], group: Group) -> None:
    """Plain SGD's steps, at a rate in proportion to the schedule."""
    if not params:
        return
    velocities = [state[p]["velocity"] for p in params]
    torch._foreach_mul_(velocities, group["momentum"])  # pyright: ignore
    torch._foreach_add_(velocities, [p.grad for p in params])  # pyright: ignore
    steps = torch._foreach_mul(velocities, _scalar_rate(group))  # pyright: ignore
    torch._foreach_sub_(params, steps)  # pyright: ignore


def _scalar_rate(group: Group) -> float | Tensor:
    return group["scalar_lr"] / group["full_lr"] * group["lr"]


def _turn_(params: list[Tensor], states: list[dict[str, Tensor]], group: Group) -> None:
    """Turn weights of one shape by the group's angle."""
    order = _order(params[0])  # of dimensions, so that columns lie in memory as they are read
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
    plain = _scalar_rate(group) / (1 - group["momentum"])
    turned = _turned(w, d, norm, group["lr"], moves[:, None, None], plain)
    torch._foreach_copy_(ours, list(turned.unflatten(2, ours[0].shape[1:]).unbind()))  # pyright: ignore


def _order(p: Tensor) -> list[int]:
    """Outputs first; channels last where they are so in memory."""
    last = p.ndim == 4 and p.is_contiguous(memory_format=torch.channels_last)
    return [0, 2, 3, 1] if last else list(range(p.ndim))


def _turned(
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


def _check(group: Group) -> None:
    lr = float(group["lr"]) if isinstance(group["lr"], Tensor) else group["lr"]
    rate = check_number("lr", lr, _USUAL, positive=False)
    if not 0 < rate < _RIGHT_ANGLE:  # scalar_lr belongs to it, so that it can't be zero
        raise invalid("lr", "an angle above 0 and below 1.57 radians", rate, _USUAL)
    momentum = check_number("momentum", group["momentum"], "Usual: 0.9.", positive=False)
    if not 0 <= momentum < 1:
        raise invalid("momentum", "from 0 to below 1", momentum, "Usual: 0.9.")
    if check_number("scalar_lr", group["scalar_lr"], "Usual: 0.3.", positive=False) < 0:
        raise invalid("scalar_lr", "zero or more", group["scalar_lr"], "Usual: 0.3.")
    if group.get("weight_decay"):
        advice = "Norms stay, so there is nothing for it to do."
        raise invalid("weight_decay", "left out", group["weight_decay"], advice)
    for p in group["params"]:
        if not p.is_floating_point():
            raise invalid("params", "of real numbers", p, "Leave it to another optimizer.")
