"""Batch normalisation over the joined batch of every process, on GPUs and on CPUs."""

from __future__ import annotations

from itertools import chain

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from normscope._checks import invalid


def synchronised(module: nn.Module) -> nn.Module:
    """The module with every batch norm's statistics taken over all processes.

    Parameters and buffers stay the same objects under the same names. On a GPU the layers become
    torch's SyncBatchNorm; that refuses CPU tensors, so there they become `JoinedBatchNorm`.

    Args:
        module: on the device that it will train on; changed in place, unless it is itself a
            batch norm.

    Returns:
        The module, or the layer that replaces it.
    """
    if any(t.is_cuda for t in chain(module.parameters(), module.buffers())):
        return nn.SyncBatchNorm.convert_sync_batchnorm(module)
    joined: dict[nn.Module, nn.Module] = {
        layer: JoinedBatchNorm.like(layer)
        for layer in module.modules()
        if isinstance(layer, _BatchNorm) and not isinstance(layer, JoinedBatchNorm)
    }
    for parent in list(module.modules()):
        for name, child in list(parent._modules.items()):  # a layer used twice comes twice
            if child in joined:
                setattr(parent, name, joined[child])
    return joined.get(module, module)


class JoinedBatchNorm(_BatchNorm):
    """Batch norm of any dimension with statistics over the default process group.

    Each process must bring a batch of the same size. Gradients are those of the sum over
    processes of their losses: after DistributedDataParallel's average they equal one process's on
    the joined batch. In eval mode, or alone, it is an ordinary batch norm.
    """

    @classmethod
    def like(cls, layer: _BatchNorm) -> JoinedBatchNorm:
        """A layer with the settings, parameters and buffers of another, themselves not copies."""
        own = cls(
            layer.num_features,
            eps=layer.eps,
            momentum=layer.momentum,
            affine=layer.affine,
            track_running_stats=layer.track_running_stats,
        )
        own.training = layer.training
        own.weight, own.bias = layer.weight, layer.bias
        own.running_mean, own.running_var = layer.running_mean, layer.running_var
        own.num_batches_tracked = layer.num_batches_tracked
        return own

    def forward(self, input: Tensor) -> Tensor:
        """Normalise over all but the second dimension, (n, c, ...) -> (n, c, ...)."""
        if not self.training or not dist.is_initialized() or dist.get_world_size() == 1:
            return super().forward(input)
        self._check_input_dim(input)
        channels = [1, -1] + [1] * (input.ndim - 2)
        others = [0, *range(2, input.ndim)]
        x = input.to(torch.promote_types(input.dtype, torch.float32))
        mean = _average(x.mean(others))
        deviation = x - mean.view(channels)
        variance = _average(deviation.square().mean(others))
        count = dist.get_world_size() * input.numel() // self.num_features
        self._remember(mean.detach(), variance.detach() * count / (count - 1))
        x = deviation * (variance + self.eps).rsqrt().view(channels)
        if self.weight is not None:
            x = x * self.weight.view(channels)
        if self.bias is not None:
            x = x + self.bias.view(channels)
        return x.to(input.dtype)

    def _remember(self, mean: Tensor, variance: Tensor) -> None:
        """Move the running statistics towards this batch's."""
        if self.running_mean is None or self.running_var is None:
            return
        assert self.num_batches_tracked is not None  # all three or none
        self.num_batches_tracked.add_(1)
        momentum = self.momentum
        if momentum is None:  # torch's sign for the mean over all batches so far
            momentum = 1 / self.num_batches_tracked.item()
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), momentum)
        self.running_var.lerp_(variance.to(self.running_var.dtype), momentum)

    def _check_input_dim(self, input: Tensor) -> None:
        if input.ndim < 2 or input.shape[1] != self.num_features:
            shape = f"(n, {self.num_features}, ...)"
            raise invalid("input", f"a tensor {shape}", input, "Channels come second.")


def _average(x: Tensor) -> Tensor:
    """The mean over processes."""
    return _Sum.apply(x) / dist.get_world_size()


class _Sum(torch.autograd.Function):
    """The sum over processes; its gradient is the sum of the gradients that they send back."""

    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:  # noqa: ARG004
        x = x.clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, grad: Tensor) -> Tensor:  # noqa: ARG004  # pyright: ignore[reportIncompatibleMethodOverride]
        grad = grad.clone()
        dist.all_reduce(grad)
        return grad
