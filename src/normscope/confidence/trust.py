"""The neighbours' vote on a row's class, and whether norms show if it is right."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from normscope._sphere import unit
from normscope.evaluation.bank import Bank, Neighbours
from normscope.evaluation.inputs import Values, classes_of, tensor_of
from normscope.evaluation.ranks import auroc

ROWS = 10_000  # at most: all pairs of them are compared
_TEMPERATURE = 0.1
_PAIRS = 1 << 23  # of neighbours that are compared at once


@dataclass(frozen=True)
class Vote:
    """The neighbours' vote on the class of rows.

    Attributes:
        winner: the class with the highest share, (n,).
        share: its share, (n,).
    """

    winner: np.ndarray
    share: np.ndarray


def vote(near: Neighbours, labels: Tensor, *, k: int) -> Vote:
    r"""The vote of the k nearest, weighted by $\exp(\cos / 0.1)$, as in `knn`.

    Memory does not grow with the number of classes.

    Args:
        near: neighbours, k or more.
        labels: of the bank, integers, (m,).
        k: how many vote.

    >>> near = Neighbours(torch.tensor([[0.1, 0.1, 0.1]]), torch.tensor([[0, 2, 1]]))
    >>> vote(near, torch.tensor([7, 7, 4]), k=3).share.round(3)
    array([0.667])
    """
    winners, shares = [], []
    rows = max(1, _PAIRS // k**2)
    for distance, index in zip(near.distance.split(rows), near.rows.split(rows), strict=True):
        cast = labels[index[:, :k]]  # n k
        weight = (-distance[:, :k] / _TEMPERATURE).softmax(1)
        alike = cast[:, :, None] == cast[:, None, :]
        total = (alike * weight[:, None, :]).sum(2)  # n k: the share of each one's class
        share, place = total.max(1)
        winners.append(cast.gather(1, place[:, None])[:, 0])
        shares.append(share)
    return Vote(torch.cat(winners).numpy(), torch.cat(shares).double().numpy())


@torch.no_grad()
def norm_trust(z: Values, labels: object, score: np.ndarray) -> float | None:
    """AUROC of a score for whether a row's neighbours give its label, each row left out in turn.

    The vote is that of `knn`, by a tenth of the rows but 200 at most, among at most 10,000 rows
    that a fixed seed draws. None if all neighbours are right, or all wrong.

    Args:
        z: raw embeddings, (n, d), finite.
        labels: whole numbers or strings, (n,).
        score: of the rows of z, (n,).

    >>> z, labels = torch.eye(4).repeat(5, 1), torch.arange(4).repeat(5)
    >>> norm_trust(z, labels, np.ones(20)) is None
    True
    """
    codes = torch.from_numpy(classes_of(labels, rows=len(z))[1])
    rows = torch.arange(len(z))
    if len(z) > ROWS:
        rows = torch.from_numpy(np.random.default_rng(0).choice(len(z), ROWS, replace=False))
        rows = rows.sort().values
    directions = unit(tensor_of(z)[rows])[0]
    bank = Bank.of(directions, way="exact")
    k = min(200, len(rows) // 10)
    near = bank.nearest(directions, k=k, own=torch.arange(len(rows)))
    right = vote(near, codes[rows], k=k).winner == codes[rows].numpy()
    value = auroc(score[rows.numpy()], right)
    return None if math.isnan(value) else value
