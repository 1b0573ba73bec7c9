"""The nearest orthogonal matrix, by matrix products alone."""

from __future__ import annotations

import torch
from torch import Tensor

# Of Muon (Jordan et al., 2024): the polynomial's slope at zero is as steep as it can be while
# singular values still end within some .7 to 1.2.
A, B, C = 3.4445, -4.7750, 2.0315
ITERATIONS = 5


def orthogonalised(v: Tensor) -> Tensor:
    r"""$U V^\top$ of each $v = U \Sigma V^\top$, roughly: singular values between some .7 and 1.2.

    Five Newton-Schulz iterations $X \leftarrow a X + (b X X^\top + c (X X^\top)^2) X$ of an odd
    polynomial that brings every singular value near one; singular values below a thousandth of
    the norm stay smaller. In bfloat16 on a GPU, elsewhere in v's dtype.

    Args:
        v: matrices, (k, rows, columns), in float32 or wider; a zero one stays zero.

    >>> orthogonalised(torch.diag(torch.tensor([5.0, 1.0]))[None]).mul(10).round() / 10
    tensor([[[0.7000, 0.0000],
             [0.0000, 0.8000]]])
    """
    norm = torch.linalg.vector_norm(v, dim=(1, 2), keepdim=True)
    x = v / norm.where(norm > 0, 1.0)
    if v.is_cuda and v.dtype == torch.float32:
        x = x.to(torch.bfloat16)
    tall = x.shape[1] > x.shape[2]
    x = x.mT if tall else x
    for _ in range(ITERATIONS):
        square = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(square, square, square, beta=B, alpha=C), x, beta=A)
    return x.mT if tall else x
