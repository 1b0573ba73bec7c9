"""Whether norms are informative: whether they predict if a row's neighbours are right."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from normscope._checks import check_labels
from normscope.evaluation.inputs import Values, tensor_of
from normscope.evaluation.neighbours import nearest, tiles_for, wide
from normscope.evaluation.ranks import auroc

_ROWS = 10_000  # at most: all pairs of them are compared
_TEMPERATURE = 0.1


@torch.no_grad()
def norm_trust(z: Values, labels: Values, norms: np.ndarray) -> float | None:
    """AUROC of the norm for whether a row's neighbours give its label, each row left out in turn.

    The vote is that of `knn`, by a tenth of the rows but 200 at most, among at most 10,000 rows
    that a fixed seed draws. None if all neighbours are right, or all wrong.

    Args:
        z: raw embeddings, (n, d), finite.
        labels: integers, (n,).
        norms: of z, (n,).

    >>> z, labels = torch.eye(4).repeat(5, 1), torch.arange(4).repeat(5)
    >>> norm_trust(z, labels, np.ones(20)) is None
    True
    """
    z = tensor_of(z)
    labels = tensor_of(labels).to(z.device)
    check_labels(labels, z)
    if len(z) > _ROWS:
        drawn = np.sort(np.random.default_rng(0).choice(len(z), _ROWS, replace=False))
        rows = torch.from_numpy(drawn).to(z.device)
        z, labels, norms = z[rows], labels[rows], norms[drawn]
    right = _left_out(z, labels, k=min(200, len(z) // 10))
    value = auroc(norms, right)
    return None if math.isnan(value) else value


def _left_out(z: Tensor, labels: Tensor, *, k: int) -> Tensor:
    """Whether the vote of the k nearest other rows is a row's own label, (n,)."""
    classes, label = labels.unique(return_inverse=True)
    tiles = tiles_for(z, k=k + 1, classes=len(classes), item=wide(z, z).itemsize)
    right = []
    for own in torch.arange(len(z), device=z.device).split(tiles.queries):
        similarity, index = nearest(z[own], z, k=k + 1, tiles=tiles)
        self_found = index == own[:, None]
        # a row whose equals crowd it out of its own neighbours gives up the last of them
        self_found[:, -1] |= ~self_found.any(1)
        nearness = similarity.masked_fill(self_found, -torch.inf) / _TEMPERATURE
        vote = torch.zeros(len(own), len(classes), dtype=nearness.dtype, device=z.device)
        vote.scatter_add_(1, label[index], nearness.softmax(1))
        right.append(vote.argmax(1) == label[own])
    return torch.cat(right)
