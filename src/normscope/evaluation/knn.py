"""Nearest neighbours by cosine, voting on the class: no training, bounded memory."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from normscope._checks import check_floating, check_labels, check_number, invalid
from normscope._sphere import unit

# Numbers in a small tile: 16 MiB in float32, of which a CPU's work may take sixteen.
_TILE = 1 << 22
_MEMORY = 16 * 4 * _TILE
_GPU_MEMORY = 8 * _MEMORY  # a GPU is slow on small tiles
_GROUP = 5  # columns; on a CPU anything from 3 to 6 is as quick


@dataclass(frozen=True)
class KnnResult:
    """What the neighbours say of each query.

    Attributes:
        predictions: the class with the highest score, (n,).
        scores: each class's share of the vote, (n, classes); rows sum to one.
        classes: the label of each column of `scores`: those of the bank, sorted.
    """

    predictions: Tensor
    scores: Tensor
    classes: Tensor

    def accuracy(self, truth: Tensor, top: int = 1) -> float:
        """The share of queries whose true label is among the `top` highest scores."""
        if truth.shape != self.predictions.shape:
            constraint = f"of shape {tuple(self.predictions.shape)}"
            raise invalid("truth", constraint, truth, "One label a query.")
        if not 1 <= top <= len(self.classes):
            advice = "Top-1 is the usual accuracy."
            raise invalid("top", f"from 1 to the {len(self.classes)} classes", top, advice)
        if top == 1:
            right = self.predictions == truth.to(self.predictions.device)
        else:
            best = self.classes[self.scores.topk(top).indices]  # n top
            right = (best == truth.to(best.device)[:, None]).any(1)
        return right.double().mean().item()


@torch.no_grad()
def knn(
    bank: Tensor,
    labels: Tensor,
    queries: Tensor,
    k: int = 200,
    temperature: float = 0.1,
    *,
    block: int | None = None,
) -> KnnResult:
    r"""Classify each query by its k nearest rows of the bank, weighted by similarity.

    The score of a class is the sum of $\exp(\cos(q, b_i) / \tau)$ over the neighbours $b_i$ of
    that class, divided by the sum over all k. Similarities are held a tile of queries and bank at
    a time, so that memory beyond the result and the sorting of the labels stays below 256 MiB
    (2 GiB on a GPU), whatever the number of queries and the size of the bank. Which of several
    equally near rows is the k-th is left open. Products are as exact as torch's
    `set_float32_matmul_precision` has them.

    Args:
        bank: features with known labels, (m, d); raw, they are normalised here.
        labels: integers, (m,).
        queries: features to classify, (n, d), raw. A row of zeros is at similarity zero to all.
        k: neighbours, at most m; the paper takes 200.
        temperature: $\tau$; .1 is usual (Wu et al., 2018, take .07).
        block: queries and rows of the bank in a tile; None chooses by what the memory holds.

    Half precision is worked on in float32.

    Paper: Appendix "Experimental Setup".

    >>> bank, labels = torch.eye(3), torch.tensor([7, 7, 4])
    >>> knn(bank, labels, torch.tensor([[5.0, 4.0, 0.0]]), k=2).predictions
    tensor([7])
    """
    _check_features(bank, queries)
    check_labels(labels, bank)
    if not isinstance(k, int) or isinstance(k, bool) or not 1 <= k <= len(bank):
        advice = "A vote needs neighbours: the usual k is 200."
        raise invalid("k", f"an integer from 1 to {len(bank)}, the rows of the bank", k, advice)
    tau = check_number("temperature", temperature, "The usual is 0.1.")
    if block is not None and (not isinstance(block, int) or block < 1):
        raise invalid("block", "a positive integer", block, "None chooses one.")
    classes, column = labels.unique(return_inverse=True)
    wide = _wide(bank, queries)
    scores = torch.empty(len(queries), len(classes), dtype=wide, device=bank.device)
    tiles = _tiles(bank, k=k, classes=len(classes), item=wide.itemsize)
    if block is not None:
        tiles = _Tiles(queries=2 * block, rows=block, columns=block)
    for q, votes in zip(queries.split(tiles.queries), scores.split(tiles.queries), strict=True):
        near = _nearest(q, bank, k=k, columns=tiles.columns, rows=tiles.rows)
        _vote_(votes, *near, column=column, tau=tau)
        del near  # before the next
    return KnnResult(classes[scores.argmax(1)], scores, classes)


def _vote_(votes: Tensor, similarity: Tensor, index: Tensor, *, column: Tensor, tau: float) -> None:
    """Fill in each class's share of the vote, (n, classes)."""
    # float64, and the largest taken out, for any temperature
    share = (similarity.double() - similarity[:, :1]).div_(tau).softmax(1)
    votes.copy_(share.new_zeros(votes.shape).scatter_add_(1, column[index], share))


