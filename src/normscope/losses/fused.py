"""InfoNCE on a GPU in a few kernels: E is computed twice, in tiles; few of its rows are stored.

A direction is kept as the sum of two float16 numbers. Matrix units then make a cosine of three
products, at several times float32's rate and with as many digits as float32's product has.
"""

# A kernel's constants are numbers where it is called, which the type checker does not know.
# pyright: reportArgumentType=false

from __future__ import annotations

from typing import Any

import torch
import triton  # pyright: ignore[reportMissingImports]
import triton.language as tl  # pyright: ignore[reportMissingImports]
from torch import Tensor

from normscope.losses.partition import check_once

WIDEST = 8192  # columns of an embedding: a program holds a row
_TILE, _STEP = 128, 32  # of E, and of the columns that are multiplied at a time; for an H200
_SHARES = 16  # programs that share a row of tiles
_CHUNK = 2048  # rows of E that are stored at a time, so that torch can multiply them
_UNIT = tl.constexpr(256.0)  # a direction's length when it is split: float16's least is far away
_OPTIONS = {"num_warps": 8, "num_stages": 3}


class FusedInfoNCE(torch.autograd.Function):
    """The loss, a scalar in float32, of raw embeddings, (n, d) both, in float32 or narrower.

    One product of the backward pass is torch's, as precise as `set_float32_matmul_precision` says.
    """

    @staticmethod
    def forward(ctx: Any, z1: Tensor, z2: Tensor, temperature: float) -> Tensor:
        """The mean over all 2n views."""
        z1, z2 = z1.contiguous(), z2.contiguous()
        n, d = z1.shape
        tiles, padded = triton.cdiv(2 * n, _TILE), triton.cdiv(d, _STEP) * _STEP
        u = torch.empty(2 * n, d, device=z1.device)
        high = torch.empty(tiles * _TILE, padded, dtype=torch.float16, device=z1.device)
        low = torch.empty_like(high)
        norm, loss, rise, push = torch.empty(4, 2 * n, device=z1.device)
        sums = torch.empty(_SHARES, 2 * n, device=z1.device)
        width = triton.next_power_of_2(padded)
        _directions[(tiles * _TILE,)](z1, z2, u, high, low, norm, n, d, padded, width)
        _sums[(tiles, _SHARES)](high, low, sums, n, padded, temperature, _TILE, _STEP, **_OPTIONS)
        _losses[(2 * n,)](u, sums, loss, rise, push, n, d, temperature, width, _SHARES)
        ctx.save_for_backward(u, high, low, norm, rise, push)
        ctx.temperature, ctx.dtype = temperature, z1.dtype
        return loss.mean()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Gradients in z1 and z2."""
        check_once()
        u, high, low, norm, rise, push = ctx.saved_tensors
        n, d = len(u) // 2, u.shape[1]
        tiles, padded = len(high) // _TILE, high.shape[1]
        chunk = min(_CHUNK, 2 * n)
        forces = torch.empty(chunk, 2 * n, device=u.device)
        du = torch.empty_like(u)
        for first in range(0, 2 * n, chunk):
            rows = du[first : first + chunk]
            _forces[(triton.cdiv(len(rows), _TILE), tiles)](
                *(high, low, push, forces, first, n, padded, ctx.temperature, _TILE, _STEP),
                **_OPTIONS,
            )
            torch.mm(forces[: len(rows)], u, out=rows)  # autocast leaves alone what has a place
        dz = torch.empty_like(u, dtype=ctx.dtype)
        width = triton.next_power_of_2(padded)
        _gradients[(2 * n,)](u, norm, rise, du, grad, dz, n, d, ctx.temperature, width)
        return dz[:n], dz[n:], None


@triton.jit
def _directions(z1_at, z2_at, u_at, high_at, low_at, norm_at, n, d, padded, WIDTH: tl.constexpr):
    """A row's norm and direction u; u again as two numbers, with zeros beyond its end."""
    i = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, WIDTH)
    inside = (column < d) & (i < 2 * n)
    z = tl.load(z1_at + i * d + column, mask=inside & (i < n), other=0.0).to(tl.float32)
    z += tl.load(z2_at + (i - n) * d + column, mask=inside & (i >= n), other=0.0).to(tl.float32)
    largest = tl.max(tl.abs(z), 0)  # taken out, so that no square overflows
    largest = tl.where(largest > 0, largest, 1.0)
    z = z / largest
    length = tl.sqrt(tl.sum(z * z, 0))
    length = tl.where(length > 0, length, float("inf"))  # a row of zeros has no direction
    u = z / length
    high = (u * _UNIT).to(tl.float16)
    low = (u * _UNIT - high.to(tl.float32)).to(tl.float16)
    tl.store(u_at + i * d + column, u, mask=inside)
    tl.store(high_at + i * padded + column, high, mask=column < padded)
    tl.store(low_at + i * padded + column, low, mask=column < padded)
    tl.store(norm_at + i, length * largest, mask=i < 2 * n)


