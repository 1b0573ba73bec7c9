"""Gradients of the cosine similarity and of InfoNCE in closed form."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from normscope._checks import check_floating, check_number, invalid
from normscope._sphere import orthogonal_part, unit


def cosine_grad(z: Tensor, t: Tensor) -> Tensor:
    r"""Gradient of $-\cos(z_i, t_i)$ in $z_i$: $-\frac{1}{\|z_i\|}(\hat t_i)_{\perp z_i}$.

    Orthogonal to $z_i$, so a step along it can only lengthen it. Its length is
    $\sin(\phi_i) / \|z_i\|$, where $\phi_i$ is the angle between the two.

    Args:
        z: embeddings, (..., d); a zero row gets a zero gradient.
        t: targets, broadcastable to z; their norms do not matter.

    Paper: Proposition "cos_sim_grads".

    >>> cosine_grad(torch.tensor([[3.0, 4.0]]), torch.tensor([[1.0, 0.0]]))
    tensor([[-0.1280,  0.0960]])
    """
    check_floating("z", z, "(..., d)")
    check_floating("t", t, "(..., d)")
    _check_same_d(z=z, t=t)
    z_hat, norm = unit(z)
    t_hat, _ = unit(t)
    return (-orthogonal_part(t_hat, z_hat) / norm).to(z.dtype)


class InfoNceGrad(NamedTuple):
    """The gradient of one InfoNCE term in each embedding it touches."""

    anchor: Tensor
    positive: Tensor
    negatives: Tensor


def info_nce_grad(
    anchor: Tensor, positive: Tensor, negatives: Tensor, *, temperature: float = 1.0
) -> InfoNceGrad:
    r"""Gradient of one InfoNCE term $\mathcal L_{ij}$ in $z_i$, $z_j$ and each negative $z_l$.

    With $p_k = \mathrm{ExpSim}(z_i, z_k) / S_i$ over the positive and the negatives,

    $\nabla_i = -\frac{1}{\tau \|z_i\|}\left(\hat z_j - \sum_k p_k \hat z_k\right)_{\perp z_i}$

    $\nabla_j = -\frac{1 - p_j}{\tau \|z_j\|} (\hat z_i)_{\perp z_j}$

    $\nabla_l = +\frac{p_l}{\tau \|z_l\|} (\hat z_i)_{\perp z_l}$

    The paper prints $\nabla_l$ with a minus sign, which would pull negatives closer, and leaves
    out $1/\tau$ (it sets $\tau = 1$); both are put right here. Each gradient is orthogonal to
    the embedding it belongs to, and inversely proportional to its norm.

    Args:
        anchor: $z_i$, (..., d).
        positive: $z_j$, (..., d).
        negatives: the other $z_k$ of the batch, (..., m, d).
        temperature: $\tau$; the paper's theory takes 1, SimCLR .5.

    Paper: Proposition "infonce_grads".

    >>> grad = info_nce_grad(
    ...     torch.tensor([2.0, 0.0]), torch.tensor([0.0, 1.0]), torch.tensor([[0.0, -1.0]])
    ... )
    >>> grad.anchor, grad.negatives
    (tensor([ 0.0000, -0.5000]), tensor([[0.5000, 0.0000]]))
    """
    for name, z in (("anchor", anchor), ("positive", positive), ("negatives", negatives)):
        check_floating(name, z, "(..., d), negatives (..., m, d)")
    tau = check_number("temperature", temperature, "SimCLR uses 0.5.")
    _check_same_d(anchor=anchor, positive=positive, negatives=negatives)
    zi_hat, norm_i = unit(anchor)
    zj_hat, norm_j = unit(positive)
    zl_hat, norm_l = unit(negatives)

    # Relative to the positive, so that 1 - p_j is a sum of small terms and keeps all its digits.
    cos_j = (zi_hat * zj_hat).sum(-1, keepdim=True)
    excess = ((zi_hat.unsqueeze(-2) * zl_hat).sum(-1) - cos_j) / tau  # ... m
    log_s = torch.logaddexp(excess.new_zeros(()), excess.logsumexp(-1, keepdim=True))
    p = (excess - log_s).exp().unsqueeze(-1)  # ... m 1

    push = (p * (zl_hat - zj_hat.unsqueeze(-2))).sum(-2)  # sum_k p_k z_hat_k - z_hat_j
    grad_i = orthogonal_part(push, zi_hat) / (tau * norm_i)
    grad_j = -p.sum(-2) * orthogonal_part(zi_hat, zj_hat) / (tau * norm_j)
    grad_l = p * orthogonal_part(zi_hat.unsqueeze(-2), zl_hat) / (tau * norm_l)
    return InfoNceGrad(
        grad_i.to(anchor.dtype), grad_j.to(positive.dtype), grad_l.to(negatives.dtype)
    )


def _check_same_d(**embeddings: Tensor) -> None:
    (first_name, first), *rest = embeddings.items()
    for name, z in rest:
        if z.shape[-1] != first.shape[-1]:
            constraint = f"of dimension {first.shape[-1]}, as {first_name}"
            raise invalid(name, constraint, z, "The last dimension is the embedding's.")
