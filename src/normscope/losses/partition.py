r"""The repulsive half of InfoNCE, $\log S_i$, in memory linear in the batch.

The matrix of $E_{ik} = \exp((\hat z_i^\top \hat z_k - 1) / \tau)$ is walked in square tiles,
twice: once for its row sums, once in the backward pass, whose closed form needs nothing else. It
is symmetric, so that a tile above the diagonal serves its mirror image too: two thirds of the
arithmetic of the usual way. The first few tiles are kept from one walk to the other, so that a
batch of ordinary size is walked once; what is kept does not grow with n.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from normscope._checks import invalid

# Rows and columns of a tile: 1024 stay in a CPU's cache; a GPU wants fewer, larger launches.
_TILE = {"cpu": 1024, "cuda": 4096}
_KEPT_TILES = 4

# E spans exp(-2 / tau) to 1: float32 holds that, and its inverse, down to tau = .025, float64
# (taken below that) down to .003.
_WIDEST_FLOAT32 = 80.0
LOWEST_TEMPERATURE = 0.003


def mean_log_partition(
    u: Tensor, weights: Tensor, *, temperature: float, gather: bool = False
) -> Tensor:
    r"""$\sum_i w_i \log \sum_{k \ne i} \exp(\hat z_i^\top \hat z_k / \tau)$, a scalar.

    Args:
        u: directions, (n, d), each of norm one or zero; n at least 2.
        weights: $w_i$, (n,), not negative; constants, with no gradient of their own.
        temperature: $\tau$, at least .003.
        gather: let k run over the rows of every process, i over this one's. The gradient is then
            that of the sum over processes, each of which must go on alike with its result.

    >>> mean_log_partition(torch.eye(3), torch.tensor([1.0, 0, 0]), temperature=1.0)  # log 2
    tensor(0.6931)
    """
    if temperature < LOWEST_TEMPERATURE:
        raise invalid("temperature", f"at least {LOWEST_TEMPERATURE}", temperature, "Usual: 0.5.")
    return _MeanLogPartition.apply(u, weights, temperature, gather and world_size() > 1)  # pyright: ignore[reportReturnType]


class _MeanLogPartition(torch.autograd.Function):
    @staticmethod
    def forward(ctx, u: Tensor, weights: Tensor, temperature: float, gather: bool) -> Tensor:
        if gather:
            _check_alike_everywhere(u)
        every = _own_first(u) if gather else u  # n d, or the rows of all processes
        ctx.kept = []
        s = torch.zeros(len(u), dtype=_wide(u, temperature), device=u.device)
        for tile in _tiles(u, every, temperature, ctx.kept):
            s[tile.rows] += tile.e.sum(1)
            if tile.mirrored:
                s[tile.columns] += tile.e.sum(0)
        a = weights / s
        ctx.save_for_backward(u, every, _own_first(a) if gather else a)
        ctx.temperature = temperature
        return (weights * (s.log() + 1 / temperature)).sum().to(u.dtype)

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor, None, None, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        r"""$\nabla_{u_i} = \frac1\tau \sum_k E_{ik} (a_i + a_k) u_k$ with $a_i = w_i / S_i$."""
        if torch.is_grad_enabled():  # create_graph=True; what follows would be left out of it
            raise RuntimeError(
                "InfoNCE must be differentiated once, but create_graph=True asks for more. "
                "For second derivatives, write the loss with torch.logsumexp."
            )
        u, every, a = ctx.saved_tensors
        out = torch.zeros_like(u)
        for tile in _tiles(u, every, ctx.temperature, ctx.kept):
            p = (tile.e * a[tile.columns]).addcmul_(tile.e, a[tile.rows, None]).to(u.dtype)
            with torch.autocast(u.device.type, enabled=False):
                out[tile.rows].addmm_(p, every[tile.columns])
                if tile.mirrored:
                    out[tile.columns].addmm_(p.T, every[tile.rows])
        return out * (grad / ctx.temperature), None, None, None


class _Tile(NamedTuple):
    rows: slice
    columns: slice
    mirrored: bool  # whether it stands for its mirror image below the diagonal as well
    e: Tensor  # E over these rows and columns; the diagonal is zero


def _tiles(u: Tensor, every: Tensor, temperature: float, kept: list[Tensor]) -> Iterator[_Tile]:
    """The tiles of E on and above its diagonal, valid until the next one is asked for.

    The rows of `u` are the first of `every`. The first tiles are left in `kept`, and taken from
    there when it holds them.
    """
    n, size = len(u), _TILE.get(u.device.type, 1024)
    scaled = u / temperature
    buffer = u.new_empty(min(n, size) * min(len(every), size))
    index = 0
    for top in range(0, n, size):
        rows = slice(top, min(top + size, n))
        lefts = [*range(top, n, size), *range(n, len(every), size)]
        for left, right in zip(lefts, [*lefts[1:], len(every)], strict=True):
            if index < len(kept):
                e = kept[index]
            else:
                shape = (rows.stop - rows.start, right - left)
                e = buffer[: shape[0] * shape[1]].view(shape)
                if index < _KEPT_TILES:
                    e = torch.empty_like(e)
                with torch.autocast(u.device.type, enabled=False):
                    torch.mm(scaled[rows], every[left:right].T, out=e)
                e = e.to(_wide(u, temperature)).sub_(1 / temperature).exp_()
                if left == top:
                    e.fill_diagonal_(0)
                if index < _KEPT_TILES:
                    kept.append(e)
            yield _Tile(rows, slice(left, right), top < left < n, e)
            index += 1


def _wide(u: Tensor, temperature: float) -> torch.dtype:
    """The dtype that holds E and its sums at this temperature."""
    return u.dtype if 2 / temperature <= _WIDEST_FLOAT32 else torch.float64


def world_size() -> int:
    """How many processes train together; 1 where torch.distributed is not set up."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def _own_first(x: Tensor) -> Tensor:
    """The rows of x of every process, this one's first."""
    parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, x.contiguous())
    parts.insert(0, parts.pop(dist.get_rank()))
    return torch.cat(parts)


def _check_alike_everywhere(u: Tensor) -> None:
    """Refuse batches that differ between processes; gathering them would hang or mix rows."""
    shapes = _own_first(torch.tensor([u.shape], device=u.device)).tolist()
    if any(shape != shapes[0] for shape in shapes):
        got = f"(2n, d) = {shapes}"
        raise invalid("z1", "of one shape on every process", got, "Drop the last batch.")
