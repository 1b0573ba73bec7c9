"""The one way this library puts embeddings on the sphere."""

from __future__ import annotations

import torch
from torch import Tensor


def unit(z: Tensor) -> tuple[Tensor, Tensor]:
    r"""$\hat z = z / \|z\|$ and $\|z\|$ over the last dimension, in float32 or wider.

    A zero row has no direction: its $\hat z$ is zero and its norm is given as infinity, so that
    whatever is divided by it, in the forward pass or in the backward, is zero and never NaN.

    Args:
        z: embeddings, (..., d).

    Returns:
        The directions, (..., d), and the norms, (..., 1).

    >>> unit(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
    (tensor([[0.6000, 0.8000],
            [0.0000, 0.0000]]), tensor([[5.],
            [inf]]))
    """
    z = z.to(torch.promote_types(z.dtype, torch.float32))
    norm = torch.linalg.vector_norm(z, dim=-1, keepdim=True)
    norm = norm.where(norm > 0, torch.inf)
    return z / norm, norm


def orthogonal_part(a: Tensor, b_hat: Tensor) -> Tensor:
    r"""$a_{\perp b}$: the component of $a$ orthogonal to the unit vector $\hat b$, (..., d).

    >>> orthogonal_part(torch.tensor([1.0, 1.0]), torch.tensor([0.0, 1.0]))
    tensor([1., 0.])
    """
    return a - (a * b_hat).sum(-1, keepdim=True) * b_hat
