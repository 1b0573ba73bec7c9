"""Wider sums than the embeddings' own, on devices that have them."""

from __future__ import annotations

import torch
from torch import Tensor

WITHOUT_FLOAT64 = {"mps"}  # kinds of devices


def has_float64(device: torch.device) -> bool:
    """Whether tensors there may be float64; Apple's GPUs have none."""
    return device.type not in WITHOUT_FLOAT64


def widened(z: Tensor) -> Tensor:
    """In float64 where its device has that, else in float32 or wider.

    >>> widened(torch.ones(1, dtype=torch.bfloat16)).dtype
    torch.float64
    """
    wide = torch.promote_types(z.dtype, torch.float32)
    return z.to(torch.float64 if has_float64(z.device) else wide)


def in_float64(z: Tensor) -> Tensor:
    """In float64 on its device, or on the CPU where the device has none."""
    return (z if has_float64(z.device) else z.cpu()).to(torch.float64)
