"""How norms go with density: the distance to a neighbour against the norm.

Paper: Section 4.2, Figure "density".
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from normscope.extend import check_embeddings, check_labels, invalid, unit

_FEWEST_IN_CLASS = 20  # a rank correlation over fewer points is mostly noise
_CHUNK = 1 << 22  # similarities held at once by neighbour_distance: 32 MiB in float64


@dataclass(frozen=True)
class DensityCorrelation:
    """Spearman of neighbour distance with norm: over all points, and the mean within classes."""

    overall: float
    within: float


def neighbour_distance(z: Tensor, *, k: int = 10) -> Tensor:
    """Euclidean distance between directions to the k-th nearest other row, (n, d) -> (n,).

    Similarities are float64 and held a chunk of rows at a time.

    Args:
        z: embeddings, (n, d), no row zero.
        k: which neighbour; the paper's Figure "density" takes the 10th.

    >>> neighbour_distance(torch.tensor([[1.0, 0.0], [5.0, 0.0], [0.0, 2.0]]), k=1)
    tensor([0.0000, 0.0000, 1.4142])
    """
    check_embeddings(z=z)
    n = len(z)
    if not isinstance(k, int) or isinstance(k, bool) or not 1 <= k < n:
        raise invalid("k", f"an integer from 1 to {n - 1}, one below the rows", k, "Usual: 10.")
    u, norm = unit(z.to(torch.float64))
    if not norm.isfinite().all():
        raise invalid("z", "finite and without zero rows", z, "They have no direction.")
    neighbour = torch.empty(n, dtype=torch.int64, device=z.device)
    for rows in torch.arange(n, device=z.device).split(max(1, _CHUNK // n)):
        cosine = u[rows] @ u.T
        cosine[rows - rows[0], rows] = -torch.inf  # no row is its own neighbour
        neighbour[rows] = cosine.topk(k, sorted=True).indices[:, -1]
    return torch.linalg.vector_norm(u - u[neighbour], dim=-1).to(z.dtype)


def density_correlation(z: Tensor, labels: Tensor, *, k: int = 10) -> DensityCorrelation:
    """Whether embeddings in dense regions have larger norms: negative if they do.

    Two classes of different density and norm correlate overall by themselves, so the mean of the
    correlations within classes (of 20 points or more; NaN if there is none) stands beside it.
    Neighbours are found among all points in both.

    Args:
        z: embeddings, (n, d), no row zero.
        labels: classes, (n,), integers.
        k: which neighbour's distance is the inverse density.

    Paper: Figure "density".
    """
    check_embeddings(z=z)
    check_labels(labels, z)
    distance, norm = neighbour_distance(z, k=k), z.norm(dim=-1)
    classes, counts = labels.unique(return_counts=True)
    masks = [labels == c for c in classes[counts >= _FEWEST_IN_CLASS]]
    within = [_spearman(distance[mask], norm[mask]) for mask in masks]
    mean = sum(within) / len(within) if within else math.nan
    return DensityCorrelation(_spearman(distance, norm), mean)


def _spearman(x: Tensor, y: Tensor) -> float:
    """Rank correlation, ties sharing their mean rank; NaN if x or y is constant."""
    ranks = []
    for v in (x, y):
        _, index, counts = v.unique(return_inverse=True, return_counts=True)
        rank = (counts.cumsum(0) - (counts - 1) / 2).to(torch.float64)[index]
        ranks.append(rank - rank.mean())
    a, b = ranks
    return (a.dot(b) / (a.norm() * b.norm())).item()
