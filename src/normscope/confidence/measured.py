"""What is measured of rows against a reference: norm, neighbours, Mahalanobis of directions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from normscope._sphere import unit
from normscope.evaluation.bank import Bank, Neighbours, Progress, Way
from normscope.evaluation.inputs import Values, tensor_of
from normscope.evaluation.mahalanobis import Cluster

COPY = 1e-6  # the distance of rows whose directions are one, except for rounding
_NEIGHBOURS = 50  # that are looked up, at most
_AT_ONCE = 1 << 22  # numbers that are normalised at once


@dataclass(frozen=True)
class Measured:
    """Rows against a reference.

    Attributes:
        norms: (n,), float64.
        near: their neighbours, k of each.
        mahalanobis: squared distance of the direction to the reference's, (n,), float64.
    """

    norms: np.ndarray
    near: Neighbours
    mahalanobis: np.ndarray


@dataclass(frozen=True)
class Space:
    """A reference as rows are measured against it.

    Attributes:
        bank: its directions.
        cluster: their mean and covariance.
    """

    bank: Bank
    cluster: Cluster

    @classmethod
    def of(cls, z: Values, *, way: Way) -> Space:
        """From raw rows, (m, d), none of them zero."""
        rows = max(1, _AT_ONCE // z.shape[1])
        parts = [z[start : start + rows] for start in range(0, len(z), rows)]
        directions = torch.cat([_directions(part)[0] for part in parts])
        return cls(Bank.of(directions, way=way), Cluster.of(directions))

    @property
    def k(self) -> int:
        """Neighbours that are looked up."""
        return min(_NEIGHBOURS, len(self.bank) - 1)

    def measured(
        self, z: Values, *, own: Tensor | None = None, progress: Progress | None = None
    ) -> Measured:
        """Measure raw rows, none of them zero.

        Args:
            z: raw, (n, d).
            own: the row of the reference that each one is, (n,), or -1: it is left out of what
                the row is measured against.
            progress: called with the rows done and all of them.
        """
        q, norms = _directions(z)
        q = q.to(self.cluster.mean.device)
        near = self.bank.nearest(q, k=self.k, own=own, progress=progress)
        distance = self.cluster.squared_distance(q)
        if own is not None and (mine := own >= 0).any():
            distance[mine] = self.cluster.left_out(q[mine])
        return Measured(norms, near, distance.cpu().numpy())

    def verified(self, z: Values, places: np.ndarray) -> Tensor:
        """The row of the reference that each raw row is, (n,), -1 where it is another.

        Args:
            z: raw, (n, d), none of them zero.
            places: the row that each may be, (n,), or -1.
        """
        own = torch.from_numpy(places.copy())
        mine = own >= 0
        if mine.any():
            q = _directions(z)[0].to(self.cluster.mean.device)
            own[mine] = own[mine].where(self.bank.distance(q[mine], own[mine]) < COPY, -1)
        return own


def _directions(z: Values) -> tuple[Tensor, np.ndarray]:
    """Unit rows in float32, and the norms in float64."""
    direction, norm = unit(tensor_of(z).detach().double())
    return direction.float(), norm[:, 0].cpu().numpy()
