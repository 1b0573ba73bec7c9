"""What one training step shows to the monitors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from torch import Tensor

from normscope._checks import (
    NormOf,
    check_embeddings,
    check_floating,
    check_labels,
    check_number,
    describe,
    invalid,
)
from normscope._sphere import safe_norm, unit


@dataclass(frozen=True)
class Observation:
    r"""One step's embeddings, with what else is known about the step.

    Args:
        z: raw embeddings where the loss acts, (n, d), in any floating dtype; NaN may be there.
        lr: the learning rate $\gamma$ of this step, zero or more.
        targets: what each row is pulled to, (n, d): the other view, or the stop-gradient side.
        labels: the rows' classes, (n,), integers; those outside 0 ... classes - 1 are ignored.
        grad: gradient of the loss in z, (n, d). Under a loss scaler, divide it by the scale.
        power: the power $p$ of a GradScale that stands between the network and z, so that the
            network receives $\|z_i\|^p g_i$.
        power_of: whose norm that is, as in `grad_scale`.
        weights: weights whose scale does not change the output, by name
            (`scale_invariant_parameters` finds them).
        classes: how many classes there are.
        previous_square: mean of $\|z\|^2$ at the previous observation, a scalar.
        steps: training steps since the previous observation.
    """

    z: Tensor
    lr: float
    targets: Tensor | None = None
    labels: Tensor | None = None
    grad: Tensor | None = None
    power: float = 0.0
    power_of: NormOf = "each"
    weights: Mapping[str, Tensor] | None = None
    classes: int | None = None
    previous_square: Tensor | None = None
    steps: int = 1

    def __post_init__(self) -> None:
        """Refuse inconsistent values; reads only shapes, so the device never waits."""
        check_embeddings(z=self.z)
        if check_number("lr", self.lr, "Pass the step's rate.", positive=False) < 0:
            raise invalid("lr", "zero or more", self.lr, "Pass the step's rate.")
        for name, value in (("targets", self.targets), ("grad", self.grad)):
            if value is None:
                continue
            check_floating(name, value, "(n, d)", ndim=2)
            # not the dtype: under autocast the two sides of a loss may differ in it
            if (value.shape, value.device) != (self.z.shape, self.z.device):
                constraint = f"of the shape and on the device of z, {describe(self.z)}"
                raise invalid(name, constraint, value, "Row i of each must be one example.")
        if self.labels is not None:
            check_labels(self.labels, self.z)

    @cached_property
    def norm(self) -> Tensor:
        r"""$\|z_i\|$, (n,), in float32 or wider."""
        return safe_norm(self.z.detach()).squeeze(-1)

    @cached_property
    def z_hat(self) -> Tensor:
        r"""$\hat z_i$, (n, d), in float32 or wider; zero where z is."""
        return unit(self.z.detach())[0]
