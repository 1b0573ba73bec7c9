"""InfoNCE with positives drawn by class label."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from normscope._checks import check_embeddings, check_labels, invalid
from normscope._precision import has_float64
from normscope._sphere import unit
from normscope.losses.partition import check_temperature, log_partition


def supervised_info_nce(
    z: Tensor,
    labels: Tensor,
    *,
    temperature: float = 1.0,
    positives: Literal["one", "all"] = "one",
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""InfoNCE where the positives of a row are the other rows of its class.

    $\mathcal L = \operatorname{mean}_i \; -\frac{1}{|P(i)|} \sum_{j \in P(i)}
    \hat z_i^\top \hat z_j / \tau + \log \sum_{k \ne i} \exp(\hat z_i^\top \hat z_k / \tau)$

    where P(i) is one row drawn at random, as in the paper's simulation, or all of them, as in
    SupCon (Khosla et al., 2020, Equation 2), which is the mean over such draws. Rows alone in
    their class are negatives only; if every row is, the loss is zero. Memory is linear in n.

    Args:
        z: raw embeddings, (n, d), n at least 2.
        labels: classes, (n,), integers.
        temperature: $\tau$; the paper's simulation takes 1, SupCon .1.
        positives: `"one"` or `"all"`.
        generator: draws the one positive; torch's global generator unless given.

    Paper: Section 4.2, Appendix B.2.

    >>> z, labels = torch.eye(4), torch.tensor([0, 0, 1, 1])
    >>> supervised_info_nce(z, labels)  # log 3: all cosines are zero
    tensor(1.0986)
    """
    check_embeddings(z=z)
    check_labels(labels, z)
    tau = check_temperature(temperature)
    if positives not in ("one", "all"):
        raise invalid("positives", "'one' or 'all'", positives, "The paper draws one.")
    if len(z) < 2:
        raise invalid("z", "at least two rows", z, "One row has no positive and no negative.")
    u, _ = unit(z)
    index, counts = _classes(labels)
    others = counts[index] - 1  # positives of each row, n
    if positives == "one":
        partner = u[_random_partner(index, counts, generator)]
    else:
        class_sum = u.new_zeros(len(counts), u.shape[1]).index_add(0, index, u)
        partner = (class_sum[index] - u) / others.clamp_min(1)[:, None]
    has_positive = others > 0
    losses = log_partition(u, temperature=tau) - (u * partner).sum(-1) / tau
    return ((losses * has_positive).sum() / has_positive.sum().clamp_min(1)).to(u.dtype)


def _classes(labels: Tensor) -> tuple[Tensor, Tensor]:
    """Each row's class as a number from 0, (n,), and how many rows have it, (n,) with zeros.

    `unique` would make the host wait for the device to count the classes.
    """
    ordered, order = labels.sort()
    begins = torch.cat([ordered.new_zeros(1, dtype=torch.long), ordered.diff().ne(0).long()])
    index = torch.empty_like(order).index_copy_(0, order, begins.cumsum(0))
    return index, torch.zeros_like(index).index_add_(0, index, torch.ones_like(index))


def _random_partner(index: Tensor, counts: Tensor, generator: torch.Generator | None) -> Tensor:
    """For each row another row of its class, uniformly; itself where it is alone, (n,)."""
    by_class = index.argsort()
    place = torch.empty_like(by_class)
    place[by_class] = torch.arange(len(index), device=index.device)
    size, start = counts[index], (counts.cumsum(0) - counts)[index]
    wide = torch.float64 if has_float64(index.device) else torch.float32
    draw = torch.rand(len(index), generator=generator, device=index.device, dtype=wide)
    step = 1 + (draw * (size - 1)).long()  # 1 .. size - 1 places further on, round the class
    return by_class[start + (place - start + step) % size]
