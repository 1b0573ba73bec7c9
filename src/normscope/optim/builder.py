"""What builds an optimizer, and what its learning rate means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

Group = dict[str, Any]  # parameters, and what holds for them alone, such as their weight decay


class Builder(Protocol):
    """Makes an optimizer over groups, from the settings of a run; it takes those that it has."""

    def __call__(
        self,
        groups: Sequence[Group],
        *,
        lr: float,
        momentum: float,
        nesterov: bool,
        scalar_lr: float,
        orthogonal: bool,
    ) -> torch.optim.Optimizer:
        """The optimizer."""
        ...


@dataclass(frozen=True)
class Kind:
    """An optimizer as a run has it.

    Attributes:
        build: makes it.
        is_angle: whether its learning rate is one, which neither the batch nor the size of the
            gradient changes.
        own: settings of a run that replace those of a recipe for another optimizer.
    """

    build: Builder
    is_angle: bool = False
    own: Mapping[str, Any] = field(default_factory=dict)