@triton.jit
def _exponentials(
    high_at, low_at, i, k, n, padded, temperature, TILE: tl.constexpr, STEP: tl.constexpr
):
    """E of a tile's rows i and columns k; zero where k is i, its partner, or no row."""
    cosine = tl.zeros((TILE, TILE), tl.float32)
    for start in range(0, padded, STEP):
        column = start + tl.arange(0, STEP)
        left = i[:, None].to(tl.int64) * padded + column[None, :]
        right = k[None, :].to(tl.int64) * padded + column[:, None]
        left_high, right_high = tl.load(high_at + left), tl.load(high_at + right)
        cosine = tl.dot(left_high, right_high, cosine)
        cosine = tl.dot(left_high, tl.load(low_at + right), cosine)
        cosine = tl.dot(tl.load(low_at + left), right_high, cosine)
    apart = (i[:, None] != k[None, :]) & ((i[:, None] + n) % (2 * n) != k[None, :])
    cosine /= _UNIT * _UNIT
    return tl.where(apart & (k[None, :] < 2 * n), tl.exp(cosine / temperature), 0.0)


@triton.jit
def _sums(high_at, low_at, sums_at, n, padded, temperature, TILE: tl.constexpr, STEP: tl.constexpr):
    """A share of the tiles of some rows, summed over their columns."""
    i = tl.program_id(0) * TILE + tl.arange(0, TILE)
    share, shares = tl.program_id(1), tl.num_programs(1)
    s = tl.zeros((TILE,), tl.float32)
    for start in range(share * TILE, 2 * n, shares * TILE):
        k = start + tl.arange(0, TILE)
        s += tl.sum(_exponentials(high_at, low_at, i, k, n, padded, temperature, TILE, STEP), 1)
    tl.store(sums_at + share.to(tl.int64) * 2 * n + i, s, mask=i < 2 * n)


@triton.jit
def _losses(
    u_at,
    sums_at,
    loss_at,
    rise_at,
    push_at,
    n,
    d,
    temperature,
    WIDTH: tl.constexpr,
    SHARES: tl.constexpr,
):
    """A row's loss, how it rises with the negatives' share, and the push of one negative's E."""
    i = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, WIDTH)
    u = tl.load(u_at + i * d + column, mask=column < d, other=0.0)
    v = tl.load(u_at + (i + n) % (2 * n) * d + column, mask=column < d, other=0.0)
    s = tl.sum(tl.load(sums_at + tl.arange(0, SHARES).to(tl.int64) * 2 * n + i), 0)
    excess = tl.log(s) - tl.sum(u * v, 0) / temperature  # of all negatives over the positive
    # log(1 + e^x) and its slope, with all their digits at either end
    small = tl.exp(-tl.abs(excess))
    log1p = tl.where(small > 1e-4, tl.log(1 + small), small - small * small / 2)
    rise = tl.where(excess > 0, 1.0, small) / (1 + small)
    tl.store(loss_at + i, tl.maximum(excess, 0.0) + log1p)
    tl.store(rise_at + i, rise)
    tl.store(push_at + i, rise / tl.where(s > 0, s, 1.0))  # no k left: no push


@triton.jit
def _forces(
    high_at,
    low_at,
    push_at,
    forces_at,
    first,
    n,
    padded,
    temperature,
    TILE: tl.constexpr,
    STEP: tl.constexpr,
):
    """With what row k pushes row i away: a tile of rows from the first on."""
    row = tl.program_id(0) * TILE + tl.arange(0, TILE)
    i, k = first + row, tl.program_id(1) * TILE + tl.arange(0, TILE)
    e = _exponentials(high_at, low_at, i, k, n, padded, temperature, TILE, STEP)
    own = tl.load(push_at + i, mask=i < 2 * n, other=0.0)[:, None]
    force = e * (own + tl.load(push_at + k, mask=k < 2 * n, other=0.0)[None, :])
    at = row[:, None].to(tl.int64) * 2 * n + k[None, :]
    tl.store(forces_at + at, force, mask=(i < 2 * n)[:, None] & (k < 2 * n)[None, :])


@triton.jit
def _gradients(
    u_at, norm_at, rise_at, du_at, grad_at, dz_at, n, d, temperature, WIDTH: tl.constexpr
):
    """Of a row of z, once all others have pushed."""
    i = tl.program_id(0).to(tl.int64)
    partner = (i + n) % (2 * n)
    column = tl.arange(0, WIDTH)
    inside = column < d
    u = tl.load(u_at + i * d + column, mask=inside, other=0.0)
    v = tl.load(u_at + partner * d + column, mask=inside, other=0.0)
    du = tl.load(du_at + i * d + column, mask=inside, other=0.0)
    du -= (tl.load(rise_at + i) + tl.load(rise_at + partner)) * v
    du -= tl.sum(du * u, 0) * u
    du *= tl.load(grad_at) / (2 * n * temperature)
    dz = du / tl.load(norm_at + i)
    tl.store(dz_at + i * d + column, dz.to(dz_at.dtype.element_ty), mask=inside)
