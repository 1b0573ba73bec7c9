"""What a ResNet does between its weights; on a GPU by kernels of our own, in fewer passes."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from normscope._kernels import has_kernels


def patched(conv: nn.Conv2d, x: Tensor) -> Tensor:
    """conv(x) for images x, (n, 3, h, w).

    A GPU's convolutions want many channels: patches of 3 x 3 times a matrix take half their time.
    """
    plain = conv.kernel_size == (3, 3) and conv.stride == (1, 1) and conv.in_channels == 3
    if not (plain and _takes(conv, x)) or x.requires_grad:
        return conv(x)
    from normscope.nets.fused import PATCH, patches

    autocast = torch.is_autocast_enabled("cuda")
    dtype = torch.get_autocast_dtype("cuda") if autocast else conv.weight.dtype
    flat = conv.weight.permute(0, 2, 3, 1).flatten(1)  # c' 27
    y = F.linear(patches(x, dtype), F.pad(flat, (0, PATCH - flat.shape[1])))  # n h w c'
    return y.permute(0, 3, 1, 2)


def norm_relu(norm: nn.Module, x: Tensor, residual: Tensor | None = None) -> Tensor:
    """relu(norm(x) + residual).

    Args:
        norm: a batch norm.
        x: (n, c, h, w).
        residual: what is added before the ReLU, of the same shape.
    """
    if _fuses(norm, x) and (residual is None or residual.dtype == x.dtype):
        return _fused(norm, x, residual, relu=True)
    y = norm(x)
    return torch.relu(y if residual is None else y + residual)


def norm_alone(norm: nn.Module, x: Tensor) -> Tensor:
    """norm(x)."""
    return _fused(norm, x, None, relu=False) if _fuses(norm, x) else norm(x)


def fork(x: Tensor) -> tuple[Tensor, Tensor]:
    """The same for two readers; a norm that made it adds their gradients as it reads them."""
    return x, getattr(x, "twin", x)


def _fused(norm: nn.Module, x: Tensor, residual: Tensor | None, *, relu: bool) -> Tensor:
    from normscope.nets.fused import NormReLU

    y, twin = NormReLU.apply(x, norm.weight, norm.bias, residual, norm, relu)  # pyright: ignore[reportGeneralTypeIssues]
    y.twin = twin
    return y


def _fuses(norm: nn.Module, x: Tensor) -> bool:
    """Whether a kernel can do what the norm would: a usual one, in training."""
    return (
        _takes(norm, x)
        and type(norm) is nn.BatchNorm2d
        and norm.training
        and norm.affine
        and norm.weight.dtype == torch.float32
        and norm.track_running_stats
        and norm.momentum is not None
        and norm.num_features >= 16
        and norm.num_features.bit_count() == 1
        and x.numel() > norm.num_features  # one value has no variance, and the norm says so
    )


def _takes(layer: nn.Module, x: Tensor) -> bool:
    """Whether there are kernels for x, and nobody who looks on at the layer."""
    hooks = layer._forward_hooks or layer._forward_pre_hooks or layer._backward_hooks
    return (
        has_kernels(x)
        and x.dtype != torch.float64
        and x.is_contiguous(memory_format=torch.channels_last)
        and not hooks
    )
