"""What a run asks of a GPU beyond its own tensors, and gives back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def tuned(device: torch.device, precision: str) -> Iterator[None]:
    """Inside this, a GPU's products and convolutions are those of a run; afterwards as before.

    Args:
        device: where the run is; a CPU's stay as they are.
        precision: of the spec; with `"32"` or `"64"` no product is in TF32.
    """
    if device.type != "cuda":
        yield
        return
    cudnn: Any = torch.backends.cudnn
    tf32 = precision in ("auto", "bf16")
    before = torch.get_float32_matmul_precision(), cudnn.benchmark, cudnn.allow_tf32
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    cudnn.benchmark, cudnn.allow_tf32 = True, tf32  # images are of one size
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before[0])
        cudnn.benchmark, cudnn.allow_tf32 = before[1:]
