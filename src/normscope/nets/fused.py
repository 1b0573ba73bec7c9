"""Batch norm, addition and ReLU of channels-last images in as few passes as they need, on a GPU.

A training step of a ResNet waits for memory in them as long as for its convolutions. Forward, an
image is read twice and written once. Backward, with g the gradient behind the ReLU, g and x are
read twice and one gradient is written. Sums are float32 and come out the same each time.
"""

from __future__ import annotations

from typing import Any

import torch
import triton  # pyright: ignore[reportMissingImports]
import triton.language as tl  # pyright: ignore[reportMissingImports]
from torch import Tensor
from torch.autograd.function import once_differentiable

_PARTS = 1024  # programs that share the rows of a sum, times the blocks of channels
_ROWS, _CHANNELS = 64, 64  # of the tile that a program holds


class NormReLU(torch.autograd.Function):
    """relu(norm(x) + residual), the residual and the ReLU if asked for; the same output twice.

    Two who read the output may take one each: their gradients are then added here, on the way,
    and not in a pass of their own. The norm's running statistics move as torch's do.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, *rest: Any) -> Any:
        residual, norm, relu = rest
        rows, c = x.numel() // x.shape[1], x.shape[1]
        statistics = torch.empty(4, c, device=x.device)  # mean, 1 / std, scale, shift
        sums, tile = _sums_for(x)
        _forward_sums[tile.grid](x, sums, rows, c, tile.parts, tile.turns, tile.rows, tile.channels)
        _finish_forward[(c,)](
            *(sums, x, weight, bias, statistics),
            *(norm.running_mean, norm.running_var, norm.num_batches_tracked),
            *(rows, norm.momentum, norm.eps, c, tile.parts),
        )
        y = torch.empty_like(x)
        grid = (triton.cdiv(rows, tile.rows), c // tile.channels)
        _apply[grid](
            *(x, x if residual is None else residual, statistics, y),
            *(rows, c, residual is not None, relu, tile.rows, tile.channels),
        )
        ctx.save_for_backward(x, y if relu and residual is not None else None, statistics)
        ctx.relu, ctx.residual = relu, residual is not None
        ctx.set_materialize_grads(False)
        return y, y.view_as(y)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *given: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients in x, weight, bias and the residual."""
        x, y, statistics = ctx.saved_tensors
        each = [dy.contiguous(memory_format=torch.channels_last) for dy in given if dy is not None]
        dy, other = each[0], each[-1]
        rows, c = x.numel() // x.shape[1], x.shape[1]
        sums, tile = _sums_for(x)
        written = y is not None or len(each) > 1
        g = torch.empty_like(x) if written else dy
        mask_of_x = ctx.relu and y is None
        _backward_sums[tile.grid](
            *(dy, other, x, x if y is None else y, statistics, g, sums),
            *(rows, c, len(each) > 1, mask_of_x, y is not None, written),
            *(tile.parts, tile.turns, tile.rows, tile.channels),
        )
        found = torch.empty(4, c, device=x.device)  # in weight, in bias, and two for x
        _finish_backward[(c,)](sums, statistics, found, rows, c, tile.parts)
        dx = torch.empty_like(x)
        grid = (triton.cdiv(rows, tile.rows), c // tile.channels)
        _backward_apply[grid](
            *(g, x, statistics, found, dx),
            *(rows, c, mask_of_x and not written, tile.rows, tile.channels),
        )
        return dx, found[0], found[1], g if ctx.residual else None, None, None


class _Tile:
    def __init__(self, rows: int, c: int) -> None:
        self.channels = min(c, _CHANNELS)
        self.rows = _ROWS * _CHANNELS // self.channels
        blocks = c // self.channels
        wanted = triton.next_power_of_2(triton.cdiv(rows, self.rows))
        self.parts = min(max(1, _PARTS // blocks), wanted)
        self.turns = triton.cdiv(rows, self.parts * self.rows)
        self.grid = (self.parts, blocks)


def _sums_for(x: Tensor) -> tuple[Tensor, _Tile]:
    c = x.shape[1]
    tile = _Tile(x.numel() // c, c)
    return torch.empty(2, c, tile.parts, device=x.device), tile


@triton.jit
def _forward_sums(
    x_at,
    sums_at,
    rows,
    C: tl.constexpr,
    PARTS: tl.constexpr,
    TURNS: tl.constexpr,
    ROWS: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    part = tl.program_id(0)
    channel = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    within = tl.arange(0, ROWS)[:, None] * C + channel[None, :]
    # sums of differences from some value of the channel: squares of the values would cancel
    some = tl.load(x_at + channel).to(tl.float32)[None, :]
    first = tl.zeros((ROWS, CHANNELS), tl.float32)
    second = tl.zeros((ROWS, CHANNELS), tl.float32)
    for turn in range(TURNS):
        start = (turn * PARTS + part) * ROWS
        inside = (start + tl.arange(0, ROWS) < rows)[:, None]
        x = tl.load(x_at + tl.cast(start, tl.int64) * C + within, mask=inside, other=0.0)
        d = tl.where(inside, x.to(tl.float32) - some, 0.0)
        first += d
        second += d * d
    tl.store(sums_at + channel * PARTS + part, tl.sum(first, 0))
    tl.store(sums_at + (C + channel) * PARTS + part, tl.sum(second, 0))


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
    C: tl.constexpr,
    PARTS: tl.constexpr,
):
    c = tl.program_id(0)
    part = tl.arange(0, PARTS)
    first = tl.sum(tl.load(sums_at + c * PARTS + part), 0) / rows
    second = tl.sum(tl.load(sums_at + (C + c) * PARTS + part), 0) / rows
    mean = tl.load(x_at + c).to(tl.float32) + first
    variance = tl.maximum(second - first * first, 0.0)
    inverse = 1 / tl.sqrt(variance + eps)
    scale = tl.load(weight_at + c) * inverse
    tl.store(statistics_at + c, mean)
    tl.store(statistics_at + C + c, inverse)
    tl.store(statistics_at + 2 * C + c, scale)
    tl.store(statistics_at + 3 * C + c, tl.load(bias_at + c) - mean * scale)
    old = tl.load(running_mean_at + c)
    tl.store(running_mean_at + c, old + momentum * (mean - old))
    old = tl.load(running_variance_at + c)
    unbiased = variance * (rows / (rows - 1))
    tl.store(running_variance_at + c, old + momentum * (unbiased - old))
    if c == 0:
        tl.store(batches_at, tl.load(batches_at) + 1)


@triton.jit
def _apply(
    x_at,
    residual_at,
    statistics_at,
    y_at,
    rows,
    C: tl.constexpr,
    RESIDUAL: tl.constexpr,
    RELU: tl.constexpr,
    ROWS: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    start = tl.program_id(0) * ROWS
    channel = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    at = tl.cast(start, tl.int64) * C + tl.arange(0, ROWS)[:, None] * C + channel[None, :]
    inside = (start + tl.arange(0, ROWS) < rows)[:, None]
    scale = tl.load(statistics_at + 2 * C + channel)[None, :]
    shift = tl.load(statistics_at + 3 * C + channel)[None, :]
    y = tl.load(x_at + at, mask=inside).to(tl.float32) * scale + shift
    if RESIDUAL:
        y += tl.load(residual_at + at, mask=inside).to(tl.float32)
    if RELU:
        y = tl.maximum(y, 0.0)
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
    C: tl.constexpr,
    TWO: tl.constexpr,
    MASK_OF_X: tl.constexpr,
    MASK_OF_Y: tl.constexpr,
    WRITTEN: tl.constexpr,
    PARTS: tl.constexpr,
    TURNS: tl.constexpr,
    ROWS: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    part = tl.program_id(0)
    channel = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    within = tl.arange(0, ROWS)[:, None] * C + channel[None, :]
    mean = tl.load(statistics_at + channel)[None, :]
    scale = tl.load(statistics_at + 2 * C + channel)[None, :]
    shift = tl.load(statistics_at + 3 * C + channel)[None, :]
    first = tl.zeros((ROWS, CHANNELS), tl.float32)
    second = tl.zeros((ROWS, CHANNELS), tl.float32)
    for turn in range(TURNS):
        start = (turn * PARTS + part) * ROWS
        inside = (start + tl.arange(0, ROWS) < rows)[:, None]
        at = tl.cast(start, tl.int64) * C + within
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
    tl.store(sums_at + channel * PARTS + part, tl.sum(first, 0))
    tl.store(sums_at + (C + channel) * PARTS + part, tl.sum(second, 0))


@triton.jit
def _finish_backward(sums_at, statistics_at, found_at, rows, C: tl.constexpr, PARTS: tl.constexpr):
    c = tl.program_id(0)
    part = tl.arange(0, PARTS)
    in_bias = tl.sum(tl.load(sums_at + c * PARTS + part), 0)
    inverse = tl.load(statistics_at + C + c)
    scale = tl.load(statistics_at + 2 * C + c)
    in_weight = tl.sum(tl.load(sums_at + (C + c) * PARTS + part), 0) * inverse
    tl.store(found_at + c, in_weight)
    tl.store(found_at + C + c, in_bias)
    tl.store(found_at + 2 * C + c, scale * in_bias / rows)
    tl.store(found_at + 3 * C + c, scale * inverse * in_weight / rows)


@triton.jit
def _backward_apply(
    g_at,
    x_at,
    statistics_at,
    found_at,
    dx_at,
    rows,
    C: tl.constexpr,
    MASK_OF_X: tl.constexpr,
    ROWS: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    start = tl.program_id(0) * ROWS
    channel = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    at = tl.cast(start, tl.int64) * C + tl.arange(0, ROWS)[:, None] * C + channel[None, :]
    inside = (start + tl.arange(0, ROWS) < rows)[:, None]
    mean = tl.load(statistics_at + channel)[None, :]
    scale = tl.load(statistics_at + 2 * C + channel)[None, :]
    level = tl.load(found_at + 2 * C + channel)[None, :]
    slope = tl.load(found_at + 3 * C + channel)[None, :]
    g = tl.load(g_at + at, mask=inside, other=0.0).to(tl.float32)
    x = tl.load(x_at + at, mask=inside, other=0.0).to(tl.float32)
    if MASK_OF_X:
        shift = tl.load(statistics_at + 3 * C + channel)[None, :]
        g = tl.where(x * scale + shift > 0, g, 0.0)
    dx = scale * g - level - (x - mean) * slope
    tl.store(dx_at + at, dx.to(dx_at.dtype.element_ty), mask=inside)
