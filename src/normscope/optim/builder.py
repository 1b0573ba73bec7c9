"""What builds an optimizer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch

Group = dict[str, Any]  # parameters, and what holds for them alone, such as their weight decay


class Builder(Protocol):
    """Makes an optimizer over groups, from the settings of a run; it takes those that it has."""

    def __call__(
        self, groups: Sequence[Group], *, lr: float, momentum: float, nesterov: bool
    ) -> torch.optim.Optimizer:
        """The optimizer."""
        ...
