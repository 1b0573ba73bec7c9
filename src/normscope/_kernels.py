"""Where our own GPU kernels can stand in for PyTorch's."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor


def has_kernels(x: Tensor) -> bool:
    """Whether kernels can work on x: on a GPU of 2020 or later, and not under torch.compile.

    A module with kernels is imported only then: Triton comes with PyTorch for CUDA alone.
    """
    return x.is_cuda and not torch.compiler.is_compiling() and runs_kernels(x.device)


def on_device_of(x: Tensor) -> AbstractContextManager[object]:
    """Context in which kernels go to the device of x: Triton uses the current one alone."""
    return torch.cuda.device(x.device) if x.is_cuda else nullcontext()


@cache
def runs_kernels(device: torch.device) -> bool:
    """Whether there is Triton, and an NVIDIA GPU with TF32 and bf16."""
    if device.type != "cuda" or torch.version.hip is not None or find_spec("triton") is None:
        return False
    return torch.cuda.get_device_capability(device) >= (8, 0)
