"""Scores of novelty to compare the norm with, each at its authors' settings."""

from __future__ import annotations

import torch
from torch import Tensor

from normscope._checks import check_floating, invalid
from normscope._sphere import safe_norm
from normscope.evaluation.arrays import Values, tensor_of
from normscope.evaluation.neighbours import TILE, nearest, tiles_for, wide
from normscope.evaluation.probe import linear_probe


@torch.no_grad()
def novelty_scores(
    reference: Values, z: Values, *, labels: Values | None = None, k: int = 50
) -> dict[str, Tensor]:
    r"""Scores of each row of z by name, (n,) each; all are higher the more familiar the row is.

    - `norm`: $\|z\|$.
    - `max_cosine`: the highest cosine with a row of the reference.
    - `csi`: that times the norm (Tack et al., 2020).
    - `knn_distance`: minus the distance to the k-th neighbour on unit vectors (Sun et al., 2022).
    - `mahalanobis`: minus the squared distance to the reference's mean in its covariance, on raw
      rows, as one cluster, shrunk by Ledoit and Wolf (2004) so that it can be inverted; of a
      reference of one row again and again, the plain distance.
    - `energy`: $\log \sum_c \exp(\mathrm{logit}_c)$ of a linear probe on the reference, if it has
      labels (Liu et al., 2020).

    Similarities are held a tile at a time; only the probe copies the reference.

    Args:
        reference: embeddings of what the network was trained for, raw, (m, d). A row that is also
            in z is its own neighbour there.
        z: embeddings to score, raw, (n, d).
        labels: classes of the reference, integers, (m,).
        k: neighbours, at most m.

    >>> scores = novelty_scores(torch.eye(3), torch.tensor([[0.0, 2.0, 0.0]]), k=1)
    >>> scores["csi"], sorted(scores)
    (tensor([2.]), ['csi', 'knn_distance', 'mahalanobis', 'max_cosine', 'norm'])
    """
    bank, z = tensor_of(reference), tensor_of(z)
    _check(bank, z)
    if not isinstance(k, int) or isinstance(k, bool) or not 1 <= k <= len(bank):
        constraint = f"an integer from 1 to {len(bank)}, the rows of the reference"
        raise invalid("k", constraint, k, "The usual is 50.")
    norm = safe_norm(z)[:, 0]
    nearest, farthest = _cosines_less_one(bank, z, k)
    scores = {
        "norm": norm,
        "max_cosine": 1 + nearest,
        "csi": (1 + nearest) * norm,
        "knn_distance": -(-2 * farthest).clamp(min=0).sqrt(),
        "mahalanobis": _mahalanobis(bank, z).to(norm.dtype),
    }
    if labels is not None:
        scores["energy"] = linear_probe(
            bank, tensor_of(labels).to(bank.device), z
        ).logits.logsumexp(1)
    return scores


def _cosines_less_one(bank: Tensor, z: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The highest cosine of each row with the bank, and the k-th highest, less one."""
    tiles = tiles_for(bank, k=k, classes=1, item=wide(bank, z).itemsize)
    near = [nearest(part, bank, k=k, tiles=tiles)[0] for part in z.split(tiles.queries)]
    return torch.cat([t[:, 0] for t in near]), torch.cat([t[:, -1] for t in near])


def _mahalanobis(bank: Tensor, z: Tensor) -> Tensor:
    """Minus the squared distance, in float64."""
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
    return -torch.cat(distances)


def _check(bank: Tensor, z: Tensor) -> None:
    for name, value in (("reference", bank), ("z", z)):
        check_floating(name, value, "(n, d)", ndim=2)
        if value.numel() == 0:
            raise invalid(name, "at least one row and one column", value, "Skip empty batches.")
        if not value.isfinite().all():
            raise invalid(name, "finite", "NaN or infinity in a row", "Leave such rows out.")
    if z.shape[1] != bank.shape[1] or z.device != bank.device:
        constraint = f"of {bank.shape[1]} columns on {bank.device}, as reference is"
        raise invalid("z", constraint, z, "Both come from one network.")
