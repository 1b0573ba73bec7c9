"""Random views of images: draws and operations."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from normscope._checks import check_number, invalid
from normscope.augment.operations import (
    blended,
    blurred,
    cropped,
    hue_turned,
    luma,
    mean,
    solarized,
    spread,
)

_CONTRAST, _SATURATION, _HUE = 1, 2, 3  # columns of Parameters.jitter; brightness is 0
_ATTEMPTS = 10  # boxes drawn for each image, of which the first that fits is taken
_NUMBERS = [_ATTEMPTS, _ATTEMPTS, 3, 4, 4, 4, 4]  # areas, ratios, place, coins, amounts, ...
DRAWS = sum(_NUMBERS)  # uniform numbers that a view of an image takes


class Parameters(NamedTuple):
    """What was drawn for each of n images; every field has n rows.

    An operation that is not done has the amount that leaves the image alone.

    Args:
        box: left, top, right and bottom of the crop, in pixels, (n, 4), float32.
        flip: whether the crop is mirrored, (n,).
        jitter: factors of brightness, contrast and saturation, and turns of the hue, (n, 4).
        order: columns of `jitter` in the order in which they are done, (n, 4).
        grey: whether the colours go, (n,).
        sigma: standard deviation of the blur, in pixels, (n,); 0 for none.
        solarize: whether the bright half is inverted, (n,).
    """

    box: Tensor
    flip: Tensor
    jitter: Tensor
    order: Tensor
    grey: Tensor
    sigma: Tensor
    solarize: Tensor

    def rows(self, index: slice | Tensor) -> Parameters:
        """The parameters of some of the images."""
        return Parameters(*(field[index] for field in self))


@dataclass(frozen=True, kw_only=True)
class Augmentation:
    """Random views of images. Defaults are SimCLR's on ImageNet (Appendix A), without its blur.

    Args:
        size: side of the views.
        crop_scale: range of the crop's share of the image's area, drawn uniformly.
        crop_ratio: range of its width over its height, drawn uniformly in the logarithm.
        flip: probability of mirroring left and right.
        jitter: probability of colour jitter.
        brightness: s for a factor that is uniform in [max(0, 1 - s), 1 + s]; 0 for none.
        contrast: likewise.
        saturation: likewise.
        hue: h for a turn of the colour circle that is uniform in [-h, h], at most .5.
        jitter_coin: "joint": one coin for all four, done in an order that is random for each image
            (torchvision's ColorJitter). "each": a coin for each of the four, done in the order
            above (the paper's published code).
        grayscale: probability of taking the colours away.
        blur: probability of a gaussian blur, in the first view and in the second. Its kernel is
            about a tenth of the side wide: 3 at 32 pixels, 23 at 224.
        blur_sigma: range of its standard deviation in pixels, drawn uniformly.
        solarize: probability of inverting what is brighter than half, in either view.

    >>> augment = Augmentation(size=32, blur=(0.5, 0.5))
    >>> images = torch.randint(256, (8, 3, 48, 40), dtype=torch.uint8)
    >>> generator = torch.Generator().manual_seed(0)
    >>> augment(images, augment.draw(8, height=48, width=40, generator=generator)).shape
    torch.Size([8, 3, 32, 32])
    """

    size: int
    crop_scale: tuple[float, float] = (0.08, 1.0)
    crop_ratio: tuple[float, float] = (3 / 4, 4 / 3)
    flip: float = 0.5
    jitter: float = 0.8
    brightness: float = 0.8
    contrast: float = 0.8
    saturation: float = 0.8
    hue: float = 0.2
    jitter_coin: Literal["joint", "each"] = "joint"
    grayscale: float = 0.2
    blur: tuple[float, float] = (0.0, 0.0)
    blur_sigma: tuple[float, float] = (0.1, 2.0)
    solarize: tuple[float, float] = (0.0, 0.0)

    def __post_init__(self) -> None:
        if not isinstance(self.size, int) or self.size < 2:
            raise invalid("size", "an integer, 2 or more", self.size, "CIFAR has 32 pixels.")
        for name in ("flip", "jitter", "grayscale"):
            _check_within(name, getattr(self, name), 0, 1, "It is a probability.")
        for name in ("brightness", "contrast", "saturation"):
            _check_within(name, getattr(self, name), 0, math.inf, "SimCLR takes .8 or less.")
        _check_within("hue", self.hue, 0, 0.5, "Half a turn is the opposite colour.")
        for name in ("blur", "solarize"):
            for value in _pair(name, getattr(self, name)):
                _check_within(name, value, 0, 1, "Give the probability in either view.")
        for name, highest in (
            ("crop_scale", 1),
            ("crop_ratio", math.inf),
            ("blur_sigma", math.inf),
        ):
            low, high = _pair(name, getattr(self, name))
            check_number(name, low, "Give the lower end, then the upper.")
            _check_within(name, high, low, highest, "Give the lower end, then the upper.")
        if self.jitter_coin not in ("joint", "each"):
            raise invalid("jitter_coin", "'joint' or 'each'", self.jitter_coin, "Usual: 'joint'.")

    def draw(
        self, n: int, *, height: int, width: int, generator: torch.Generator, view: int = 0
    ) -> Parameters:
        """Parameters for n images, on the generator's device.

        Args:
            n: how many images.
            height: of the images that will be cropped, in pixels.
            width: likewise.
            generator: the only source of randomness.
            view: 0 for the first view and 1 for the second, which may differ in the probability
                of blur and of solarising.
        """
        u = torch.rand(n, DRAWS, generator=generator, device=generator.device)
        return self.parameters(u, height=height, width=width, view=view)

    def parameters(
        self, u: Tensor, *, height: int | Tensor, width: int | Tensor, view: int = 0
    ) -> Parameters:
        """Parameters for n images, from uniform numbers.

        The settings do not change how many numbers there are, so one seed gives the same crops with
        other colours. Of ten boxes the first that fits into the image is taken, like torchvision's
        ten tries. If none fits, the last one is cut to the image's sides.

        Args:
            u: independent and uniform in [0, 1), (n, DRAWS).
            height: of the images that will be cropped, in pixels; (n,) if they differ.
            width: likewise.
            view: as in `draw`.
        """
        if view not in (0, 1):
            raise invalid("view", "0 or 1", view, "An augmentation describes two kinds of view.")
        areas, ratios, place, coins, amounts, keys, late = u.split(_NUMBERS, dim=1)
        across, down, flip = place.unbind(1)
        grey, blur, sigma, solarize = late.unbind(1)
        w, h = self._first_that_fits(areas, ratios, height=height, width=width)
        left, top = across * (width - w), down * (height - h)
        return Parameters(
            box=torch.stack([left, top, left + w, top + h], dim=1),
            flip=flip < self.flip,
            jitter=self._jitter_amounts(coins < self.jitter, amounts),
            order=self._jitter_order(keys),
            grey=grey < self.grayscale,
            sigma=_uniform(sigma, *self.blur_sigma) * (blur < self.blur[view]),
            solarize=solarize < self.solarize[view],
        )

    def _first_that_fits(
        self, areas: Tensor, ratios: Tensor, *, height: int | Tensor, width: int | Tensor
    ) -> tuple[Tensor, Tensor]:
        """Width and height of one box an image, (n,), from uniform draws, (n, attempts)."""
        across, down = (x[:, None] if isinstance(x, Tensor) else x for x in (width, height))
        area = _uniform(areas, *self.crop_scale) * (down * across)
        ratio = _uniform(ratios, *map(math.log, self.crop_ratio)).exp()
        w, h = (area * ratio).sqrt(), (area / ratio).sqrt()
        fits = (w <= across) & (h <= down)
        fits[:, -1].fill_(True)
        first = fits.byte().argmax(1, keepdim=True)
        w, h = w.gather(1, first).squeeze(1), h.gather(1, first).squeeze(1)
        return w.clamp(max=width), h.clamp(max=height)

    def crop(self, images: Tensor, parameters: Parameters, sizes: Tensor | None = None) -> Tensor:
        """The drawn boxes, mirrored where drawn, as Pillow resizes a box with BILINEAR.

        Args:
            images: (n, c, h, w), uint8.
            parameters: of these n images, drawn for their height and width.
            sizes: height and width of each, which lies in the top left corner, (n, 2); None if
                all are h x w.

        Returns:
            (n, c, size, size), float32, in [0, 1].
        """
        n = len(parameters.flip)
        if images.dtype != torch.uint8 or images.ndim != 4 or len(images) != n:
            constraint = f"a uint8 tensor (n, c, h, w) with n = {n}"
            raise invalid("images", constraint, images, "Draw parameters for each image.")
        return cropped(images, parameters.box, parameters.flip, size=self.size, within=sizes)

    def colour(self, images: Tensor, parameters: Parameters) -> Tensor:
        """Jitter, grey, blur and solarising, in this order; clamped to [0, 1] after each.

        Args:
            images: (n, 3, size, size), floating in [0, 1], or uint8.
            parameters: of these n images.

        Returns:
            The same shape, float32, in [0, 1].
        """
        shape = (len(parameters.flip), 3, self.size, self.size)
        if images.shape != shape:
            raise invalid("images", f"of shape {shape}", images, "Crop to the size first.")
        x = images.float() / 255 if images.dtype == torch.uint8 else images.float()
        if self.jitter > 0:
            x = self._jittered(x, parameters)
        if self.grayscale > 0:
            x = luma(x).where(spread(parameters.grey), x)
        if max(self.blur) > 0:
            # Half of a tenth of the side, as in SimCLR's code.
            x = blurred(x, parameters.sigma, radius=max(1, self.size // 20))
        if max(self.solarize) > 0:
            x = solarized(x).where(spread(parameters.solarize), x)
        return x

    def __call__(
        self, images: Tensor, parameters: Parameters, sizes: Tensor | None = None
    ) -> Tensor:
        """One view of each image: `colour` of `crop`."""
        return self.colour(self.crop(images, parameters, sizes), parameters)

    @property
    def _strengths(self) -> tuple[float, float, float, float]:
        return self.brightness, self.contrast, self.saturation, self.hue

    def _jitter_amounts(self, coins: Tensor, u: Tensor) -> Tensor:
        """Factors and turns, (n, 4), from coins and uniform numbers, (n, 4) both."""
        columns = []
        for i, s in enumerate(self._strengths):
            low, high, none = (-s, s, 0.0) if i == _HUE else (max(0.0, 1 - s), 1 + s, 1.0)
            coin = coins[:, 0 if self.jitter_coin == "joint" else i]
            columns.append(_uniform(u[:, i], low, high).where(coin, none))
        return torch.stack(columns, dim=1)

    def _jitter_order(self, keys: Tensor) -> Tensor:
        """A random order, (n, 4), of the operations with a strength; the others come last."""
        columns = []
        for i, s in enumerate(self._strengths):
            key = keys[:, i] if self.jitter_coin == "joint" else torch.full_like(keys[:, i], i / 4)
            columns.append(key if s > 0 else torch.ones_like(key))
        return torch.stack(columns, dim=1).argsort(dim=1)

    def _jittered(self, x: Tensor, parameters: Parameters) -> Tensor:
        """Blends before the hue's turn, the hue, and blends after it.

        Each image is in each of them, by an amount that does nothing if it is not its turn. The
        hue costs as much as five blends, so it is done once.
        """
        order = parameters.order
        factors = parameters.jitter.gather(1, order)
        turned = (order == _HUE).cumsum(1) > 0  # n 4, from the hue's own round on
        done = sum(s > 0 for s in self._strengths)
        for i in range(done - (self.hue > 0)):
            x = _one_blend(x, order[:, i], factors[:, i].where(~turned[:, i], 1.0))
        if self.hue > 0:
            x = hue_turned(x, parameters.jitter[:, _HUE])
        if self.hue > 0 and self.jitter_coin == "joint":
            later = turned & (order != _HUE)
            for i in range(1, done):
                x = _one_blend(x, order[:, i], factors[:, i].where(later[:, i], 1.0))
        return x


def _one_blend(x: Tensor, operation: Tensor, factor: Tensor) -> Tensor:
    """Brightness, contrast or saturation, as `operation` says for each image."""
    grey = luma(x)
    other = grey * spread(operation == _SATURATION) + mean(grey) * spread(operation == _CONTRAST)
    return blended(x, other, factor)


def _uniform(u: Tensor, low: float, high: float) -> Tensor:
    return low + (high - low) * u


def _pair(name: str, value: tuple[float, float]) -> tuple[float, float]:
    if not isinstance(value, tuple) or len(value) != 2:
        raise invalid(name, "a tuple of two numbers", value, "Write (0.5, 0.5), say.")
    return value


def _check_within(name: str, value: float, low: float, high: float, advice: str) -> None:
    if not low <= check_number(name, value, advice, positive=False) <= high:
        raise invalid(name, f"from {low:g} to {high:g}", value, advice)
