"""Random numbers that depend on the seed and on the place in training alone.

There is no state to save: a run that goes on from a checkpoint draws what it would have drawn.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from torch import Tensor

_PURPOSES = {"order": 0, "views": 1}


def seed_for(seed: int, purpose: Literal["order", "views"], *place: int) -> int:
    """A seed for one purpose at one place, such as an epoch and a batch.

    >>> seed_for(0, "order", 1) == seed_for(0, "views", 1)
    False
    """
    mixed = np.random.SeedSequence([seed, _PURPOSES[purpose], *place])
    return int(mixed.generate_state(1, np.uint64)[0]) >> 1  # torch takes signed 64 bits


def shuffled(seed: int, epoch: int, n: int) -> Tensor:
    """The order of n images in an epoch, on the CPU."""
    generator = torch.Generator().manual_seed(seed_for(seed, "order", epoch))
    return torch.randperm(n, generator=generator)
