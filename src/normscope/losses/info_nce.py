"""InfoNCE (NT-Xent), the loss of SimCLR."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import functional as F

from normscope._checks import check_embeddings
from normscope._kernels import has_kernels, on_device_of
from normscope._sphere import unit
from normscope.losses.partition import (
    check_temperature,
    fits_float32,
    log_partition,
    world_size,
)

_LINEAR_BEYOND = 40.0  # where e^-x leaves float64's last digit alone


def info_nce(z1: Tensor, z2: Tensor, *, temperature: float = 0.5, gather: bool = False) -> Tensor:
    r"""InfoNCE over all 2n views, each the anchor once: exact, in memory linear in n.

    $\mathcal L = \frac{1}{2n} \sum_i -\hat z_i^\top \hat z_{j(i)} / \tau
    + \log \sum_{k \ne i} \exp(\hat z_i^\top \hat z_k / \tau)$

    where i and k run over the rows of both views and j(i) is the other view of i.

    Args:
        z1: raw embeddings of the first views, (n, d).
        z2: raw embeddings of the second views, (n, d).
        temperature: $\tau$, at least .003; SimCLR takes .5 on CIFAR-10.
        gather: take negatives from every process of the default process group. Each process then
            returns the loss of the joined batch. The gradients, averaged over processes as
            DistributedDataParallel does, are those of one process on the joined batch (so in z1
            and z2 they are world-size times larger). This requires SyncBatchNorm, batches of one
            size, and the same calls in every process. Without torch.distributed, there is one
            process.

    Returns:
        A scalar, in float32 or wider, that can be differentiated once. Half-precision embeddings
        are computed on in float32; on a GPU the gradient's last product is as precise as
        `torch.set_float32_matmul_precision` asks. A row of zeros counts as orthogonal to all
        others and gets no gradient.

    Paper: Equation 1, with the two directions averaged.

    >>> z = torch.eye(4)
    >>> info_nce(z[:2], z[2:], temperature=1.0)  # log 3: all cosines are zero
    tensor(1.0986)
    """
    check_embeddings(z1=z1, z2=z2)
    tau = check_temperature(temperature)
    gather = gather and world_size() > 1
    if has_kernels(z1) and not gather and z1.dtype != torch.float64 and fits_float32(tau):
        from normscope.losses.fused import WIDEST, FusedInfoNCE

        if z1.shape[1] <= WIDEST:
            with on_device_of(z1):
                return FusedInfoNCE.apply(z1, z2, tau)  # pyright: ignore[reportReturnType]
    u, _ = unit(torch.cat([z1, z2]))  # 2n d
    log_s = log_partition(u, temperature=tau, paired=True, gather=gather)  # 2n
    u1, u2 = u.chunk(2)
    positive = (u1 * u2).sum(-1) / tau
    excess = log_s.unflatten(0, (2, -1)) - positive  # log of all negatives over the positive, 2 n
    # log(1 + e^x): as the pair aligns, the loss and its gradient shrink and keep their digits
    loss = F.softplus(excess, threshold=_LINEAR_BEYOND).mean().to(u.dtype)
    return _with_joined_value(loss) if gather else loss


def _with_joined_value(loss: Tensor) -> Tensor:
    """The mean of the processes' losses, with this process's gradient."""
    joined = loss.detach().clone()
    dist.all_reduce(joined)
    return loss + (joined / world_size() - loss.detach())
