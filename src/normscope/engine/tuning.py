"""Process-wide GPU settings of a run, restored afterwards."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

_SETTING = "CUBLAS_WORKSPACE_CONFIG"  # deterministic products need it


@contextmanager
def tuned(device: torch.device, precision: str) -> Iterator[None]:
    """Context with a run's settings for GPU products and convolutions; restores them on exit.

    A seed then gives the same bits each time, on one GPU of the same kind with the same PyTorch:
    algorithms are deterministic and not chosen by benchmark. PyTorch refuses operations without a
    deterministic algorithm, or only warns if products ran before $CUBLAS_WORKSPACE_CONFIG was set.
    That setting stays.

    Args:
        device: the run's device; on a CPU nothing changes.
        precision: the spec's; with `"32"` or `"64"` no product is in TF32.
    """
    if device.type != "cuda":
        yield
        return
    cudnn: Any = torch.backends.cudnn
    deterministic: Any = torch.utils.deterministic
    tf32 = precision in ("auto", "bf16")
    products = torch.get_float32_matmul_precision()
    before = cudnn.benchmark, cudnn.allow_tf32, deterministic.fill_uninitialized_memory
    was_ordered = torch.are_deterministic_algorithms_enabled()
    only_warned = torch.is_deterministic_algorithms_warn_only_enabled()
    os.environ.setdefault(_SETTING, ":4096:8")
    try:
        torch.set_float32_matmul_precision("high" if tf32 else "highest")
        cudnn.benchmark, cudnn.allow_tf32 = False, tf32
        deterministic.fill_uninitialized_memory = False  # a pass over memory, to find faults by
        torch.use_deterministic_algorithms(True)
        if torch.cuda.is_available() and _refuses_products(device):
            torch.use_deterministic_algorithms(True, warn_only=True)
        yield
    finally:
        torch.set_float32_matmul_precision(products)
        cudnn.benchmark, cudnn.allow_tf32, deterministic.fill_uninitialized_memory = before
        torch.use_deterministic_algorithms(was_ordered, warn_only=only_warned)


def _refuses_products(device: torch.device) -> bool:
    """Whether products raise: PyTorch reads cuBLAS's setting once, at the first product."""
    one = torch.ones(1, 1, device=device)
    try:
        one.mm(one)
    except RuntimeError as error:
        if _SETTING not in str(error):  # out of memory, say
            raise
        return True
    return False
