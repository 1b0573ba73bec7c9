"""Images as people have them, one after the other, as the pixels that a network takes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from normscope._checks import describe, invalid
from normscope.data.images import BITS, fitted, rgb

_WANTED = "a PIL image, or an array or tensor of colours, (h, w, 3) or (3, h, w)"
_SCALE = "Pass 8-bit images, or divide them by 255; leave other scalings out."


def each_image(images: Any) -> Iterator[Any]:
    """One image, a batch of them, or an iterable of images, as single images.

    >>> [tuple(image.shape) for image in each_image(torch.zeros(2, 3, 8, 8))]
    [(3, 8, 8), (3, 8, 8)]
    """
    if isinstance(images, (np.ndarray, Tensor)) and images.ndim != 4:
        yield images
    elif isinstance(images, Iterable) and not isinstance(images, (str, bytes)):
        yield from images
    elif hasattr(images, "__getitem__") and not isinstance(images, (str, bytes)):  # `LazyImages`
        yield from (images[i] for i in range(len(images)))
    else:
        yield images


def pixels(image: Any, *, side: int) -> Tensor:
    """One image as float32 in [0, 1], (3, side, side).

    An image of another size is resized as the training's evaluation does it: in 8 bits, its
    shorter side to `side` by bicubic interpolation, then the centre square.

    Args:
        image: a PIL image of any mode; or an array or tensor, uint8 or floating in [0, 1],
            (h, w, 3) or (3, h, w).
        side: of the square.

    >>> pixels(np.full((16, 8, 3), 255, np.uint8), side=8).mean()
    tensor(1.)
    """
    from PIL import Image

    if isinstance(image, Image.Image):
        colours = rgb(image)
        if colours is None:
            got = f"one of Pillow's mode {image.mode}"
            raise invalid("images", BITS, got, "Convert it to RGB.")
    else:
        x = _colours(image)
        if x.shape == (3, side, side):
            return x.float() / 255 if x.dtype == torch.uint8 else x.float()
        whole = x if x.dtype == torch.uint8 else (x * 255).round().to(torch.uint8)
        colours = Image.fromarray(whole.permute(1, 2, 0).contiguous().numpy())
    if colours.size != (side, side):
        colours = fitted(colours, side)
    return torch.from_numpy(np.array(colours)).permute(2, 0, 1).float() / 255


def _colours(image: Any) -> Tensor:
    """An array or tensor as a CPU tensor, (3, h, w), uint8 or floating in [0, 1]."""
    if isinstance(image, np.ndarray) and image.dtype.kind in "uf":
        image = torch.from_numpy(np.array(image))
    if (
        not isinstance(image, Tensor)
        or image.ndim != 3
        or 3 not in (image.shape[0], image.shape[2])
    ):
        got = f"an array of shape {image.shape}" if isinstance(image, np.ndarray) else image
        advice = "Open files with PIL.Image.open, or use `normscope embed`."
        raise invalid("images", _WANTED, got, advice)
    x = image.detach().cpu()
    x = x if x.shape[0] == 3 else x.permute(2, 0, 1)
    if 0 in x.shape:
        raise invalid("images", "at least one pixel each", image, "Leave it out.")
    if x.is_floating_point() and not (x.min() >= 0 and x.max() <= 1):  # NaN neither
        got = f"{describe(image)} from {float(x.min()):g} to {float(x.max()):g}"
        raise invalid("images", "in [0, 1] where they are floating", got, _SCALE)
    if not x.is_floating_point() and x.dtype != torch.uint8:
        raise invalid("images", "uint8 or floating", image, _SCALE)
    return x
