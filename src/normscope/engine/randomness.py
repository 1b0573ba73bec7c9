"""Random numbers that depend only on the seed and the place in training.

There is no state to save: a resumed run draws the same numbers as an uninterrupted one.
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
