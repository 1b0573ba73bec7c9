"""Who votes on a row's class."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from normscope._checks import invalid
from normscope.confidence.trust import Vote, vote
from normscope.evaluation.bank import Neighbours
from normscope.evaluation.inputs import classes_of

_VOTERS = (5, 10, 20, 50)


@dataclass(frozen=True)
class Voters:
    """The reference's classes, and how many neighbours vote.

    Attributes:
        classes: sorted, (c,).
        labels: of the reference, places in `classes`, (m,).
        k: voters.
    """

    classes: np.ndarray
    labels: Tensor
    k: int = 0

    @classmethod
    def of(cls, labels: object, *, rows: int) -> Voters:
        """From the labels of so many rows."""
        classes, codes = classes_of(labels, rows=rows)
        if len(classes) < 2:
            advice = "Leave them out: one class cannot be wrong."
            raise invalid("labels", "of two classes or more", f"{classes[0]} alone", advice)
        return cls(classes, torch.from_numpy(codes))

    def take(self, places: np.ndarray) -> Voters:
        """Those of some rows."""
        return Voters(self.classes, self.labels[places], self.k)

    def tried(self, near: Neighbours, own: np.ndarray) -> tuple[Voters, np.ndarray]:
        """With as many voters as are right most often, and whether they are, (n,).

        Args:
            near: neighbours of rows of the reference, themselves left out.
            own: which rows these are, (n,).
        """
        truth = self.labels[own].numpy()
        most = near.rows.shape[1]
        sizes = sorted({min(k, most) for k in _VOTERS})
        right = {k: vote(near, self.labels, k=k).winner == truth for k in sizes}
        best = max(sizes, key=lambda k: right[k].mean())
        return Voters(self.classes, self.labels, best), right[best]

    def vote(self, near: Neighbours) -> Vote:
        """Their vote, the winner as a place in `classes`."""
        return vote(near, self.labels, k=self.k)

    def answer(self, near: Neighbours) -> np.ndarray:
        """The class that they vote for, as objects, (n,)."""
        return self.classes[self.vote(near).winner].astype(object)
