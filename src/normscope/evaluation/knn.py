"""Nearest neighbours by cosine, voting on the class: no training, bounded memory."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from normscope._checks import check_floating, check_labels, check_number, invalid
from normscope._precision import widened
from normscope.evaluation.neighbours import Tiles, nearest, tiles_for, wide


@dataclass(frozen=True)
class KnnResult:
    """The neighbours' vote on each query.

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
        return int(right.sum()) / len(right)


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
    that class, divided by the sum over all k. Similarities are computed in tiles, so memory beyond
    the result and the sorting of the labels stays below 256 MiB (2 GiB on a GPU) for any number of
    rows. Ties for the k-th neighbour are broken arbitrarily. Products are as exact as torch's
    `set_float32_matmul_precision`, relative to how far apart the rows are: features in a narrow
    cone keep the order of their cosines in TF32 too.

    Args:
        bank: features with known labels, (m, d); raw, they are normalised here.
        labels: integers, (m,).
        queries: features to classify, (n, d), raw. A row of zeros is at similarity zero to all.
        k: neighbours, at most m; the paper takes 200.
        temperature: $\tau$; .1 is usual (Wu et al., 2018, take .07).
        block: queries and rows of the bank in a tile; None chooses by memory.

    Half precision is computed on in float32.

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
    scores = torch.empty(len(queries), len(classes), dtype=wide(bank, queries), device=bank.device)
    tiles = tiles_for(bank, k=k, classes=len(classes), item=scores.dtype.itemsize)
    if block is not None:
        tiles = Tiles(queries=2 * block, rows=block, columns=block)
    for q, votes in zip(queries.split(tiles.queries), scores.split(tiles.queries), strict=True):
        near = nearest(q, bank, k=k, tiles=tiles)
        _vote_(votes, *near, column=column, tau=tau)
        del near  # before the next
    return KnnResult(classes[scores.argmax(1)], scores, classes)


def _vote_(votes: Tensor, similarity: Tensor, index: Tensor, *, column: Tensor, tau: float) -> None:
    """Fill in each class's share of the vote, (n, classes)."""
    # float64 where there is one, and the largest taken out, for any temperature
    share = (widened(similarity) - similarity[:, :1]).div_(tau).softmax(1)
    votes.copy_(share.new_zeros(votes.shape).scatter_add_(1, column[index], share))


def _check_features(bank: Tensor, queries: Tensor) -> None:
    for name, value in (("bank", bank), ("queries", queries)):
        check_floating(name, value, "(n, d)", ndim=2, advice="Pass raw features.")
        if value.numel() == 0:
            advice = "An empty set has no neighbours."
            raise invalid(name, "at least one row and one column", value, advice)
    if queries.shape[1] != bank.shape[1] or queries.device != bank.device:
        constraint = f"of {bank.shape[1]} columns on {bank.device}, as bank is"
        raise invalid("queries", constraint, queries, "Both come from one network.")
