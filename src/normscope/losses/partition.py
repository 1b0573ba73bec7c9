r"""$\log S_i$, the repulsive half of InfoNCE, without ever holding the similarity matrix.

The matrix is walked in square tiles, twice: once for the log-partition of each row, once more
in the backward pass, whose closed form needs nothing but those. It is symmetric, so that a tile
above the diagonal serves its mirror image too, and the whole takes two thirds of the arithmetic
of the usual way.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import once_differentiable

from normscope._checks import invalid

# Rows and columns of a tile. 1024 keeps two of them in a CPU's cache; a GPU wants fewer launches.
_TILE = {"cpu": 1024, "cuda": 4096}


def log_partition(u: Tensor, *, temperature: float, gather: bool = False) -> Tensor:
    r"""$\log \sum_{k \ne i} \exp(\hat z_i^\top \hat z_k / \tau)$ for each row i of u, (n,).

    Args:
        u: directions, (n, d), each of norm one or zero; n at least 2.
        temperature: $\tau$.
        gather: let k run over the rows of every process. The gradient is then that of the sum
            over processes of whatever each makes of its own rows.

    >>> log_partition(torch.eye(3), temperature=1.0)  # log(e^0 + e^0)
    tensor([0.6931, 0.6931, 0.6931])
    """
    return _LogPartition.apply(u, temperature, gather and world_size() > 1)  # pyright: ignore[reportReturnType]


class _LogPartition(torch.autograd.Function):
    @staticmethod
    def forward(ctx, u: Tensor, temperature: float, gather: bool) -> Tensor:
        if gather:
            _check_alike_everywhere(u)
        every = _own_first(u) if gather else u  # n d, or all processes' rows
        log_s = u.new_full((len(u),), -torch.inf)
        with torch.autocast(u.device.type, enabled=False):  # similarity / tau needs its digits
            for rows, columns, mirrored, s in _tiles(u / temperature, every):
                log_s[rows] = torch.logaddexp(log_s[rows], s.logsumexp(1))
                if mirrored:
                    log_s[columns] = torch.logaddexp(log_s[columns], s.logsumexp(0))
        ctx.save_for_backward(u, every, _own_first(log_s) if gather else log_s)
        ctx.temperature, ctx.gather = temperature, gather
        return log_s

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> tuple[Tensor, None, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        r"""$\nabla_{u_i} = \frac1\tau \sum_k (g_i p_{ik} + g_k p_{ki})\, u_k$."""
        u, every, log_s = ctx.saved_tensors
        g = _own_first(grad) if ctx.gather else grad
        out = torch.zeros_like(u)
        with torch.autocast(u.device.type, enabled=False):
            for rows, columns, mirrored, s in _tiles(u / ctx.temperature, every):
                p = (s - log_s[rows, None]).exp_().mul_(g[rows, None])  # g_i p_ik
                p += s.sub_(log_s[columns]).exp_().mul_(g[columns])  # g_k p_ki
                out[rows].addmm_(p, every[columns])
                if mirrored:
                    out[columns].addmm_(p.T, every[rows])
        return out.div_(ctx.temperature), None, None


def _tiles(scaled: Tensor, every: Tensor) -> Iterator[tuple[slice, slice, bool, Tensor]]:
    """Tiles of `scaled @ every.T` on and above the diagonal, the diagonal itself at -inf.

    The rows of `scaled` are the first of `every`. Yields the rows, the columns, whether the tile
    stands for its mirror image as well, and the tile, which the caller may overwrite.
    """
    n, tile = len(scaled), _TILE.get(scaled.device.type, 1024)
    buffer = scaled.new_empty(min(n, tile) * min(len(every), tile))
    for top in range(0, n, tile):
        rows = slice(top, min(top + tile, n))
        starts = [*range(top, n, tile), *range(n, len(every), tile)]
        for left, following in zip(starts, [*starts[1:], len(every)], strict=True):
            columns = slice(left, following)
            shape = (rows.stop - rows.start, columns.stop - columns.start)
            s = buffer[: shape[0] * shape[1]].view(shape)
            torch.mm(scaled[rows], every[columns].T, out=s)
            if left == top:
                s.fill_diagonal_(-torch.inf)
            yield rows, columns, top < left < n, s


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
        raise invalid(
            "z1", "of one shape on every process", f"(2n, d) = {shapes}", "Drop the last batch."
        )
