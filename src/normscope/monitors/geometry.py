"""Where the embeddings point: towards their targets, and apart from each other."""

from __future__ import annotations

import torch
from torch import Tensor

from normscope._precision import in_float64
from normscope._sphere import unit
from normscope._threads import one_thread
from normscope.monitors.observation import Observation

_UNIFORMITY_ROWS = 512  # 131 thousand pairs: a mean over them is steady to a percent or so
RANK_ROWS = 512


@torch.no_grad()
def geometry(seen: Observation) -> dict[str, Tensor]:
    r"""How the directions lie on the sphere.

    Returns:
        `mean_cosine`, the mean of $\hat z_i^\top \hat z_j$ over pairs i < j; `uniformity`,
        $\log$ of the mean over those pairs, among the first 512 rows, of
        $\exp(-2 \|\hat z_i - \hat z_j\|^2)$ (Wang & Isola 2020): both NaN for a single row. With
        targets, `alignment`, the mean of $\|\hat z_i - \hat t_i\|^2$ (theirs too, alpha 2), and
        `opposite_halves`, the share of rows with $\hat z_i^\top \hat t_i < 0$.

    Paper: Table "opposite_halves_effect" for the last.

    >>> z = torch.tensor([[3.0, 0.0], [0.0, 1.0]])
    >>> shown = geometry(Observation(z, lr=0.1, targets=torch.tensor([[1.0, 0.0], [0.0, -2.0]])))
    >>> shown["alignment"], shown["opposite_halves"]
    (tensor(2.), tensor(0.5000))
    """
    z_hat, n = seen.z_hat, len(seen.z)
    # sum over i != j of cosines = |sum of all|^2 - sum of squares; 0 / 0 is the NaN of one row
    pairs = z_hat.sum(0).square().sum() - z_hat.square().sum()
    distance = torch.pdist(z_hat[:_UNIFORMITY_ROWS])
    values = {
        "mean_cosine": pairs / torch.full_like(pairs, n * (n - 1)),
        "uniformity": (-2 * distance.square()).exp().mean().log(),
    }
    if seen.targets is not None:
        t_hat, _ = unit(seen.targets)
        values["alignment"] = (z_hat - t_hat).square().sum(-1).mean()
        values["opposite_halves"] = ((z_hat * t_hat).sum(-1) < 0).to(z_hat.dtype).mean()
    return values


@torch.no_grad()
def rank_me(z: Tensor) -> Tensor:
    r"""RankMe: $\exp$ of the entropy of $\sigma_k / \sum_l \sigma_l$, the singular values of z.

    Between 1 and min(n, d), so compare only batches of one size.

    Args:
        z: raw embeddings, (n, d), not centred; if one entry is not finite, or all are zero, the
            rank is NaN.

    Source: Garrido et al. 2023, Equation 1.

    >>> print(f"{rank_me(torch.tensor([[2.0, 0.0], [0.0, 2.0], [0.0, 0.0]])).item():.3f}")
    2.000
    """
    return rank_of_gram(gram(z))


@torch.no_grad()
def gram(z: Tensor) -> Tensor:
    r"""$z z^\top$ or $z^\top z$, the smaller one, in float64; zero if z is not finite.

    Float64, since it squares: float32 would leave sqrt(1e-7) in each singular value.
    """
    z = in_float64(z)
    z = z.where(z.isfinite().all(), 0.0)  # eigenvalues of NaN would raise; those of 0 give 0 / 0
    return z @ z.T if len(z) <= z.shape[1] else z.T @ z


def rank_of_gram(square: Tensor) -> Tensor:
    """RankMe from z's `gram`, best on the host: on a GPU, eigenvalues take longer than a step."""
    with one_thread():
        sigma = torch.linalg.eigvalsh(square).clamp_min(0).sqrt()
    return torch.special.entr(sigma / sigma.sum()).sum().exp()
