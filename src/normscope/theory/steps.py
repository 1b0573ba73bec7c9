r"""What one gradient step on the cosine similarity does to a pair of embeddings.

Throughout, $\phi$ is the angle of the pair, $\rho$ the norm of both, $\gamma$ the step size and
$g = \gamma / \rho^2$. Numbers and tensors broadcast against each other; numbers alone give
float64.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from normscope._checks import invalid

Number = float | Tensor


def _broadcast(*values: Number) -> tuple[list[Tensor], torch.dtype]:
    """The values as tensors of one device and one working dtype, and the dtype to answer in."""
    given = [v for v in values if isinstance(v, Tensor)]
    dtype, device = torch.float64, None
    if given:
        device = given[0].device
        dtype = given[0].dtype
        for v in given[1:]:
            dtype = torch.promote_types(dtype, v.dtype)
        if not dtype.is_floating_point:
            dtype = torch.get_default_dtype()
    working = torch.promote_types(dtype, torch.float32)
    tensors = [torch.as_tensor(v, dtype=working, device=device) for v in values]
    return list(torch.broadcast_tensors(*tensors)), dtype


def norm_after_step(norm: Number, grad_norm: Number, gamma: Number) -> Tensor:
    r"""$\|z'\| = \sqrt{\|z\|^2 + \gamma^2 \|\nabla\|^2}$, the norm after one step.

    Holds for every loss whose gradient is orthogonal to the embedding: the cosine similarity,
    InfoNCE, the triplet loss on the sphere. Weight decay is another matter.

    Paper: Corollary "embeddings_grow".

    >>> norm_after_step(3.0, 2.0, gamma=2.0)
    tensor(5., dtype=torch.float64)
    """
    (norm, grad_norm, gamma), dtype = _broadcast(norm, grad_norm, gamma)
    return torch.hypot(norm, gamma * grad_norm).to(dtype)


def step_gain(phi: Number, rho: Number, gamma: Number) -> Tensor:
    r"""The exact gain in cosine when both embeddings of a pair take one step.

    $\Delta = \frac{2 g \sin^2\phi \, (1 - g \cos\phi)}{1 + g^2 \sin^2\phi}$

    Each side turns by $\arctan(g \sin\phi)$ towards the other. Negative when they pass each
    other and land further apart.

    Paper: the quantity that Theorem "convergence_rate" bounds.

    >>> step_gain(torch.tensor([1.0, 2.0]), rho=2.0, gamma=1.0)
    tensor([0.2932, 0.4340])
    """
    (phi, rho, gamma), dtype = _broadcast(phi, rho, gamma)
    g = gamma / rho / rho
    sine, tangent = phi.sin(), g * phi.sin()
    secant = torch.hypot(torch.ones_like(tangent), tangent)
    return (2 * sine * (tangent / secant) * ((1 - g * phi.cos()) / secant)).to(dtype)


def step_gain_bound(
    phi: Number, rho: Number, gamma: Number, *, kind: Literal["valid", "paper"] = "valid"
) -> Tensor:
    r"""An upper bound on `step_gain`.

    - `"paper"`: $2 g \sin^2\phi$, as printed. **False for obtuse angles**; see
      `printed_bound_fails`.
    - `"valid"`: $2 g \sin^2\phi \, (1 + g \max(-\cos\phi, 0))$, which always holds and equals
      the printed one for $\phi \le \pi/2$.

    Paper: Theorem "convergence_rate"; its proof drops $-\gamma\cos\phi/\rho^2$ as if it could
    not be positive.

    >>> phi = torch.tensor([0.75 * torch.pi], dtype=torch.float64)
    >>> for kind in ("paper", "valid"):
    ...     print(f"{step_gain(phi, 1.0, 1.0).item():.3f} <=", end=" ")
    ...     print(f"{step_gain_bound(phi, 1.0, 1.0, kind=kind).item():.3f}")
    1.138 <= 1.000
    1.138 <= 1.707
    """
    if kind not in ("valid", "paper"):
        raise invalid("kind", "'valid' or 'paper'", kind, "Only 'valid' always holds.")
    (phi, rho, gamma), dtype = _broadcast(phi, rho, gamma)
    g = gamma / rho / rho
    bound = 2 * g * phi.sin().square()
    if kind == "valid":
        bound = bound * (1 + g * (-phi.cos()).clamp_min(0))
    return bound.to(dtype)


def printed_bound_fails(phi: Number, rho: Number, gamma: Number) -> Tensor:
    r"""Where the printed theorem is false: $\cos\phi < 0$ and $g \sin^2\phi \le -\cos\phi$.

    There the gain is at least $2 g \sin^2\phi$, although the paper says it is below. The region
    holds every obtuse angle once the step is small enough.

    >>> printed_bound_fails(torch.tensor([0.5, 2.5]), rho=1.0, gamma=1.0)
    tensor([False,  True])
    """
    (phi, rho, gamma), _ = _broadcast(phi, rho, gamma)
    g = gamma / rho / rho
    return (phi.cos() < 0) & (g * phi.sin().square() <= -phi.cos())
