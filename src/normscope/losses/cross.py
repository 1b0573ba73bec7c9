"""InfoNCE of queries against keys, the loss of MoCo, and of the paper's published SimCLR."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import functional as F

from normscope._checks import check_embeddings, check_floating, invalid
from normscope._sphere import unit
from normscope.losses.partition import check_temperature, world_size


def cross_info_nce(
    q: Tensor,
    k: Tensor,
    negatives: Tensor | None = None,
    *,
    temperature: float = 0.2,
    decoupled: bool = False,
) -> Tensor:
    r"""InfoNCE in one direction: each query against its own key and the negatives.

    $\mathcal L = \frac1n \sum_i -\hat q_i^\top \hat k_i / \tau
    + \log \sum_{m \in N(i)} \exp(\hat q_i^\top \hat m / \tau)$

    where N(i) is the query's own key and the negatives: those given, or the other queries' keys.

    Args:
        q: raw queries, (n, d).
        k: raw keys, (n, d), row i that of query i.
        negatives: raw embeddings shared by all queries, (m, d): MoCo v2's queue. Without them,
            the keys of the other rows are the negatives (MoCo v3), from every process; then keys
            that need a gradient are refused if there is more than one process.
        temperature: $\tau$; MoCo v2 and v3 take .2.
        decoupled: leave the own key out of N(i), as the paper's published code does for SimCLR
            (and Yeh et al., 2022, by design).

    Returns:
        A scalar, in float32 or wider.

    >>> cross_info_nce(torch.eye(2), torch.eye(2), temperature=1.0)  # log(1 + 1/e)
    tensor(0.3133)
    """
    check_embeddings(q=q, k=k)
    tau = check_temperature(temperature)
    q_hat, k_hat = unit(q)[0], unit(k)[0]
    n, first = len(q), 0
    with torch.autocast(q.device.type, enabled=False):
        own = (q_hat * k_hat).sum(-1) / tau  # n
        if negatives is None:
            keys, first = _of_every_process(k_hat)
            others = q_hat @ keys.T / tau
            others = others.masked_fill(_own_key(n, len(keys), first, q.device), -torch.inf)
        else:
            check_floating("negatives", negatives, "(m, d)", ndim=2)
            if len(negatives) == 0 or negatives.shape[1] != q.shape[1]:
                wanted = f"at least one row of {q.shape[1]} numbers"
                raise invalid("negatives", wanted, negatives, "They are compared with q.")
            others = q_hat @ unit(negatives)[0].to(q_hat.dtype).T / tau
        if others.shape[1] == 1 and negatives is None:
            raise invalid("q", "rows enough for a negative", q, "Use a batch of at least 2.")
        if decoupled:
            return (others.logsumexp(-1) - own).mean()
        target = torch.zeros(n, dtype=torch.long, device=q.device)
        return F.cross_entropy(torch.cat([own[:, None], others], 1), target)


def _own_key(n: int, m: int, first: int, device: torch.device) -> Tensor:
    """Where a query meets its own key, (n, m)."""
    row = torch.arange(n, device=device)[:, None]
    return torch.arange(m, device=device) == row + first


def _of_every_process(k_hat: Tensor) -> tuple[Tensor, int]:
    """The keys of all processes in their order, and where this one's begin."""
    if world_size() == 1:
        return k_hat, 0
    if k_hat.requires_grad:
        raise RuntimeError(
            "k must be detached where there is more than one process. "
            "For gradients in both views, use info_nce(gather=True)."
        )
    parts = [torch.empty_like(k_hat) for _ in range(world_size())]
    dist.all_gather(parts, k_hat.contiguous())
    return torch.cat(parts), dist.get_rank() * len(k_hat)
