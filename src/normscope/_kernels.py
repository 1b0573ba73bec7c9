"""Where our own GPU kernels can stand in for PyTorch's."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor


def has_kernels(x: Tensor) -> bool:
    """Whether kernels can work on x: on a GPU of 2020 or later, and no compiler looking on.

    A module with kernels is imported only then: Triton comes with PyTorch for CUDA alone.
    """
    return x.is_cuda and not torch.compiler.is_compiling() and _can_run(x.device)


@cache
def _can_run(device: torch.device) -> bool:
    """Whether there is Triton, and an NVIDIA GPU with TF32 and bf16."""
    if torch.version.hip is not None or find_spec("triton") is None:
        return False
    return torch.cuda.get_device_capability(device) >= (8, 0)
