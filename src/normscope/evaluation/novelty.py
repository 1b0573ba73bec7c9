"""Scores of novelty to compare the norm with, each at its authors' settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from normscope._checks import check_floating, invalid
from normscope._sphere import safe_norm
from normscope.evaluation.inputs import Values, tensor_of
from normscope.evaluation.mahalanobis import squared_distance
from normscope.evaluation.neighbours import nearest, tiles_for, wide
from normscope.evaluation.probe import linear_probe


@dataclass(frozen=True)
class Compared:
    """Rows, and the reference that they are compared with; shared quantities are cached.

    Args:
        bank: the reference, raw, (m, d).
        z: the rows, raw, (n, d).
        labels: classes of the reference, (m,), if it has any.
        k: neighbours.
    """

    bank: Tensor
    z: Tensor
    labels: Tensor | None
    k: int

    @cached_property
    def norm(self) -> Tensor:
        r"""$\|z\|$, (n,)."""
        return safe_norm(self.z)[:, 0]

    @cached_property
    def cosines(self) -> tuple[Tensor, Tensor]:
        """The highest cosine of each row with the bank, and the k-th highest, less one."""
        k, item = self.k, wide(self.bank, self.z).itemsize
        tiles = tiles_for(self.bank, k=k, classes=1, item=item)
        parts = self.z.split(tiles.queries)
        near = [nearest(part, self.bank, k=k, tiles=tiles)[0] for part in parts]
        return torch.cat([t[:, 0] for t in near]), torch.cat([t[:, -1] for t in near])


def norm(rows: Compared) -> Tensor:
    r"""$\|z\|$."""
    return rows.norm


def max_cosine(rows: Compared) -> Tensor:
    """The highest cosine with a row of the reference."""
    return 1 + rows.cosines[0]


def csi(rows: Compared) -> Tensor:
    """The highest cosine times the norm (Tack et al., 2020)."""
    return max_cosine(rows) * rows.norm


def knn_distance(rows: Compared) -> Tensor:
    """Minus the distance to the k-th neighbour on unit vectors (Sun et al., 2022)."""
    return -(-2 * rows.cosines[1]).clamp(min=0).sqrt()


def mahalanobis(rows: Compared) -> Tensor:
    """Minus the squared distance to the reference's mean in its covariance, as one cluster."""
    distance = squared_distance(rows.bank, rows.z).to(rows.norm.dtype)
    return -distance.to(rows.norm.device)


def energy(rows: Compared) -> Tensor | None:
    r"""$\log \sum_c \exp(\mathrm{logit}_c)$ of a probe on the reference (Liu et al., 2020)."""
    if rows.labels is None:
        return None
    return linear_probe(rows.bank, rows.labels, rows.z).logits.logsumexp(1)


# higher the more familiar a row is; None where a score cannot be had
NOVELTY: dict[str, Callable[[Compared], Tensor | None]] = {
    "norm": norm,
    "max_cosine": max_cosine,
    "csi": csi,
    "knn_distance": knn_distance,
    "mahalanobis": mahalanobis,
    "energy": energy,
}


@torch.no_grad()
def novelty_scores(
    reference: Values, z: Values, *, labels: Values | None = None, k: int = 50
) -> dict[str, Tensor]:
    r"""Scores of each row of z by name, (n,) each; all are higher the more familiar the row is.

    The scores are those of `NOVELTY`; `energy` needs labels. If all reference rows are equal,
    Mahalanobis is the plain distance.

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
    rows = Compared(bank, z, None if labels is None else tensor_of(labels).to(bank.device), k)
    scores = {name: score(rows) for name, score in NOVELTY.items()}
    return {name: values for name, values in scores.items() if values is not None}


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
