"""A learning-rate range test that reads angles: which rate turns the weights as fast as is good."""

from __future__ import annotations

import copy
import math
import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from normscope._checks import check_number, invalid
from normscope._sphere import angles_between
from normscope.monitors.rules import GOOD_ANGLE, WILD, nice

# The first step turns the layer that turns most by this. (Others may have no gradient yet: residual
# branches start at zero.) Momentum .9 makes it ten times as much.
_FIRST_ANGLE = 1e-5
_GROWTH = 1.027  # of the rate at each step: ten times in 86
_WIDTH = 9  # steps that a median of angles is over, a third of those of a loss
# Weights a quarter longer have gained a right-angled walk of three quarters of their length.
_LONGER = 1.25
_LONGEST = 3.0
_NOISE = 5.0  # standard deviations of the first losses: less is no fall and no rise
# Above this share of the stable limit a rate is not advised, whatever angle it gives.
_MARGIN = 3.0
_AS_IT_IS = 1.5  # advice by less than this factor is none


@dataclass(frozen=True)
class Point:
    """A place on the way up: the rate, and the median layer's angle per step there."""

    lr: float
    angle: float


@dataclass(frozen=True)
class RangeTest:
    """What a range test found.

    Attributes:
        lr: the rate that the optimizer had, the first group's.
        lrs: the rates that were tried, one a step.
        angles: radians that the median layer turned in each step.
        losses: at each step, before it.
        steepest: where the loss fell fastest per factor of the rate.
        stable: the last place before weights grew by a quarter, or the loss gave back a third of
            its fall, rose above its start, or was not finite.
        advised: where to train: the angle of .007, or a third of the last stable rate.
        cuts: whether a cut of the initial weights acts as a raised rate, as under SGD.
    """

    lr: float
    lrs: tuple[float, ...]
    angles: tuple[float, ...]
    losses: tuple[float, ...]
    steepest: Point
    stable: Point
    advised: Point
    cuts: bool

    @property
    def factor(self) -> float:
        """What to multiply the optimizer's rate by."""
        return self.advised.lr / self.lr

    @property
    def keeps(self) -> bool:
        """Whether the rate is right as it is, to a factor of 1.5."""
        return 1 / _AS_IT_IS < self.factor < _AS_IT_IS

    @property
    def cut(self) -> float:
        """The cut that acts alike on weights that a normalisation follows; 1 if none does."""
        return self.factor**0.5 if self.cuts and self.factor > 1 and not self.keeps else 1.0

    @property
    def advice(self) -> str:
        """One line."""
        if self.keeps:
            return f"keep the lr: {self.lr:.2g} is right to a factor of {_AS_IT_IS:g}"
        to = f"to {self.advised.lr:.2g}, for {self.advised.angle:.1g} rad per step"
        if self.advised.angle < GOOD_ANGLE / _AS_IT_IS:
            to += ", a third of the last stable lr"
        if self.factor < 1:
            return f"lower the lr {nice(1 / self.factor)} times, {to}"
        cut = f" (or cut by {nice(self.cut)})" if self.cuts else ""
        return f"raise the lr {nice(self.factor)} times{cut}, {to}"


def range_test(
    step: Callable[[], Tensor],
    optimizer: torch.optim.Optimizer,
    module: nn.Module,
    *,
    after: Callable[[], object] | None = None,
    steps: int = 600,
    progress: Callable[[int, int], object] | None = None,
) -> RangeTest:
    r"""Raise the learning rate from almost nothing until training breaks; say which one is right.

    Call it on a fresh network, with the optimizer's groups at their peak rates. Their proportions
    are kept, and a group with `scheduled=False` keeps its rate. Afterwards parameters, buffers,
    the optimizer's state and torch's random state are what they were. The rate grows by 2.7 % a
    step, so some 200 to 400 steps are taken.

    A short test can't see what a rate does in a hundred epochs. What it sees is the angle, and on
    digits the best rates of SimCLR, SimSiam and BYOL had nearly the same one, .005 to .008.

    Args:
        step: computes a batch's loss, calls `backward`, and returns the loss; a new batch each
            time. Gradients are cleared before.
        optimizer: any.
        module: holds all that the steps change: network, heads, momentum copies.
        after: called after each of the optimizer's steps, as for a momentum copy.
        steps: at most.
        progress: called with the number of steps done, and `steps`.

    Raises:
        ValueError: if the first loss is not finite, no layer turns, or there are too few steps for
            a rate that is high enough.

    >>> net = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.Linear(32, 4))
    >>> optimizer = torch.optim.SGD(net.parameters(), lr=1e-4, momentum=0.9)
    >>> x = torch.randn(64, 8)
    >>> def step():
    ...     loss = (net(x) - x[:, :4]).square().mean()
    ...     loss.backward()
    ...     return loss
    >>> found = range_test(step, optimizer, net)
    >>> found.advice[:10], found.factor > 10
    ('raise the ', True)
    """
    groups = [group for group in optimizer.param_groups if group.get("scheduled", True)]
    if not groups or check_number("lr", groups[0]["lr"], "Set the peak rate.") <= 0:
        raise invalid("optimizer", "with a group that follows the schedule", optimizer, "Add one.")
    if not isinstance(steps, int) or steps < 4 * _WIDTH:
        raise invalid("steps", f"an integer of at least {4 * _WIDTH}", steps, "Usual: 600.")
    lr = float(groups[0]["lr"])
    peaks = [float(group["lr"]) for group in optimizer.param_groups]
    weights = [p for group in groups for p in group["params"] if p.ndim > 1 and p.requires_grad]
    if not weights:
        raise invalid("optimizer", "one over weights of two dimensions or more", optimizer, "Add.")

    def at(factor: float) -> tuple[float, list[float]]:
        """The loss before a step at this share of the peak rates, and the angles it turns by."""
        # not `groups`: loading a state replaces them
        for group, peak in zip(optimizer.param_groups, peaks, strict=True):
            group["lr"] = factor * peak if group.get("scheduled", True) else peak
        optimizer.zero_grad()
        loss = float(step().detach())
        before = [w.detach().clone() for w in weights]
        optimizer.step()
        angles = angles_between(before, [w.detach() for w in weights]).tolist()
        if after is not None:
            after()
        return loss, [a for a in angles if math.isfinite(a)] or [math.nan]

    with _restored(module, optimizer):
        loss, turned = at(1.0)
    if not math.isfinite(loss) or not max(turned) > 0:
        constraint = "one whose first loss is finite, and turns the weights"
        raise invalid("step", constraint, loss, "Does it call backward, on this optimizer's?")
    start = _FIRST_ANGLE / math.tan(min(max(turned), 1.5))
    way: list[tuple[float, float, float, float]] = []  # factor, loss, angle, growth
    with _restored(module, optimizer):
        first = _lengths(weights)
        for n in range(steps):
            factor = start * _GROWTH**n
            loss, turned = at(factor)
            growth = float((_lengths(weights) / first).median())
            way.append((factor, loss, statistics.median(turned), growth))
            if progress is not None:
                progress(n + 1, steps)
            if _broken(way):
                break
    ended = _broken(way)
    if not ended and statistics.median(a for *_, a, _ in way[-_WIDTH:]) < GOOD_ANGLE:
        advice = f"They ended at an lr of {lr * way[-1][0]:.2g}. Usual: 600."
        raise invalid("steps", "enough to reach an lr that is too high", steps, advice)
    return _found(way, lr, ended=ended, cuts=isinstance(optimizer, torch.optim.SGD))


