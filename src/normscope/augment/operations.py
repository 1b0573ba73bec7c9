"""What is done to pixels: each image by its own amount, all of them at once.

Images are (n, c, h, w), float32 in [0, 1]; amounts are (n,). Nothing waits for the device or
branches on a value. Each operation is tested against Pillow, which works in eight bits.
Temporaries are changed in place: on a CPU, fresh memory costs more than the arithmetic.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

_LUMA = (0.299, 0.587, 0.114)  # ITU-R 601, as Pillow's "L"


def spread(rows: Tensor) -> Tensor:
    """One value per image, ready to meet images, (n,) -> (n, 1, 1, 1)."""
    return rows[:, None, None, None]


def luma(x: Tensor) -> Tensor:
    """Grey images, (n, 3, h, w) -> (n, 1, h, w)."""
    r, g, b = x.unbind(1)
    return (_LUMA[0] * r).add_(g, alpha=_LUMA[1]).add_(b, alpha=_LUMA[2])[:, None]


def mean(grey: Tensor) -> Tensor:
    """Mean of each grey image, which Pillow rounds to eight bits, (n, 1, h, w) -> (n, 1, 1, 1)."""
    return grey.mean((2, 3), keepdim=True)


def blended(x: Tensor, other: Tensor, factor: Tensor) -> Tensor:
    """From `other` at factor 0 to x at 1, and beyond; clamped to [0, 1].

    With black this is brightness, with the mean of the grey image contrast, with the grey image
    saturation, as in Pillow's ImageEnhance.

    >>> blended(torch.full((1, 1, 1, 1), 0.25), torch.zeros(1), torch.tensor([2.0]))
    tensor([[[[0.5000]]]])
    """
    return torch.lerp(other, x, spread(factor)).clamp_(0, 1)


def hue_turned(x: Tensor, turns: Tensor) -> Tensor:
    """The hue of HSV moved round the circle; value and chroma stay.

    >>> hue_turned(torch.tensor([1.0, 0.5, 0.0]).view(1, 3, 1, 1), torch.tensor([1 / 3])).flatten()
    tensor([0.0000, 1.0000, 0.5000])
    """
    r, g, b = x.unbind(1)
    low, high = torch.minimum(r, g).minimum(b), torch.maximum(r, g).maximum(b)
    chroma = high - low
    # In sixths of a turn: red 0, green 2, blue 4. Grey has no hue, and any will do.
    from_green = (b - r).add_(chroma, alpha=2)
    from_blue = (r - g).add_(chroma, alpha=4)
    hue = _chosen(high == r, g - b, _chosen(high == g, from_green, from_blue))
    hue = hue.div_(chroma.clamp(min=1e-12))
    hue = hue.add_(6 * turns[:, None, None]).remainder_(6)
    own = 2 * torch.arange(3, device=x.device, dtype=x.dtype)[:, None, None]
    # A channel is full up to a sixth from its own hue, and gone from two sixths on.
    share = (hue[:, None] - own).abs_().sub_(3).abs_().sub_(1).clamp_(0, 1)
    return torch.addcmul(low[:, None], chroma[:, None], share)


def cropped(
    images: Tensor, box: Tensor, flip: Tensor, *, size: int, within: Tensor | None = None
) -> Tensor:
    """Boxes of the images brought to one size, as Pillow's BILINEAR with a box.

    A triangle filter that widens when shrinking, so nothing is aliased. At the edge of the box it
    reads on into the image.

    Args:
        images: (n, c, h, w), uint8.
        box: left, top, right and bottom in pixels, (n, 4).
        flip: whether to mirror, (n,).
        size: side of the crops.
        within: height and width of what is read of each image, (n, 2); None for all of it.

    Returns:
        (n, c, size, size), float32, in [0, 1].
    """
    height, width = (None, None) if within is None else within.unbind(1)
    left, top, right, bottom = box.unbind(1)
    start, end = right.where(flip, left), left.where(flip, right)  # mirrored: read from the right
    columns = _triangles(start, end, width, pixels=images.shape[3], size=size) / 255
    rows = _triangles(top, bottom, height, pixels=images.shape[2], size=size)
    return _between(rows, images.float(), columns).clamp_(0, 1)


def blurred(x: Tensor, sigma: Tensor, *, radius: int) -> Tensor:
    """Gaussian blur of square images; a sigma of 0 leaves the image as it is.

    Args:
        x: (n, c, size, size).
        sigma: standard deviation in pixels, (n,).
        radius: pixels to either side of the middle of the kernel, fewer than `size`. Beyond the
            border the image is mirrored about its outermost pixels.
    """
    size = x.shape[-1]
    index = torch.arange(size, device=x.device)
    offset = torch.arange(-radius, radius + 1, device=x.device)
    # At a sigma of 1e-3 the neighbours' weights underflow, and only the middle is left.
    taps = (-0.5 * (offset / sigma.clamp(min=1e-3)[:, None]).square()).softmax(1)  # n k
    source = size - 1 - (size - 1 - (index[:, None] + offset).abs()).abs()  # s k
    reads = (source[..., None] == index).to(x.dtype)  # s k s
    with torch.autocast(x.device.type, enabled=False):
        weights = torch.einsum("nk,ikj->nij", taps, reads)
    return _between(weights, x, weights).clamp_(0, 1)


def solarized(x: Tensor) -> Tensor:
    """The bright half inverted.

    >>> solarized(torch.tensor([0.25, 0.75]))
    tensor([0.2500, 0.2500])
    """
    return (1 - x).where(x >= 0.5, x)


def _chosen(mask: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """`a` where the mask is true, else `b`: exact, and on a CPU twice as quick as torch.where."""
    return torch.lerp(b, a, mask.to(a.dtype))


def _triangles(
    start: Tensor, end: Tensor, within: Tensor | None, *, pixels: int, size: int
) -> Tensor:
    """Weights of `pixels` inputs in `size` outputs laid from start to end, (n, size, pixels).

    Those from `within` on, (n,), have none.
    """
    index = partial(torch.arange, device=start.device, dtype=torch.float32)
    length = (end - start)[:, None, None]
    centre = start[:, None, None] + length * ((index(size) + 0.5) / size)[:, None]
    reach = (length.abs() / size).clamp(min=1)
    weights = (index(pixels) + 0.5 - centre).abs_().div_(-reach).add_(1).clamp_(min=0)
    if within is not None:
        weights = weights * (index(pixels) < within[:, None, None])
    return weights.div_(weights.sum(-1, keepdim=True))


def _between(rows: Tensor, x: Tensor, columns: Tensor) -> Tensor:
    """Each image between two matrices of its own: two batched products, for any filter."""
    n, c, h, w = x.shape
    with torch.autocast(x.device.type, enabled=False):  # bfloat16 is coarser than eight bits
        x = (x.reshape(n, c * h, w) @ columns.mT).reshape(n, c, h, -1)
        return rows[:, None] @ x
