"""How long the embeddings are."""

from __future__ import annotations

import torch
from torch import Tensor

from normscope.monitors.observation import Observation

_QUANTILES = (5, 25, 50, 75, 95)


def norms(seen: Observation) -> dict[str, Tensor]:
    r"""Moments and quantiles of $\|z_i\|$, and its mean within each class.

    Returns:
        `norm_mean`, `norm_std` (of the batch itself, so divided by n), `norm_square_mean` (mean
        of $\|z_i\|^2$), `norm_q05` ... `norm_q95` (interpolated as NumPy does; NaN counts as
        largest), `nonfinite` (share of rows that hold NaN or infinity) and, with labels and
        classes, `norm_by_class`, (classes,), NaN where the batch has none of a class.

    >>> shown = norms(Observation(torch.tensor([[3.0, 4.0], [0.0, 1.0]]), lr=0.1))
    >>> shown["norm_mean"], shown["norm_q50"], shown["norm_std"]
    (tensor(3.), tensor(3.), tensor(2.))
    """
    norm = seen.norm
    ordered = norm.sort().values
    values = {
        "norm_mean": norm.mean(),
        "norm_std": norm.std(correction=0),
        "norm_square_mean": norm.square().mean(),
        "nonfinite": 1 - norm.isfinite().to(norm.dtype).mean(),
    }
    values |= {f"norm_q{q:02d}": quantile(ordered, q / 100) for q in _QUANTILES}
    if seen.labels is not None and seen.classes is not None:
        values["norm_by_class"] = _mean_by_class(norm, seen.labels, seen.classes)
    return values


def quantile(ordered: Tensor, q: float) -> Tensor:
    """The q-quantile of sorted values, (n,), linear between neighbours.

    `torch.quantile` would carry q to the device, and the host would wait for it.

    >>> quantile(torch.tensor([1.0, 2.0, 4.0]), 0.75)
    tensor(3.)
    """
    position = q * (len(ordered) - 1)
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    return torch.lerp(ordered[below], ordered[above], position - below)


def _mean_by_class(norm: Tensor, labels: Tensor, classes: int) -> Tensor:
    """Means of the norms of each class, (classes,); 0 / 0 is the NaN of an absent one."""
    member = labels[:, None] == torch.arange(classes, device=labels.device)  # n classes
    return norm[:, None].where(member, 0.0).sum(0) / member.sum(0)
