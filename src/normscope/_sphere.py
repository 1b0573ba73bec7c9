"""The one way this library puts embeddings on the sphere."""

from __future__ import annotations

import torch
from torch import Tensor


def safe_norm(z: Tensor) -> Tensor:
    r"""$\|z\|$ over the last dimension, (..., 1), in float32 or wider, whatever its size.

    Squares of entries beyond 1e19 overflow float32, and below 1e-23 vanish in it; so the largest
    entry is taken out first.

    >>> safe_norm(torch.tensor([[3e30, 4e30], [0.0, 0.0]]))
    tensor([[5.0000e+30],
            [0.0000e+00]])
    """
    z = z.to(torch.promote_types(z.dtype, torch.float32))
    largest = z.detach().abs().amax(-1, keepdim=True)
    largest = largest.where((largest > 0) & largest.isfinite(), 1.0)
    return largest * torch.linalg.vector_norm(z / largest, dim=-1, keepdim=True)


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
    norm = safe_norm(z)
    norm = norm.where(norm != 0, torch.inf)
    return z / norm, norm


def orthogonal_part(a: Tensor, b_hat: Tensor) -> Tensor:
    r"""$a_{\perp b}$: the component of $a$ orthogonal to the unit vector $\hat b$, (..., d).

    >>> orthogonal_part(torch.tensor([1.0, 1.0]), torch.tensor([0.0, 1.0]))
    tensor([1., 0.])
    """
    return a - (a * b_hat).sum(-1, keepdim=True) * b_hat
