r"""The repulsive half of InfoNCE, $\log S_i$, in memory linear in the batch.

The matrix of $E_{ik} = \exp(\hat z_i^\top \hat z_k / \tau)$ is walked in square tiles,
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

from normscope._checks import check_number, invalid
from normscope._precision import has_float64

# Rows and columns of a tile: 1024 stay in a CPU's cache; a GPU wants fewer, larger launches.
_TILE = {"cpu": 1024, "cuda": 4096}
_KEPT_TILES = {"cpu": 4, "cuda": 1}

# E spans exp(-1 / tau) to exp(1 / tau): float32 holds that, and the sums of it, down to
# tau = .025, float64 (taken below that) down to .003.
_WIDEST_FLOAT32 = 80.0
_LOWEST_TEMPERATURE = 0.003


def check_temperature(temperature: float) -> float:
    """The temperature, if `log_partition` can take it."""
    advice = "SimCLR uses 0.5; a tensor would not be differentiated."
    tau = check_number("temperature", temperature, advice)
    if tau < _LOWEST_TEMPERATURE:
        raise invalid("temperature", f"at least {_LOWEST_TEMPERATURE}", temperature, advice)
    return tau


def log_partition(
    u: Tensor, *, temperature: float, paired: bool = False, gather: bool = False
) -> Tensor:
    r"""$\log \sum_k \exp(\hat z_i^\top \hat z_k / \tau)$ for each row i, over all $k \ne i$.

    Args:
        u: directions, (n, d), each of norm one or zero.
        temperature: $\tau$, from `check_temperature`.
        paired: leave out row i's partner too, n / 2 rows further on. Its large term is better added
            outside, where it costs the others no precision.
        gather: let k run over the rows of every process, i over this one's. The gradient is then
            that of the sum of all processes' losses.

    Returns:
        One number per row, (n,), in float64 below a temperature of .025, if the device has that;
        -inf if no k is left.

    >>> log_partition(torch.eye(3), temperature=1.0)  # log 2
    tensor([0.6931, 0.6931, 0.6931])
    """
    gather = gather and world_size() > 1
    return _LogPartition.apply(u, temperature, paired, gather)  # pyright: ignore[reportReturnType]


def check_once() -> None:
    """Refuse create_graph=True: the graph would not contain this backward pass."""
    if torch.is_grad_enabled():
        raise RuntimeError(
            "InfoNCE must be differentiated once, but create_graph=True asks for more. "
            "For second derivatives, write the loss with torch.logsumexp."
        )


class _LogPartition(torch.autograd.Function):
    @staticmethod
    def forward(ctx, u: Tensor, temperature: float, paired: bool, gather: bool) -> Tensor:
        if gather:
            _check_alike_everywhere(u, temperature)
        every = _own_first(u) if gather else u  # n d, or the rows of all processes
        kept: list[Tensor] = []
        tiles = _tiles(u, every, temperature, paired, kept)
        s = next(tiles).e.sum(1)
        if len(s) < len(u):
            s = torch.cat([s, s.new_zeros(len(u) - len(s))])
        for tile in tiles:
            s[tile.rows] += tile.e.sum(1)
            if tile.mirrored:
                s[tile.columns] += tile.e.sum(0)
        ctx.save_for_backward(u, every, s, *kept)
        ctx.temperature, ctx.paired, ctx.gather = temperature, paired, gather
        return s.log()

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor, None, None, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        r"""$\nabla_{u_i} = \frac1\tau \sum_k E_{ik} (a_i + a_k) u_k$ with $a_i = g_i / S_i$."""
        check_once()
        u, every, s, *kept = ctx.saved_tensors
        a = torch.where(s > 0, grad / s, 0.0)  # no k left: nothing pushes
        a = _own_first(a) if ctx.gather else a
        out = torch.zeros_like(u)
        for tile in _tiles(u, every, ctx.temperature, ctx.paired, kept):
            p = (tile.e * a[tile.columns]).addcmul_(tile.e, a[tile.rows, None]).to(u.dtype)
            out[tile.rows].addmm_(p, every[tile.columns])
            if tile.mirrored:
                out[tile.columns].addmm_(p.T, every[tile.rows])
        return out.div_(ctx.temperature), None, None, None


class _Tile(NamedTuple):
    rows: slice
    columns: slice
    mirrored: bool  # whether it stands for its mirror image below the diagonal as well
    e: Tensor  # E over these rows and columns; zero where k is left out


def _tiles(
    u: Tensor, every: Tensor, temperature: float, paired: bool, kept: list[Tensor]
) -> Iterator[_Tile]:
    """The tiles of E on and above its diagonal.

    The rows of `u` are the first of `every`. The first tiles are left in `kept`, and taken from
    there when it holds them; no tile may be changed.
    """
    n, size = len(u), _TILE.get(u.device.type, 1024)
    scaled, index = None, 0
    for top in range(0, n, size):
        rows = slice(top, min(top + size, n))
        lefts = [*range(top, n, size), *range(n, len(every), size)]
        for left, right in zip(lefts, [*lefts[1:], len(every)], strict=True):
            if index < len(kept):
                e = kept[index]
            else:
                scaled = u / temperature if scaled is None else scaled
                with torch.autocast(u.device.type, enabled=False):  # E needs all its digits
                    e = scaled[rows] @ every[left:right].T
                e = e.to(_wide(u, temperature)).exp_()
                for shift in (0, n // 2, -n // 2) if paired else (0,):  # i itself, its partner
                    offset = top - left + shift
                    if -e.shape[0] < offset < e.shape[1] and left < n:
                        e.diagonal(offset).zero_()
                if index < _KEPT_TILES.get(u.device.type, 1):
                    kept.append(e)
            yield _Tile(rows, slice(left, right), top < left < n, e)
            index += 1


def _wide(u: Tensor, temperature: float) -> torch.dtype:
    """The dtype that holds E and its sums at this temperature."""
    narrow = fits_float32(temperature) or not has_float64(u.device)
    return u.dtype if narrow else torch.float64


def fits_float32(temperature: float) -> bool:
    """Whether float32 holds E and its sums at this temperature."""
    return 2 / temperature <= _WIDEST_FLOAT32


def world_size() -> int:
    """How many processes train together; 1 where torch.distributed is not set up."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def _own_first(x: Tensor) -> Tensor:
    """The rows of x of every process, this one's first."""
    parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, x.contiguous())
    parts.insert(0, parts.pop(dist.get_rank()))
    return torch.cat(parts)


def _check_alike_everywhere(u: Tensor, temperature: float) -> None:
    """Refuse inputs that differ between processes: gathering would hang or mix up rows."""
    own = [*u.shape, u.element_size(), temperature]
    wide = torch.float64 if has_float64(u.device) else torch.float32
    every = _own_first(torch.tensor([own], dtype=wide, device=u.device)).tolist()
    if any(other != every[0] for other in every):
        got = f"(2n, d, bytes a number, temperature) = {every}"
        raise invalid("z1", "alike on every process", got, "Drop the last, smaller batch.")
