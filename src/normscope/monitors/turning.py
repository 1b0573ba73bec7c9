"""By which angle each layer turned: what the optimizer did, whatever the optimizer."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from normscope._sphere import angles_between


class Turned(NamedTuple):
    """What layers did between two log points."""

    numbers: Tensor  # (3, layers): angles per step, sizes, sizes at the start
    steps: int

    def record(self) -> dict[str, Any]:
        """As Python numbers.

        Returns:
            `rad_per_step`, the median over the layers, and `rad_per_step_by_layer`;
            `steps_between` the log points; `weight_size`, the median root mean square of a row's
            norm, some .15 to 1.5 in usual initialisations, and `weight_growth`, the median of a
            layer's norm over its norm at the start.
        """
        angles, sizes, first = self.numbers.tolist()
        pairs = zip(sizes, first, strict=True)
        return {
            "rad_per_step": _median(angles),
            "rad_per_step_by_layer": angles,
            "steps_between": self.steps,
            "weight_size": _median(sizes),
            "weight_growth": _median([now / start if start else math.nan for now, start in pairs]),
        }


class Turning:
    r"""Angles between the weights of two log points, per step between them.

    Holds one copy of the layers, on their device; computes nothing between log points.

    Steps in one direction add up, steps in random directions cancel: k random steps of angle a
    come to some $a \sqrt k$, and show as $a / \sqrt k$ per step. Momentum makes neighbouring
    steps alike. So compare only runs with as many steps between log points. No angle exceeds
    $\pi$, and one between random directions is $\pi / 2$.

    Args:
        layers: weights by name; all entries of one tensor are one vector.

    >>> w = torch.tensor([[1.0, 0.0]])
    >>> turning = Turning({"w": w})
    >>> turning.start(0)
    >>> _ = w.copy_(torch.tensor([[2.0, 2.0]]))
    >>> found = turning.measure(20).record()  # an eighth of a circle in 20 steps
    >>> print(f"{found['rad_per_step']:.4f}, {found['weight_growth']:.2f}")
    0.0393, 2.83
    """

    def __init__(self, layers: Mapping[str, Tensor]) -> None:
        self.layers = dict(layers)
        self._start = self._step = 0
        self._before: list[Tensor] = []
        self._first_size: Tensor | None = None

    def start(self, step: int) -> None:
        """Measure from here on; a second call does nothing."""
        if self._first_size is None and self.layers:
            now = self._now()
            self._start = self._step = step
            self._before = [w.clone() for w in now]
            self._first_size = _sizes(now)

    def measure(self, step: int) -> Turned | None:
        """What the layers did since the last log point, queued on their device.

        None in the first step, in which the optimizer may not have moved yet.
        """
        steps = step - self._step
        if self._first_size is None or steps < 1 or step - self._start < 2:
            return None
        now = self._now()
        angles = angles_between(self._before, now) / steps
        for before, w in zip(self._before, now, strict=True):
            before.copy_(w)
        self._step = step
        return Turned(torch.stack([angles, _sizes(now), self._first_size]), steps)

    def state_dict(self) -> dict[str, Any]:
        """The last log point: its step and weights; the start: its step and the sizes."""
        return {
            "start": self._start,
            "step": self._step,
            "weights": self._before,
            "first_size": self._first_size,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Measure from another's last log point."""
        if state["first_size"] is None:
            return
        now = self._now()
        pairs = zip(state["weights"], now, strict=True)
        self._before = [before.to(w.device, copy=True) for before, w in pairs]
        self._start, self._step = state["start"], state["step"]
        self._first_size = state["first_size"].to(now[0].device)

    def _now(self) -> list[Tensor]:
        return [w.detach() for w in self.layers.values()]


def _sizes(weights: list[Tensor]) -> Tensor:
    """Root mean squares of the rows' norms, (layers,), in float32 or wider."""
    lengths = [
        torch.linalg.vector_norm(w, dtype=torch.promote_types(w.dtype, torch.float32))
        / max(len(w), 1) ** 0.5
        for w in weights
    ]
    return torch.stack(lengths)


def _median(values: list[float]) -> float:
    """The median of the finite values: a layer of zeros has no direction."""
    return statistics.median([v for v in values if math.isfinite(v)] or [math.nan])
