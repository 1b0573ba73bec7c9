"""Batch norm, addition and ReLU of channels-last images in as few passes as they need, on a GPU.

A training step of a ResNet waits for memory in them as long as for its convolutions. Forward, an
image is read twice and written once. Backward, with g the gradient behind the ReLU, g and x are
read twice and one gradient is written. Sums are float32 and come out the same each time.
"""

# A kernel's constants are numbers where it is called, which the type checker does not know.
# pyright: reportArgumentType=false

from __future__ import annotations

from typing import Any

import torch
import triton  # pyright: ignore[reportMissingImports]
import triton.language as tl  # pyright: ignore[reportMissingImports]
from torch import Tensor
from torch.autograd.function import once_differentiable

PATCH = 32  # a patch's 27 numbers, and zeros up to what matrix units like
_PARTS = 1024  # programs that share the rows of a sum, times the blocks of channels
_CHANNELS = 64  # of the tile that a program holds
_ROWS, _FORWARD_ROWS = 64, 32  # of it; measured on an H200


def patches(x: Tensor, dtype: torch.dtype) -> Tensor:
    """The 3 x 3 patch round each pixel, zeros beyond the edge, (n, 3, h, w) -> (n, h, w, PATCH).

    Args:
        x: images.
        dtype: of the result.
    """
    x = x.contiguous(memory_format=torch.channels_last)
    n, _, h, w = x.shape
    out = torch.empty(n, h, w, PATCH, dtype=dtype, device=x.device)
    _patches[(triton.cdiv(n * h * w, 128),)](x, out, n * h * w, h, w, PATCH, 128)
    return out


class NormReLU(torch.autograd.Function):
    """relu(norm(x) + residual), the residual and the ReLU if asked for; the same output twice.

    Two readers of the output may take one each: their gradients are then added here, not in a
    separate pass. The norm's running statistics move as torch's do.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, *rest: Any) -> Any:
        """The output, twice; the rest is the residual or None, the norm, and whether to ReLU."""
        residual, norm, relu = rest
        x = x.contiguous(memory_format=torch.channels_last)
        if residual is not None:
            residual = residual.contiguous(memory_format=torch.channels_last)
        rows, c = x.numel() // x.shape[1], x.shape[1]
        statistics = torch.empty(4, c, device=x.device)  # mean, 1 / std, scale, shift
        tile = _Tile(rows, c, _FORWARD_ROWS)
        sums = torch.empty(2, c, tile.parts, device=x.device)
        _forward_sums[tile.grid](x, sums, rows, c, tile.parts, tile.rows, tile.channels)
        _finish_forward[(c,)](
            *(sums, x, weight, bias, statistics),
            *(norm.running_mean, norm.running_var, norm.num_batches_tracked),
            *(rows, norm.momentum, norm.eps, c, tile.parts),
        )
        y, tile = torch.empty_like(x), _Tile(rows, c)
        _apply[tile.every](
            *(x, x if residual is None else residual, statistics, y),
            *(rows, c, residual is not None, relu, tile.rows, tile.channels),
        )
        ctx.save_for_backward(x, y if relu and residual is not None else None, statistics)
        ctx.relu, ctx.residual = relu, residual is not None
        ctx.set_materialize_grads(False)
        return y, y.view_as(y)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *given: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Gradients in x, weight, bias and the residual."""
        x, y, statistics = ctx.saved_tensors
        each = [dy.contiguous(memory_format=torch.channels_last) for dy in given if dy is not None]
        dy, other = each[0], each[-1]
        rows, c = x.numel() // x.shape[1], x.shape[1]
        tile = _Tile(rows, c)
        sums = torch.empty(2, c, tile.parts, device=x.device)
        written = y is not None or len(each) > 1
        g = torch.empty_like(x) if written else dy
        mask_of_x = ctx.relu and y is None
        _backward_sums[tile.grid](
            *(dy, other, x, x if y is None else y, statistics, g, sums),
            *(rows, c, len(each) > 1, mask_of_x, y is not None, written),
            *(tile.parts, tile.rows, tile.channels),
        )
        found = torch.empty(4, c, device=x.device)  # in weight, in bias, and two for x
        _finish_backward[(c,)](sums, statistics, found, rows, c, tile.parts)
        dx = torch.empty_like(x)
        _backward_apply[tile.every](
            *(g, x, statistics, found, dx),
            *(rows, c, mask_of_x and not written, tile.rows, tile.channels),
        )
        return dx, found[0], found[1], g if ctx.residual else None, None, None


