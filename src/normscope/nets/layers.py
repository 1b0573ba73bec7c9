"""Training passes by kernels of our own: the same numbers in fewer passes over memory."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from normscope._kernels import has_kernels, on_device_of

_USUAL = (nn.Sequential, nn.MaxPool2d, nn.Identity, nn.ReLU)


def fuses(net: nn.Module, blocks: tuple[type, ...], x: Tensor) -> bool:
    """Whether the kernels can do all that a ResNet would do with x.

    They can in training, on a GPU, in float32 or less, if its layers are as they were built and
    have no hooks.

    Args:
        net: the network.
        blocks: what its stages are made of.
        x: images, (n, 3, h, w).
    """
    return (
        has_kernels(x)
        and x.dtype != torch.float64
        and not x.requires_grad
        and len(x) > 1  # one value has no variance, and a norm says so
        and all(_as_built(layer, (type(net), *blocks)) for layer in net.modules())
    )


def _as_built(layer: nn.Module, known: tuple[type, ...]) -> bool:
    if isinstance(layer, nn.BatchNorm2d):
        return _usual_norm(layer)
    if type(layer) is nn.Conv2d:
        return layer.bias is None and not _watched(layer)
    return type(layer) in (*_USUAL, *known) and not _watched(layer)


def _usual_norm(norm: nn.Module) -> bool:
    if not isinstance(norm, (nn.BatchNorm1d, nn.BatchNorm2d)):
        return False
    return (
        type(norm) in (nn.BatchNorm1d, nn.BatchNorm2d)  # not what builds on them
        and norm.training
        and norm.affine
        and norm.weight.dtype == torch.float32
        and norm.track_running_stats
        and norm.momentum is not None
        and norm.num_features >= 16
        and norm.num_features.bit_count() == 1
        and not _watched(norm)
    )


def _watched(layer: nn.Module) -> bool:
    """Whether the layer has hooks."""
    return bool(
        layer._forward_hooks
        or layer._forward_pre_hooks
        or layer._backward_hooks
        or layer._backward_pre_hooks
    )


def norm_relu(norm: nn.Module, relu: nn.Module, x: Tensor) -> Tensor:
    """relu(norm(x)) for the rows of x, (n, c)."""
    usual = _usual_norm(norm) and type(relu) is nn.ReLU and not _watched(relu)
    if not (usual and has_kernels(x) and x.ndim == 2 and len(x) > 1 and x.dtype != torch.float64):
        return relu(norm(x))
    with on_device_of(x):
        return _norm(norm, x[:, :, None, None])[0].flatten(1)


def fused_features(net: Any, x: Tensor) -> Tensor:
    """What `net(x)` gives, (n, 3, h, w) -> (n, width), where `fuses` says so."""
    with on_device_of(x):
        y, twin = _norm(net.bn1, _first(net.conv1, x))
        if not isinstance(net.maxpool, nn.Identity):
            y = twin = net.maxpool(y)
        for stage in (net.layer1, net.layer2, net.layer3, net.layer4):
            for block in stage:
                y, twin = _block(block, y, twin)
    return y.mean((2, 3))


def _block(block: Any, x: Tensor, shortcut: Tensor) -> tuple[Tensor, Tensor]:
    """A residual block, of whose two readers of x each has its own."""
    *inner, (conv, norm) = block.pairs()
    for inner_conv, inner_norm in inner:
        x, _ = _norm(inner_norm, inner_conv(x))
    if block.downsample is not None:
        reduced, reduced_norm = block.downsample
        shortcut, _ = _norm(reduced_norm, reduced(shortcut), relu=False)
    return _norm(norm, conv(x), shortcut)


def _norm(
    norm: nn.Module, x: Tensor, residual: Tensor | None = None, *, relu: bool = True
) -> tuple[Tensor, Tensor]:
    """relu(norm(x) + residual), for two readers whose gradients are added in the backward pass."""
    from normscope.nets.fused import NormReLU

    if residual is not None:
        residual = residual.to(x.dtype)
    return NormReLU.apply(x, norm.weight, norm.bias, residual, norm, relu)  # pyright: ignore


def _first(conv: nn.Conv2d, x: Tensor) -> Tensor:
    """conv(x) for images x, (n, 3, h, w).

    A GPU's convolutions want many channels: patches of 3 x 3 times a matrix take half their time.
    """
    if (conv.kernel_size, conv.stride, conv.padding) != ((3, 3), (1, 1), (1, 1)):
        return conv(x)
    from normscope.nets.fused import PATCH, patches

    autocast = torch.is_autocast_enabled(x.device.type)
    dtype = torch.get_autocast_dtype(x.device.type) if autocast else conv.weight.dtype
    flat = conv.weight.permute(0, 2, 3, 1).flatten(1)  # c' 27
    y = F.linear(patches(x, dtype), F.pad(flat, (0, PATCH - flat.shape[1])))  # n h w c'
    return y.permute(0, 3, 1, 2)
