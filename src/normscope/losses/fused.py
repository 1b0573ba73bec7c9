"""InfoNCE on a GPU in four kernels: E is never stored, and made again where it is needed.

Products are of three TF32 parts each, which keeps float32's digits.
"""

# A kernel's constants are numbers where it is called: the checker knows nothing of that.
# pyright: reportArgumentType=false

from __future__ import annotations

from typing import Any

import torch
import triton  # pyright: ignore[reportMissingImports]
import triton.language as tl  # pyright: ignore[reportMissingImports]
from torch import Tensor

from normscope.losses.partition import check_once

WIDEST = 256  # columns of an embedding: a block of gradients must stay in registers
_FEW = 1024  # pairs: up to here a program has few rows, so that every processor has a program


class FusedInfoNCE(torch.autograd.Function):
    """The loss, a scalar in float32, of raw embeddings, (n, d) both, in float32 or narrower."""

    @staticmethod
    def forward(ctx: Any, z1: Tensor, z2: Tensor, temperature: float) -> Tensor:
        """The mean over all 2n views."""
        z1, z2 = z1.contiguous(), z2.contiguous()
        n, d = z1.shape
        tiles = _Tiles(n, d, z1.device, backward=False)
        u = torch.empty(2 * n, d, device=z1.device)
        norm, loss, rise, push = torch.empty(4, 2 * n, device=z1.device)
        _directions[tiles.grid](z1, z2, u, norm, n, d, tiles.d, tiles.rows)
        _losses[tiles.grid](u, loss, rise, push, n, d, temperature, *tiles.sizes, **tiles.options)
        ctx.save_for_backward(u, norm, rise, push)
        ctx.temperature, ctx.dtype = temperature, z1.dtype
        return loss.mean()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Gradients in z1 and z2."""
        check_once()
        u, norm, rise, push = ctx.saved_tensors
        n, d = len(u) // 2, u.shape[1]
        tiles = _Tiles(n, d, u.device, backward=True)
        dz = torch.empty(2 * n, d, device=u.device, dtype=ctx.dtype)
        _gradients[tiles.grid](
            *(u, norm, rise, push, grad, dz, n, d, ctx.temperature),
            *tiles.sizes,
            **tiles.options,
        )
        return dz[:n], dz[n:], None


class _Tiles:
    """How many rows a program has, and how many it meets at a time; measured on an H200."""

    def __init__(self, n: int, d: int, device: torch.device, *, backward: bool) -> None:
        self.d = max(16, triton.next_power_of_2(d))
        wide = self.d > 128
        if n <= _FEW:
            rows, columns, warps = 16, 64 if wide and backward else 128, 8
        elif wide:  # what the gradients gather must stay in registers
            rows, columns, warps = (16, 32, 4) if backward else (64, 32, 4)
        else:
            rows, columns, warps = 32, 64, 4
        room = _shared_memory(device) // 4 // self.d  # rows of float32
        while columns > 16 and 2 * (columns + rows) > room:
            columns //= 2
        self.rows, self.sizes = rows, (self.d, rows, columns)
        self.options = {"num_warps": warps, "num_stages": 2}
        self.grid = (triton.cdiv(2 * n, rows),)


def _shared_memory(device: torch.device) -> int:
    """Bytes that a program may keep close by."""
    if device.type != "cuda":
        return 1 << 16
    return torch.cuda.get_device_properties(device).shared_memory_per_block_optin


@triton.jit
def _directions(z1_at, z2_at, u_at, norm_at, n, d, D: tl.constexpr, ROWS: tl.constexpr):
    i = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, D)[None, :]
    at = i[:, None].to(tl.int64) * d + column
    inside = column < d
    first, second = i[:, None] < n, (i[:, None] >= n) & (i[:, None] < 2 * n)
    z = tl.load(z1_at + at, mask=first & inside, other=0.0).to(tl.float32)
    z += tl.load(z2_at + at - tl.cast(n, tl.int64) * d, mask=second & inside, other=0.0).to(
        tl.float32
    )
    largest = tl.max(tl.abs(z), 1)  # taken out, so that no square overflows
    largest = tl.where(largest > 0, largest, 1.0)
    z = z / largest[:, None]
    length = tl.sqrt(tl.sum(z * z, 1))
    length = tl.where(length > 0, length, float("inf"))  # a row of zeros has no direction
    tl.store(u_at + at, z / length[:, None], mask=(i[:, None] < 2 * n) & inside)
    tl.store(norm_at + i, length * largest, mask=i < 2 * n)


@triton.jit
def _exponentials(u, other, i, k, n, temperature):
    """E of a block of rows and one of columns; zero where k is i, its partner, or no row."""
    cosine = tl.dot(u, tl.trans(other), input_precision="tf32x3")
    apart = (i[:, None] != k[None, :]) & ((i[:, None] + n) % (2 * n) != k[None, :])
    return tl.where(apart & (k[None, :] < 2 * n), tl.exp(cosine / temperature), 0.0)


@triton.jit
def _losses(
    u_at,
    loss_at,
    rise_at,
    push_at,
    n,
    d,
    temperature,
    D: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    i = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, D)[None, :]
    row = i[:, None]
    u = tl.load(u_at + row.to(tl.int64) * d + column, mask=(row < 2 * n) & (column < d), other=0.0)
    partner = (row + n) % (2 * n)
    v = tl.load(u_at + partner.to(tl.int64) * d + column, mask=column < d, other=0.0)
    s = tl.zeros((ROWS,), tl.float32)
    for start in range(0, 2 * n, COLUMNS):
        k = start + tl.arange(0, COLUMNS)
        at = k[:, None].to(tl.int64) * d + column
        other = tl.load(u_at + at, mask=(k[:, None] < 2 * n) & (column < d), other=0.0)
        s += tl.sum(_exponentials(u, other, i, k, n, temperature), 1)
    excess = tl.log(s) - tl.sum(u * v, 1) / temperature  # of all negatives over the positive
    # log(1 + e^x) and its slope, with all their digits at either end
    small = tl.exp(-tl.abs(excess))
    log1p = tl.where(small > 1e-4, tl.log(1 + small), small - small * small / 2)
    rise = tl.where(excess > 0, 1.0, small) / (1 + small)
    tl.store(loss_at + i, tl.maximum(excess, 0.0) + log1p, mask=i < 2 * n)
    tl.store(rise_at + i, rise, mask=i < 2 * n)
    tl.store(push_at + i, rise / tl.where(s > 0, s, 1.0), mask=i < 2 * n)  # no k left: no push


@triton.jit
def _gradients(
    u_at,
    norm_at,
    rise_at,
    push_at,
    grad_at,
    dz_at,
    n,
    d,
    temperature,
    D: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    i = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, D)[None, :]
    row = i[:, None]
    place = row.to(tl.int64) * d + column
    inside = (row < 2 * n) & (column < d)
    u = tl.load(u_at + place, mask=inside, other=0.0)
    push = tl.load(push_at + i, mask=i < 2 * n, other=0.0)[:, None]
    du = tl.zeros((ROWS, D), tl.float32)
    for start in range(0, 2 * n, COLUMNS):
        k = start + tl.arange(0, COLUMNS)
        at = k[:, None].to(tl.int64) * d + column
        other = tl.load(u_at + at, mask=(k[:, None] < 2 * n) & (column < d), other=0.0)
        pushes = tl.load(push_at + k, mask=k < 2 * n, other=0.0)[None, :]
        e = _exponentials(u, other, i, k, n, temperature)
        du += tl.dot(e * (push + pushes), other, input_precision="tf32x3")
    partner = (i + n) % (2 * n)
    v = tl.load(u_at + partner[:, None].to(tl.int64) * d + column, mask=column < d, other=0.0)
    pull = tl.load(rise_at + i, mask=i < 2 * n, other=0.0) + tl.load(rise_at + partner)
    du -= pull[:, None] * v
    du -= tl.sum(du * u, 1)[:, None] * u
    du *= tl.load(grad_at) / (2 * n * temperature)
    dz = du / tl.load(norm_at + i, mask=i < 2 * n, other=1.0)[:, None]
    tl.store(dz_at + place, dz.to(dz_at.dtype.element_ty), mask=inside)
