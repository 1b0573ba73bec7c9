"""Where our own GPU kernels can stand in for PyTorch's."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor


def has_kernels(x: Tensor) -> bool:
    """Whether kernels can work on x: on a GPU, with Triton, and no compiler looking on.

    A module with kernels is imported only then: Triton comes with PyTorch for CUDA alone.
    """
    return x.is_cuda and not torch.compiler.is_compiling() and _has_triton()


@cache
def _has_triton() -> bool:
    return find_spec("triton") is not None
