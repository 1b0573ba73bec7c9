"""The augmentations of the methods, by name: from the side of the views in pixels.

The methods publish one set for ImageNet and one for CIFAR; views of 32 pixels or fewer get the
latter.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from normscope.augment.views import Augmentation

_CIFAR = 32


def _colour_strength(s: float) -> dict[str, Any]:
    """SimCLR's one number for all colour jitter (Appendix A)."""
    return {"brightness": 0.8 * s, "contrast": 0.8 * s, "saturation": 0.8 * s, "hue": 0.2 * s}


def simclr(size: int) -> Augmentation:
    """Chen et al. 2020, Appendix A (ImageNet) and B.9 (CIFAR-10: half the colour, no blur).

    >>> simclr(32).brightness, simclr(224).brightness
    (0.4, 0.8)
    """
    if size <= _CIFAR:
        return Augmentation(size=size, **_colour_strength(0.5))
    return Augmentation(size=size, **_colour_strength(1.0), blur=(0.5, 0.5))


def simsiam(size: int) -> Augmentation:
    """Chen & He 2021, Appendix A (ImageNet) and D (CIFAR-10: no blur).

    The colour jitter is .4, .4, .4, .1, which is SimCLR's at half strength.
    """
    blur = 0.0 if size <= _CIFAR else 0.5
    strength = _colour_strength(0.5)
    return Augmentation(size=size, crop_scale=(0.2, 1.0), **strength, blur=(blur, blur))


def byol(size: int) -> Augmentation:
    """Grill et al. 2020, Appendix B: the views differ in blur and in solarising.

    They give nothing for CIFAR; small views have neither, as in SimCLR.
    """
    large = size > _CIFAR
    return Augmentation(
        size=size,
        brightness=0.4,
        contrast=0.4,
        saturation=0.2,
        hue=0.1,
        blur=(1.0, 0.1) if large else (0.0, 0.0),
        solarize=(0.0, 0.2) if large else (0.0, 0.0),
    )


def as_coded(size: int) -> Augmentation:
    """The paper's published code on CIFAR: a coin for each kind of jitter, and no blur."""
    strength = _colour_strength(0.5)
    return Augmentation(size=size, crop_scale=(0.2, 1.0), **strength, jitter_coin="each")


def as_coded_strong(size: int) -> Augmentation:
    """The same with twice the colour, which the code gives to every dataset but balanced CIFAR.

    On larger images that is meant; on unbalanced CIFAR it is an accident of comparing names.
    """
    strength = _colour_strength(1.0)
    return Augmentation(size=size, crop_scale=(0.2, 1.0), **strength, jitter_coin="each")


def digits(size: int) -> Augmentation:
    """Mild, for grey digits of 8 pixels: a mirrored digit is another sign, and there is no colour.

    Its numbers are ours. Lower ends of the crop from .08 to .7 gave kNN accuracies within a point
    of each other, .3 the best.
    """
    return Augmentation(
        size=size,
        crop_scale=(0.3, 1.0),
        flip=0.0,
        brightness=0.4,
        contrast=0.4,
        saturation=0.0,
        hue=0.0,
        grayscale=0.0,
    )


PRESETS: dict[str, Callable[[int], Augmentation]] = {
    preset.__name__: preset for preset in (simclr, simsiam, byol, as_coded, as_coded_strong, digits)
}
