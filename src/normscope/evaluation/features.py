"""A network's outputs over a whole dataset."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from normscope._checks import invalid


@torch.no_grad()
def extract(
    encode: Callable[[Tensor], dict[str, Tensor]],
    batches: Iterable[Tensor],
    *,
    device: torch.device | str,
) -> dict[str, Tensor]:
    """Named outputs for every image, in order, in float32, on `device`.

    Args:
        encode: images, float in [0, 1], (n, c, h, w), to named tensors, (n, ...). Put the network
            behind it in eval mode first.
        batches: uint8 images, (n, c, h, w) each.
        device: where `encode` works.

    >>> batches = [torch.full((2, 3, 4, 4), 255, dtype=torch.uint8)]
    >>> extract(lambda x: {"h": x.mean((1, 2, 3))}, batches, device="cpu")
    {'h': tensor([1., 1.])}
    """
    parts: dict[str, list[Tensor]] = {}
    for images in batches:
        if not isinstance(images, Tensor) or images.dtype != torch.uint8 or images.ndim != 4:
            raise invalid("batches", "uint8 tensors (n, c, h, w)", images, "Pass raw images.")
        x = images.to(device, memory_format=torch.channels_last).float() / 255
        for name, output in encode(x).items():
            parts.setdefault(name, []).append(output.float())
    if not parts:
        raise invalid("batches", "at least one batch", "none", "An iterator can be used up.")
    return {name: torch.cat(outputs) for name, outputs in parts.items()}
