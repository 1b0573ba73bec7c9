r"""How likely two random embeddings are to point almost the same way, or almost opposite ways.

The two are equally likely by symmetry, so one number answers for both:
$P[\cos \ge 1 - \varepsilon] = P[\cos \le -(1 - \varepsilon)]$.
"""

from __future__ import annotations

import torch
from torch import Tensor

from normscope._checks import invalid

# Far beyond need: the fraction takes about sqrt(d) terms, 700 of them at a million dimensions.
_MOST_TERMS = 20_000


def _dimension_and_distance(
    d: int | Tensor, eps: float | Tensor
) -> tuple[Tensor, Tensor, torch.dtype]:
    """Both in float64 on one device, and the dtype to answer in."""
    device = next((v.device for v in (d, eps) if isinstance(v, Tensor)), None)
    dtype = eps.dtype if isinstance(eps, Tensor) and eps.is_floating_point() else torch.float64
    dims = torch.as_tensor(d, dtype=torch.float64, device=device)
    distance = torch.as_tensor(eps, dtype=torch.float64, device=device)
    if not bool(((dims >= 1) & (dims == dims.floor())).all()):
        raise invalid("d", "a whole number of at least 1", d, "It is the embedding's dimension.")
    if not bool(((distance > 0) & (distance < 1)).all()):
        raise invalid("eps", "between 0 and 1, both excluded", eps, "The cosine is 1 - eps.")
    dims, distance = torch.broadcast_tensors(dims, distance)
    return dims, distance, dtype


def opposite_halves_bound(d: int | Tensor, eps: float | Tensor) -> Tensor:
    r"""$\frac{1}{2 d (1 - \varepsilon)^2}$, the paper's Chebyshev bound on the probability.

    It holds, and is loose: set it beside `opposite_halves_probability`.

    Paper: Proposition "unlikely_opp_halves".

    >>> print(f"{opposite_halves_bound(20, 0.1).item():.3f}")
    0.031
    """
    dims, distance, dtype = _dimension_and_distance(d, eps)
    return (1 / (2 * dims * (1 - distance).square())).to(dtype)


def opposite_halves_probability(d: int | Tensor, eps: float | Tensor) -> Tensor:
    r"""$P[\hat x_i^\top \hat x_j \ge 1 - \varepsilon]$ for independent normal $x_i, x_j$, exactly.

    $\frac12 I_{\varepsilon(2 - \varepsilon)}\!\left(\frac{d-1}{2}, \frac12\right)$, where $I$ is
    the regularised incomplete beta function: the squared cosine is Beta distributed.

    Args:
        d: dimension, a number or a tensor.
        eps: distance of the cosine from 1, between 0 and 1; broadcasts against d.

    >>> print(f"{opposite_halves_probability(20, 0.1).item():.2e}")
    1.40e-08
    """
    dims, distance, dtype = _dimension_and_distance(d, eps)
    sine2 = distance * (2 - distance)  # 1 - cos^2, with no digits lost at small eps
    cosine2 = (1 - distance).square()
    a, half = (dims - 1).clamp_min(0.5) / 2, torch.full_like(dims, 0.5)

    # The fraction converges fast below its mean only; above it, count the other tail.
    below = sine2 < (a + 1) / (a + 2.5)
    beta = _beta_tail(
        torch.where(below, a, half),
        torch.where(below, half, a),
        torch.where(below, sine2, cosine2),
        torch.where(below, cosine2, sine2),
    )
    probability = torch.where(below, beta, 1 - beta) / 2
    return probability.where(dims > 1, 0.5).to(dtype)  # in one dimension the cosine is +-1


def _beta_tail(a: Tensor, b: Tensor, x: Tensor, one_minus_x: Tensor) -> Tensor:
    """I_x(a, b) by its continued fraction (NIST DLMF 8.17.22), evaluated by Lentz's method."""
    log_front = a * x.log() + b * one_minus_x.log() - a.log()
    log_front = log_front + torch.lgamma(a + b) - torch.lgamma(a) - torch.lgamma(b)
    c = torch.ones_like(x)
    d = 1 / (1 - (a + b) * x / (a + 1))
    fraction = d
    for m in range(1, _MOST_TERMS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        change = torch.ones_like(x)
        for term in (even, odd):
            d = 1 / (1 + term * d)
            c = 1 + term / c
            change = change * (c * d)
            fraction = fraction * (c * d)
        if bool(((change - 1).abs() < 1e-15).all()):
            break
    return log_front.exp() * fraction
