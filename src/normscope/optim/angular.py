r"""Steps of a known angle: each turns a weight by `lr` radians, and keeps its norm."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from normscope._checks import check_number, invalid
from normscope._kernels import has_kernels, on_device_of
from normscope.optim.alike import batches, order_of, scalar_rate, turn_
from normscope.optim.builder import Group

if TYPE_CHECKING:
    from normscope.optim.fused import Turns

_RIGHT_ANGLE = math.pi / 2
_USUAL = "Usual: 0.02."
_LANES = 6  # streams on a GPU
_MOST_ENTRIES = 2**30  # of a matrix, which kernels number in 32 bits


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
        fused: whether kernels of our own compute all matrices of a group in a few launches, on an
            NVIDIA GPU, in float32 and with orthogonal directions; elsewhere it changes nothing.
            None means no: they are tested in Triton's interpreter, and not timed on a GPU yet.

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
        fused: bool | None = None,
    ) -> None:
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "orthogonal": orthogonal,
            "scalar_lr": scalar_lr,
            "foreach": foreach,
            "fused": fused,
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
            self._group_step(group)
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

    def _group_step(self, group: Group) -> None:
        with_grad = [p for p in group["params"] if p.grad is not None]
        if any(p.grad.is_sparse for p in with_grad):
            raise RuntimeError("gradients must be dense, got a sparse one. Use sparse=False.")
        for p in with_grad:
            self._prepare(p)
        matrices = [p for p in with_grad if p.ndim > 1]
        suited = [self._suits_kernels(p, group, matrices[0].device) for p in matrices]
        ours = [p for p, suits in zip(matrices, suited, strict=True) if suits]
        rest = [p for p, suits in zip(matrices, suited, strict=True) if not suits]
        turns = self._turns(ours, group) if ours else None
        jobs: list[Callable[[], None]] = [] if turns is None else turns.orthogonalisations()
        for alike in batches(rest, apart=group["foreach"] is False):
            jobs.append(partial(turn_, alike, [self.state[p] for p in alike], group))
        with self._lanes(len(jobs), matrices) as lanes:
            for job, lane in zip(jobs, lanes, strict=True):
                with lane:
                    job()
            _plain_steps_([p for p in with_grad if p.ndim < 2], self.state, group)
            rates = [] if turns is None else _rates(group, ours[0].device)
        if turns is not None:
            with on_device_of(ours[0]):
                turns.finish_(*rates)

    @contextmanager
    def _lanes(
        self, jobs: int, params: Sequence[Tensor]
    ) -> Iterator[list[AbstractContextManager[object]]]:
        """Where each job is done: on a GPU side by side, the first, largest one alone and urgent.

        Each kernel of a small job takes longer to launch than to run.
        """
        if not jobs or not params[0].is_cuda:
            yield [nullcontext()] * jobs
            return
        device = params[0].device
        if not self._streams:
            priorities = [-1] + [0] * (_LANES - 1)  # the lower, the sooner
            self._streams = [torch.cuda.Stream(device, priority=p) for p in priorities]
        here = torch.cuda.current_stream(device)
        for stream in self._streams:
            stream.wait_stream(here)
        places = [0 if i == 0 else 1 + i % (_LANES - 1) for i in range(jobs)]
        yield [torch.cuda.stream(self._streams[place]) for place in places]
        for stream in self._streams:
            here.wait_stream(stream)

    def _suits_kernels(self, p: Tensor, group: Group, device: torch.device) -> bool:
        """Whether kernels can turn it together with others."""
        if not (group.get("fused") and group["orthogonal"] and has_kernels(p)):
            return False
        order, velocity, norm = order_of(p), self.state[p]["velocity"], self.state[p]["norm"]
        return (
            type(p.data) is Tensor
            and 0 < p.numel() < _MOST_ENTRIES
            and all(x.dtype == torch.float32 and x.device == device for x in (p, velocity, norm))
            and all(x.permute(order).is_contiguous() for x in (p, velocity))
        )

    def _turns(self, params: list[Tensor], group: Group) -> Turns:
        """A step of all these in a few launches, begun."""
        from normscope.optim.fused import Turns

        w = [p.permute(order_of(p)) for p in params]
        v = [self.state[p]["velocity"].permute(order_of(p)) for p in params]
        g = [p.grad.permute(order_of(p)).float().contiguous() for p in params if p.grad is not None]
        norms = [self.state[p]["norm"] for p in params]
        with on_device_of(params[0]):
            return Turns(w, v, g, norms, momentum=float(group["momentum"]))

    def _prepare(self, p: Tensor) -> None:
        state = self.state[p]
        if state:
            return
        wide = torch.promote_types(p.dtype, torch.float32)
        state["velocity"] = torch.zeros_like(p, dtype=wide)
        if p.ndim > 1:
            state["norm"] = torch.linalg.vector_norm(p, dtype=wide)


def _plain_steps_(params: list[Tensor], state: Mapping[Any, Any], group: Group) -> None:
    """Plain SGD's steps, at a rate in proportion to the schedule."""
    if not params:
        return
    velocities = [state[p]["velocity"] for p in params]
    torch._foreach_mul_(velocities, group["momentum"])  # pyright: ignore
    torch._foreach_add_(velocities, [p.grad for p in params])  # pyright: ignore
    steps = torch._foreach_mul(velocities, scalar_rate(group))  # pyright: ignore
    torch._foreach_sub_(params, steps)  # pyright: ignore


def _rates(group: Group, device: torch.device) -> list[Tensor]:
    """The angle's cosine and sine, and the rate of zero weights, where kernels read them."""
    angle = group["lr"]
    if not isinstance(angle, Tensor) or angle.device != device:
        angle = torch.full((), float(angle), device=device)
    plain = scalar_rate({**group, "lr": angle}) / (1 - group["momentum"])
    return [angle.cos(), angle.sin(), plain]  # pyright: ignore


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
