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
            own: the row of the reference that each one is, (n,): it is left out of what it is
                measured against.
            progress: called with the rows done and all of them.
        """
        q, norms = _directions(z)
        q = q.to(self.cluster.mean.device)
        near = self.bank.nearest(q, k=self.k, own=own, progress=progress)
        distance = self.cluster.squared_distance(q) if own is None else self.cluster.left_out(q)
        return Measured(norms, near, distance.cpu().numpy())


def _directions(z: Values) -> tuple[Tensor, np.ndarray]:
    """Unit rows in float32, and the norms in float64."""
    direction, norm = unit(tensor_of(z).detach().double())
    return direction.float(), norm[:, 0].cpu().numpy()
