"""Backbones and heads, in plain PyTorch, under the parameter names of published weights."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from normscope._checks import invalid
from normscope.nets.batch_norm import synchronised
from normscope.nets.heads import Prototypes, mlp
from normscope.nets.resnet import (
    ResNet,
    Stem,
    load_torchvision_,
    resnet10_narrow,
    resnet18,
    resnet50,
)
from normscope.nets.vit import VisionTransformer, vit_micro, vit_small, vit_tiny

_LARGEST_CIFAR_SIDE = 32


def _stem(side: int) -> Stem:
    return "cifar" if side <= _LARGEST_CIFAR_SIDE else "imagenet"


# name -> the network for images of a side, in pixels
NETS: dict[str, Callable[[int], nn.Module]] = {
    "resnet10_narrow": lambda _: resnet10_narrow(),
    "resnet18": lambda side: resnet18(stem=_stem(side)),
    "resnet50": lambda side: resnet50(stem=_stem(side)),
    "vit_micro": lambda side: vit_micro(side=side),
    "vit_tiny": lambda side: vit_tiny(side=side),
    "vit_small": lambda side: vit_small(side=side),
    # fixed positions, as MoCo v3 has them
    "vit_tiny_fixed": lambda side: vit_tiny(side=side, positions="sincos"),
    "vit_small_fixed": lambda side: vit_small(side=side, positions="sincos"),
}


def backbone(name: str, *, side: int) -> nn.Module:
    """A fresh network by its name, (n, 3, side, side) -> (n, width).

    Args:
        name: one of `NETS`.
        side: pixels of an image's side. ResNets take the CIFAR stem up to 32 and the ImageNet
            stem above; transformers a patch that goes with it.

    >>> backbone("resnet18", side=32).width
    512
    """
    if name not in NETS:
        raise invalid("name", "a known network", name, f"There are {', '.join(NETS)}.")
    if not isinstance(side, int) or side < 1:
        raise invalid("side", "a positive integer", side, "CIFAR's images have 32 pixels.")
    return NETS[name](side)


__all__ = [
    "NETS",
    "Prototypes",
    "ResNet",
    "VisionTransformer",
    "backbone",
    "load_torchvision_",
    "mlp",
    "resnet10_narrow",
    "resnet18",
    "resnet50",
    "synchronised",
    "vit_micro",
    "vit_small",
    "vit_tiny",
]
