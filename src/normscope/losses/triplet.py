"""The triplet loss on the sphere."""

from __future__ import annotations

from torch import Tensor

from normscope._checks import check_embeddings, check_number
from normscope._sphere import unit


def triplet(anchor: Tensor, positive: Tensor, negative: Tensor, *, margin: float = 0.2) -> Tensor:
    r"""$\frac1n \sum_i \max(0, \|\hat a_i - \hat p_i\|^2 - \|\hat a_i - \hat n_i\|^2 + m)$.

    On the sphere $\|\hat a - \hat b\|^2 = 2 - 2 \cos(a, b)$, so this too is a cosine-based loss
    and subject to the embedding-norm effect.

    Args:
        anchor: raw embeddings, (n, d).
        positive: raw embeddings of the same classes, (n, d).
        negative: raw embeddings of other classes, (n, d).
        margin: m; FaceNet (Schroff et al., 2015) takes .2.

    Paper: Section 2.1.

    >>> a, b = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 5.0]])
    >>> triplet(a, a, b), triplet(a, b, a)
    (tensor(0.), tensor(2.2000))
    """
    check_embeddings(anchor=anchor, positive=positive, negative=negative)
    margin = check_number("margin", margin, "FaceNet uses 0.2.", positive=False)
    a, p, n = unit(anchor)[0], unit(positive)[0], unit(negative)[0]
    return (2 * (a * (n - p)).sum(-1) + margin).clamp_min(0).mean()
