"""What a run asks of a GPU beyond its own tensors, and gives back."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def tuned(device: torch.device, precision: str) -> Iterator[None]:
    """Inside this, a GPU's products and convolutions are those of a run; afterwards as before.

    A seed then gives the same bits each time, on GPUs of one kind: sums have an order, and no
    algorithm is chosen by a race. PyTorch refuses what knows no order.

    Args:
        device: where the run is; a CPU's stay as they are.
        precision: of the spec; with `"32"` or `"64"` no product is in TF32.
    """
    if device.type != "cuda":
        yield
        return
    cudnn: Any = torch.backends.cudnn
    memory: Any = torch.utils.deterministic
    tf32 = precision in ("auto", "bf16")
    products = torch.get_float32_matmul_precision()
    before = cudnn.benchmark, cudnn.allow_tf32, memory.fill_uninitialized_memory
    ordered = torch.are_deterministic_algorithms_enabled()
    warns = torch.is_deterministic_algorithms_warn_only_enabled()
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # else PyTorch refuses products
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    cudnn.benchmark, cudnn.allow_tf32 = False, tf32
    memory.fill_uninitialized_memory = False  # which costs a pass, and finds faults alone
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(products)
        cudnn.benchmark, cudnn.allow_tf32, memory.fill_uninitialized_memory = before
        torch.use_deterministic_algorithms(ordered, warn_only=warns)
