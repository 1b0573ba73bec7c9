"""Mahalanobis distance to a reference's mean, with a shrunk covariance."""

from __future__ import annotations

import torch
from torch import Tensor

from normscope.evaluation.neighbours import TILE


def squared_distance(bank: Tensor, z: Tensor) -> Tensor:
    """The squared distance of each row of z, in float64; shrinkage by Ledoit and Wolf (2004)."""
    m, d = bank.shape
    rows = max(1, TILE // d)
    mean = sum((part.double().sum(0) for part in bank.split(rows)), bank.new_zeros(())) / m
    covariance = bank.new_zeros(d, d, dtype=torch.float64)
    fourth = covariance.new_zeros(())
    for part in bank.split(rows):
        x = part.double() - mean
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
    factor = torch.linalg.cholesky(shrunk)
    distances = []
    for part in z.split(rows):
        w = torch.linalg.solve_triangular(factor, (part.double() - mean).T, upper=False)  # d rows
        distances.append(w.square().sum(0))
    return torch.cat(distances)
