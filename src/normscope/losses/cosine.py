"""The negative cosine similarity, the loss of SimSiam and BYOL."""

from __future__ import annotations

from torch import Tensor

from normscope._checks import check_embeddings
from normscope._sphere import unit


def negative_cosine(p: Tensor, z: Tensor) -> Tensor:
    r"""$-\frac1n \sum_i \hat p_i^\top \hat z_i$, between -1 and 1.

    Both sides are differentiated. SimSiam and BYOL stop the gradient of the second: pass
    `z.detach()`. (BYOL's squared distance is $2 + 2 \times$ this.)

    Args:
        p: raw embeddings, (n, d): the predictor's output.
        z: raw embeddings, (n, d): the other view's projection.

    Paper: $\mathcal L^{\mathcal A}$ of Equation 1 at $\tau = 1$.

    >>> negative_cosine(torch.tensor([[2.0, 0.0]]), torch.tensor([[3.0, 4.0]]))
    tensor(-0.6000)
    """
    check_embeddings(p=p, z=z)
    return -(unit(p)[0] * unit(z)[0]).sum(-1).mean()