class _Tile:
    """How the rows and channels of an image are shared out."""

    def __init__(self, rows: int, c: int, tile_rows: int = _ROWS) -> None:
        self.channels = min(c, _CHANNELS)
        self.rows = tile_rows * _CHANNELS // self.channels
        blocks = c // self.channels
        wanted = triton.next_power_of_2(triton.cdiv(rows, self.rows))
        self.parts = min(max(1, _PARTS // blocks), wanted)
        self.grid = (self.parts, blocks)
        self.every = (triton.cdiv(rows, self.rows), blocks)  # a program for each


@triton.jit
def _forward_sums(
    x_at,
    sums_at,
    rows,
    c,
    parts,
    ROWS: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    part = tl.program_id(0)
    channel = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    within = tl.arange(0, ROWS)[:, None] * c + channel[None, :]
    # sums of differences from some value of the channel: squares of the values would cancel
    some = tl.load(x_at + channel).to(tl.float32)[None, :]
    first = tl.zeros((ROWS, CHANNELS), tl.float32)
    second = tl.zeros((ROWS, CHANNELS), tl.float32)
    for start in range(part * ROWS, rows, parts * ROWS):
        inside = (start + tl.arange(0, ROWS) < rows)[:, None]
        x = tl.load(x_at + tl.cast(start, tl.int64) * c + within, mask=inside, other=0.0)
        d = tl.where(inside, x.to(tl.float32) - some, 0.0)
        first += d
        second += d * d
    tl.store(sums_at + channel * parts + part, tl.sum(first, 0))
    tl.store(sums_at + (c + channel) * parts + part, tl.sum(second, 0))


@triton.jit
def _finish_forward(
    sums_at,
    x_at,
    weight_at,
    bias_at,
    statistics_at,
    running_mean_at,
    running_variance_at,
    batches_at,
    rows,
    momentum,
    eps,
    c,
    PARTS: tl.constexpr,
):
    channel = tl.program_id(0)
    part = tl.arange(0, PARTS)
    first = tl.sum(tl.load(sums_at + channel * PARTS + part), 0) / rows
    second = tl.sum(tl.load(sums_at + (c + channel) * PARTS + part), 0) / rows
    mean = tl.load(x_at + channel).to(tl.float32) + first
    variance = second - first * first
    variance = tl.where(variance < 0, 0.0, variance)  # NaN stays
    inverse = 1 / tl.sqrt(variance + eps)
    scale = tl.load(weight_at + channel) * inverse
    tl.store(statistics_at + channel, mean)
    tl.store(statistics_at + c + channel, inverse)
    tl.store(statistics_at + 2 * c + channel, scale)
    tl.store(statistics_at + 3 * c + channel, tl.load(bias_at + channel) - mean * scale)
    old = tl.load(running_mean_at + channel)
    tl.store(running_mean_at + channel, old + momentum * (mean - old))
    old = tl.load(running_variance_at + channel)
    unbiased = variance * (rows / (rows - 1))
    tl.store(running_variance_at + channel, old + momentum * (unbiased - old))
    if channel == 0:
        tl.store(batches_at, tl.load(batches_at) + 1)


@triton.jit
def _apply(
    x_at,
    residual_at,
    statistics_at,
    y_at,
    rows,
    c,
    RESIDUAL: tl.constexpr,
    RELU: tl.constexpr,
    ROWS: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    start = tl.program_id(0) * ROWS
    channel = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    at = tl.cast(start, tl.int64) * c + tl.arange(0, ROWS)[:, None] * c + channel[None, :]
    inside = (start + tl.arange(0, ROWS) < rows)[:, None]
    scale = tl.load(statistics_at + 2 * c + channel)[None, :]
    shift = tl.load(statistics_at + 3 * c + channel)[None, :]
    y = tl.load(x_at + at, mask=inside).to(tl.float32) * scale + shift
    if RESIDUAL:
        y += tl.load(residual_at + at, mask=inside).to(tl.float32)
    if RELU:
        y = tl.where(y < 0, 0.0, y)  # NaN stays
    tl.store(y_at + at, y.to(y_at.dtype.element_ty), mask=inside)


@triton.jit
def _backward_sums(
    dy_at,
    other_at,
    x_at,
    y_at,
    statistics_at,
    g_at,
    sums_at,
    rows,
    c,
    TWO: tl.constexpr,
    MASK_OF_X: tl.constexpr,
    MASK_OF_Y: tl.constexpr,
    WRITTEN: tl.constexpr,
    parts,
    ROWS: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    part = tl.program_id(0)
    channel = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    within = tl.arange(0, ROWS)[:, None] * c + channel[None, :]
    mean = tl.load(statistics_at + channel)[None, :]
    scale = tl.load(statistics_at + 2 * c + channel)[None, :]
    shift = tl.load(statistics_at + 3 * c + channel)[None, :]
    first = tl.zeros((ROWS, CHANNELS), tl.float32)
    second = tl.zeros((ROWS, CHANNELS), tl.float32)
    for start in range(part * ROWS, rows, parts * ROWS):
        inside = (start + tl.arange(0, ROWS) < rows)[:, None]
        at = tl.cast(start, tl.int64) * c + within
        g = tl.load(dy_at + at, mask=inside, other=0.0).to(tl.float32)
        if TWO:
            g += tl.load(other_at + at, mask=inside, other=0.0).to(tl.float32)
        x = tl.load(x_at + at, mask=inside, other=0.0).to(tl.float32)
        if MASK_OF_X:
            g = tl.where(x * scale + shift > 0, g, 0.0)
        if MASK_OF_Y:
            g = tl.where(tl.load(y_at + at, mask=inside, other=0.0) > 0, g, 0.0)
        if WRITTEN:
            stored = g.to(g_at.dtype.element_ty)
            tl.store(g_at + at, stored, mask=inside)
            g = stored.to(tl.float32)
        first += g
        second += g * (x - mean)
    tl.store(sums_at + channel * parts + part, tl.sum(first, 0))
    tl.store(sums_at + (c + channel) * parts + part, tl.sum(second, 0))


@triton.jit
def _finish_backward(sums_at, statistics_at, found_at, rows, c, PARTS: tl.constexpr):
    channel = tl.program_id(0)
    part = tl.arange(0, PARTS)
    in_bias = tl.sum(tl.load(sums_at + channel * PARTS + part), 0)
    inverse = tl.load(statistics_at + c + channel)
    scale = tl.load(statistics_at + 2 * c + channel)
    in_weight = tl.sum(tl.load(sums_at + (c + channel) * PARTS + part), 0) * inverse
    tl.store(found_at + channel, in_weight)
    tl.store(found_at + c + channel, in_bias)
    tl.store(found_at + 2 * c + channel, scale * in_bias / rows)
    tl.store(found_at + 3 * c + channel, scale * inverse * in_weight / rows)


@triton.jit
def _backward_apply(
    g_at,
    x_at,
    statistics_at,
    found_at,
    dx_at,
    rows,
    c,
    MASK_OF_X: tl.constexpr,
    ROWS: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    start = tl.program_id(0) * ROWS
    channel = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    at = tl.cast(start, tl.int64) * c + tl.arange(0, ROWS)[:, None] * c + channel[None, :]
    inside = (start + tl.arange(0, ROWS) < rows)[:, None]
    mean = tl.load(statistics_at + channel)[None, :]
    scale = tl.load(statistics_at + 2 * c + channel)[None, :]
    level = tl.load(found_at + 2 * c + channel)[None, :]
    slope = tl.load(found_at + 3 * c + channel)[None, :]
    g = tl.load(g_at + at, mask=inside, other=0.0).to(tl.float32)
    x = tl.load(x_at + at, mask=inside, other=0.0).to(tl.float32)
    if MASK_OF_X:
        shift = tl.load(statistics_at + 3 * c + channel)[None, :]
        g = tl.where(x * scale + shift > 0, g, 0.0)
    dx = scale * g - level - (x - mean) * slope
    tl.store(dx_at + at, dx.to(dx_at.dtype.element_ty), mask=inside)


@triton.jit
def _patches(
    x_at, out_at, pixels, H: tl.constexpr, W: tl.constexpr, PATCH: tl.constexpr, ROWS: tl.constexpr
):
    pixel = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    number = tl.arange(0, PATCH)[None, :]
    down, across, channel = number // 9 - 1, number // 3 % 3 - 1, number % 3
    row, column = pixel // W % H + down, pixel % W + across
    inside = (number < 27) & (row >= 0) & (row < H) & (column >= 0) & (column < W)
    x = tl.load(
        x_at + (pixel.to(tl.int64) + down * W + across) * 3 + channel,
        mask=inside & (pixel < pixels),
        other=0.0,
    )
    at = pixel.to(tl.int64) * PATCH + number
    tl.store(out_at + at, x.to(out_at.dtype.element_ty), mask=pixel < pixels)
