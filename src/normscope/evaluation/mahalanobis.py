"""Mahalanobis distance to a reference's mean, with a shrunk covariance."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from normscope._precision import in_float64
from normscope.evaluation.neighbours import TILE


def squared_distance(bank: Tensor, z: Tensor) -> Tensor:
    """The squared distance of each row of z, in float64; shrinkage by Ledoit and Wolf (2004)."""
    return Cluster.of(bank).squared_distance(z)


@dataclass(frozen=True)
class Cluster:
    r"""Mean and covariance $(1 - s) C + s l I$ of rows, in float64.

    On the rows' device, or on the CPU where that has no float64.

    Attributes:
        mean: (d,).
        factor: the lower Cholesky factor of the shrunk covariance, (d, d).
        share: s, how far it is shrunk.
        level: l, the mean of the eigenvalues of C.
        rows: m, how many it was fitted to.
    """

    mean: Tensor
    factor: Tensor
    share: float
    level: float
    rows: int

    @classmethod
    def of(cls, bank: Tensor) -> Cluster:
        """Fit to rows, (m, d), a few at a time."""
        m, d = bank.shape
        parts = bank.split(_few(d))
        mean = in_float64(bank.new_zeros(d))
        for part in parts:
            mean += in_float64(part).sum(0)
        mean = mean / m
        covariance = mean.new_zeros(d, d)
        fourth = covariance.new_zeros(())
        for part in parts:
            x = in_float64(part) - mean
            covariance += x.T @ x / m
            fourth += x.square().sum(1).square().sum() / m
        # how far the covariance is from a multiple of one, and how much of it is chance
        level = covariance.trace() / d
        if not level > 0:  # a network that collapsed: what is left is the plain distance
            level = torch.ones_like(level)
        away = covariance.square().sum() - d * level**2
        chance = ((fourth - covariance.square().sum()) / m).clamp(min=0)
        share = (chance / away).clamp(max=1) if away > 0 else torch.ones_like(away)
        # a reference in a subspace, exactly: the other directions get what rounding leaves
        share = share.clamp(min=1e-9)
        shrunk = (1 - share) * covariance
        shrunk.diagonal().add_(share * level)
        # row by row, as a file would keep it: a solution has the same bits then
        factor = torch.linalg.cholesky(shrunk).contiguous()
        return cls(mean, factor, float(share), float(level), m)

    def squared_distance(self, z: Tensor) -> Tensor:
        """Of each row of z, (n,)."""
        return self._distance(z, self.factor)

    def left_out(self, rows: Tensor) -> Tensor:
        r"""The squared distance of rows of the bank to the cluster of all others, (n,).

        The shrinkage stays. With $x_i - \mu_{-i} = \frac{m}{m-1} (x_i - \mu)$ and
        $C_{-i} = \frac{m}{m-1} C - \frac{m}{(m-1)^2} (x_i - \mu)(x_i - \mu)^T$, a row changes the
        covariance by rank one, whose inverse is known (Sherman and Morrison, 1950).

        >>> bank = torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
        >>> found = Cluster.of(bank)
        >>> bool(found.left_out(bank)[0] > found.squared_distance(bank)[0])
        True
        """
        m, wider = self.rows, self.rows / (self.rows - 1)
        ridge = self.share * self.level
        both = wider * (self.factor @ self.factor.T)  # of it, the ridge should not have grown
        both.diagonal().sub_((wider - 1) * ridge)
        distance = self._distance(rows, torch.linalg.cholesky(both))
        own = (1 - self.share) * wider / (m - 1)
        # rows alone in their direction have nothing left there but the ridge, and rounding
        return wider**2 * distance / (1 - own * distance).clamp(min=1e-12)

    def _distance(self, z: Tensor, factor: Tensor) -> Tensor:
        distances = []
        for part in z.split(_few(len(self.mean))):
            x = (in_float64(part) - self.mean).T  # d rows
            w = torch.linalg.solve_triangular(factor, x, upper=False)
            distances.append(w.square().sum(0))
        return torch.cat(distances)


def _few(d: int) -> int:
    """Rows that are in float64 at once."""
    return max(1, TILE // d)