def _broken(way: list[tuple[float, float, float, float]]) -> bool:
    """Whether there is nothing more to learn from higher rates."""
    _, loss, angle, growth = way[-1]
    if not (math.isfinite(loss) and math.isfinite(angle) and growth < _LONGEST):
        return True
    return len(way) >= _WIDTH and statistics.median(a for *_, a, _ in way[-_WIDTH:]) > WILD


def _found(
    way: list[tuple[float, float, float, float]], lr: float, *, ended: bool, cuts: bool
) -> RangeTest:
    """What the way up says; `ended` if it broke, so that its last place is an end of stability."""
    way = [point for point in way if math.isfinite(point[1]) and math.isfinite(point[2])]
    lrs = [lr * factor for factor, *_ in way]
    tried = [loss for _, loss, _, _ in way]
    losses, angles = _smooth(tried, 3 * _WIDTH), _smooth([a for _, _, a, _ in way], _WIDTH)
    last = _last_stable(losses, [g for *_, g in way], noise=statistics.pstdev(tried[: 4 * _WIDTH]))
    lowest = min(range(last + 1), key=losses.__getitem__)
    width = min(2 * _WIDTH, lowest)
    steepest = min(range(width, lowest + 1), key=lambda i: losses[i] - losses[i - width])
    good = next((i for i, a in enumerate(angles) if a >= GOOD_ANGLE), len(angles) - 1)
    most = lrs[last] / _MARGIN
    near = min(range(len(lrs)), key=lambda i: abs(math.log(lrs[i] / most)))
    if not ended and last + 1 == len(lrs):
        near = last  # no limit was met

    def point(i: int) -> Point:
        return Point(lrs[i], angles[i])

    columns = tuple(lrs), tuple(a for _, _, a, _ in way), tuple(tried)
    places = point(steepest - width // 2), point(last), point(min(good, near))
    return RangeTest(lr, *columns, *places, cuts)


def _last_stable(losses: list[float], growths: list[float], *, noise: float) -> int:
    """The last step before weights or loss went off."""
    lowest = losses[0]
    for i, (loss, growth) in enumerate(zip(losses, growths, strict=True)):
        lowest = min(lowest, loss)
        fall = losses[0] - lowest
        highest = lowest + fall / 3 if fall > _NOISE * noise else losses[0] + _NOISE * noise
        if growth > _LONGER or loss > highest:
            return max(i - 1, 0)
    return len(losses) - 1


def _smooth(values: list[float], width: int) -> list[float]:
    """Medians over neighbours, fewer at the ends."""
    half = width // 2
    return [statistics.median(values[max(0, i - half) : i + half + 1]) for i in range(len(values))]


def _lengths(weights: list[Tensor]) -> Tensor:
    return torch.stack([w.detach().float().norm() for w in weights])


@contextmanager
def _restored(module: nn.Module, optimizer: torch.optim.Optimizer) -> Iterator[None]:
    """Context after which module, optimizer, gradients and random state are as before."""
    named = [*module.parameters(), *module.buffers()]
    held = {id(p) for p in named}
    own = [p for group in optimizer.param_groups for p in group["params"] if id(p) not in held]
    tensors = [(t, t.detach().clone(), t.grad) for t in [*named, *own]]
    state: dict[str, Any] = copy.deepcopy(optimizer.state_dict())
    devices = sorted({t.device.index or 0 for t, _, _ in tensors if t.is_cuda})
    with torch.random.fork_rng(devices=devices):
        try:
            for t, _, _ in tensors:
                t.grad = None
            yield
        finally:
            with torch.no_grad():
                for t, before, grad in tensors:
                    t.copy_(before)
                    t.grad = grad
            optimizer.state.clear()
            optimizer.load_state_dict(state)
