"""Nearest rows by cosine, exactly, in bounded memory."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from normscope._checks import invalid
from normscope._sphere import unit

# Numbers in a small tile: 16 MiB in float32, of which a CPU's work may take sixteen.
TILE = 1 << 22
_MEMORY = 16 * 4 * TILE
_GPU_MEMORY = 8 * _MEMORY  # a GPU is slow on small tiles
_SAMPLE = 128  # rows that stand for a bank
_GROUP = 5  # columns; on a CPU anything from 3 to 6 is as quick


class Tiles(NamedTuple):
    """How much is worked on at a time."""

    queries: int  # for which the bank is normalised once, and whose neighbours are kept
    rows: int  # of these, against
    columns: int  # rows of the bank


def tiles_for(bank: Tensor, *, k: int, classes: int, item: int) -> Tiles:
    """Tiles of numbers of `item` bytes, for queries that each keep k neighbours and their votes.

    A fifth of the memory is for the part of the bank, one for the tile, one for the queries and
    their neighbours; the rest is for what passes.
    """
    fifth = (_GPU_MEMORY if bank.is_cuda else _MEMORY) // 5
    m, d = bank.shape
    most = max(1, min(fifth // (d * item), fifth // 256))  # so that a tile has 64 rows or more
    columns = math.ceil(m / math.ceil(m / most))  # parts of the bank are of one size
    # a neighbour passes through some 192 bytes: what may hold it, its index, the merging of both
    rows = fifth // max(columns * item, 192 * k)
    queries = fifth // (d * item + k * (item + 8) + 8 * classes)
    return Tiles(max(1, queries), max(1, rows), columns)


def nearest(q: Tensor, bank: Tensor, *, k: int, tiles: Tiles) -> tuple[Tensor, Tensor]:
    """The k highest cosines of each row of q with the bank, less one, and whose they are.

    Highest first. The bank is walked once. Nothing waits for a GPU before the end.

    Features may lie in a narrow cone, all cosines within 1e-5 of one. So products are of what unit
    rows u, v have beside the cone's axis m: with a = u - m and b = v - m, u . v - 1 is a . b less
    half the squares of a and b. Rounding, be it TF32's, is then small beside how the cosines
    differ, and one is not added, which would round them again.

    Args:
        q: raw queries, (n, d), at most as many as the tiles hold.
        bank: raw, (m, d).
        k: at most m.
        tiles: how much is worked on at a time.
    """
    axis = _axis(bank, wide(bank, q), most=tiles.columns // 8)
    u, own = _beside(axis, q)
    rows, columns = min(tiles.rows, len(u)), tiles.columns
    best = u.new_full((len(u), k), -torch.inf)
    index = torch.zeros(len(u), k, dtype=torch.int64, device=u.device)
    # Taken once, and in rows of whole cache lines: on a CPU, fresh pages cost a fifth of the
    # product, and rows that begin anywhere up to two fifths.
    width = 16 * math.ceil(min(columns, len(bank)) / 16)
    space = u.new_empty(rows, width)
    start = 0
    for part in bank.split(columns):
        v, theirs = _beside(axis, part)
        for x, kept, whose in zip(u.split(rows), best.split(rows), index.split(rows), strict=True):
            cosine = space[: len(x), : len(v)]
            torch.addmm(theirs, x, v.T, out=cosine)  # autocast leaves `out` alone
            near, where = _highest(cosine, min(k, len(v)))
            high, order = torch.cat([kept, near], 1).topk(k)
            whose.copy_(torch.cat([whose, where + start], 1).gather(1, order))
            kept.copy_(high)
        start += len(v)
        del v  # before the next part's
    if not best.isfinite().all():  # NaN counts as higher than any number, so none is missed
        advice = "Did the training diverge?"
        raise invalid("bank and queries", "finite", "NaN or infinity in a row", advice)
    return best + own[:, None], index


def _axis(bank: Tensor, dtype: torch.dtype, *, most: int) -> Tensor:
    """The median direction of some of the bank, at `most` so many, (d,).

    The median, as rows of zeros or elsewhere would pull a mean out of the cone.
    """
    count = max(1, min(_SAMPLE, most))
    some = torch.randint(len(bank), (count,), generator=torch.Generator().manual_seed(0))
    directions = unit(bank[some.to(bank.device)])[0].to(dtype)
    return directions.sort(0).values[count // 2]


def _beside(axis: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Unit rows less the axis, (n, d), and minus half their squares, (n,).

    A zero row, which is no unit row, has half less. A few at a time: normalising passes through
    several copies.
    """
    rest = torch.empty(rows.shape, dtype=axis.dtype, device=axis.device)
    minus = rest.new_empty(len(rest))
    few = max(1, len(rows) // 8)
    for raw, some, half in zip(rows.split(few), rest.split(few), minus.split(few), strict=True):
        direction, norm = unit(raw)
        some.copy_(direction).sub_(axis)
        half.copy_(some.square().sum(1).add_(norm[:, 0].isinf()).mul_(-0.5))
    return rest, minus


def _highest(x: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k highest of each row, in any order, and their columns.

    They lie in k of the groups with the highest maxima, for any groups. Reading every number once
    for the maxima is quick; choosing among many is slow. So columns are grouped by fives, the k
    groups found in the same way, and the choice made among their members.
    """
    size, count = _GROUP, x.shape[1] // _GROUP
    if count < 2 * k:
        return x.topk(k, sorted=False)
    groups = x[:, : size * count].unflatten(1, (size, count))  # column j is in group j % count
    _, group = _highest(groups.amax(1), k)  # n k
    members = groups.gather(2, group[:, None].expand(-1, size, -1)).flatten(1)  # n size*k
    rest = x[:, size * count :]
    high, place = torch.cat([members, rest], 1).topk(k, sorted=False)
    in_group = group.gather(1, place % k) + place // k * count
    return high, in_group.where(place < size * k, place + size * (count - k))


def wide(bank: Tensor, queries: Tensor) -> torch.dtype:
    """The dtype to compute in: float32 or wider."""
    return torch.promote_types(torch.promote_types(bank.dtype, queries.dtype), torch.float32)