class _Tiles(NamedTuple):
    """How much is worked on at a time."""

    queries: int  # for which the bank is normalised once, and whose neighbours are kept
    rows: int  # of these, against
    columns: int  # rows of the bank


def _tiles(bank: Tensor, *, k: int, classes: int, item: int) -> _Tiles:
    """Tiles of numbers of `item` bytes.

    A fifth of the memory is for the part of the bank, one for the tile, one for the queries and
    their neighbours; the rest is for what passes.
    """
    fifth = (_GPU_MEMORY if bank.is_cuda else _MEMORY) // 5
    m, d = bank.shape
    most = max(1, min(fifth // (d * item), fifth >> 8))
    columns = math.ceil(m / math.ceil(m / most))  # parts of the bank are of one size
    # a neighbour passes through some 192 bytes: what may hold it, its index, the merging of both
    rows = fifth // max(columns * item, 192 * k)
    queries = fifth // (d * item + k * (item + 8) + 8 * classes)
    return _Tiles(max(1, queries), max(1, rows), columns)


def _nearest(
    q: Tensor, bank: Tensor, *, k: int, columns: int, rows: int | None = None
) -> tuple[Tensor, Tensor]:
    """The k highest cosines of each row of q with the bank, highest first, and whose they are.

    Held are `rows` of q (all unless given) by `columns` of the bank at a time, and the bank is
    walked once. Nothing waits for a GPU before the end.
    """
    wide = _wide(bank, q)
    u = unit(q)[0].to(wide)
    rows = min(rows or len(u), len(u))
    best = u.new_full((len(u), k), -torch.inf)
    index = torch.zeros(len(u), k, dtype=torch.int64, device=u.device)
    # Taken once, and in rows of whole cache lines: on a CPU, fresh pages cost a fifth of the
    # product, and rows that begin anywhere up to two fifths.
    width = 16 * math.ceil(min(columns, len(bank)) / 16)
    space = u.new_empty(rows, width)
    start = 0
    for part in bank.split(columns):
        v = _directions(part, wide)
        for x, kept, whose in zip(u.split(rows), best.split(rows), index.split(rows), strict=True):
            cosine = space[: len(x), : len(v)]
            torch.mm(x, v.T, out=cosine)  # autocast leaves `out` alone
            near, where = _highest(cosine, min(k, len(v)))
            high, order = torch.cat([kept, near], 1).topk(k)
            whose.copy_(torch.cat([whose, where + start], 1).gather(1, order))
            kept.copy_(high)
        start += len(v)
        del v  # before the next part's
    if not best.isfinite().all():  # NaN counts as higher than any number, so none is missed
        advice = "Did the training diverge?"
        raise invalid("bank and queries", "finite", "NaN or infinity in a row", advice)
    return best, index


def _directions(part: Tensor, dtype: torch.dtype) -> Tensor:
    """Unit rows, a few at a time: normalising passes through several copies."""
    v = torch.empty(part.shape, dtype=dtype, device=part.device)
    few = max(1, len(part) // 8)
    for raw, direction in zip(part.split(few), v.split(few), strict=True):
        direction.copy_(unit(raw)[0])
    return v


def _highest(x: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k highest of each row, in any order, and their columns.

    They lie in k of the groups with the highest maxima, whatever the groups. Reading every number
    once for the maxima is quick; choosing among many is slow. So columns are grouped by fives, the
    k groups found in the same way, and the choice made among their members.
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


def _wide(bank: Tensor, queries: Tensor) -> torch.dtype:
    """What both are worked on in: float32 or wider."""
    return torch.promote_types(torch.promote_types(bank.dtype, queries.dtype), torch.float32)


def _check_features(bank: Tensor, queries: Tensor) -> None:
    for name, value in (("bank", bank), ("queries", queries)):
        check_floating(name, value, "(n, d)", ndim=2, advice="Pass raw features.")
        if value.numel() == 0:
            advice = "An empty set has no neighbours."
            raise invalid(name, "at least one row and one column", value, advice)
    if queries.shape[1] != bank.shape[1] or queries.device != bank.device:
        constraint = f"of {bank.shape[1]} columns on {bank.device}, as bank is"
        raise invalid("queries", constraint, queries, "Both come from one network.")
