r"""GradScale is no change of loss: its field has no potential, shown by integrating along paths."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from normscope._sphere import safe_norm
from normscope.theory.gradients import cosine_grad


def grad_scale_field(z: Tensor, t: Tensor, *, power: float) -> Tensor:
    r"""$\|z\|^p \, \nabla_z \cos(z, t)$, the direction a GradScale step follows, (..., d).

    >>> grad_scale_field(torch.tensor([2.0, 0.0]), torch.tensor([0.0, 1.0]), power=1.0)
    tensor([0., 1.])
    """
    norm = safe_norm(z)
    return -cosine_grad(z, t) * torch.where(norm != 0, norm**power, 0.0).to(z.dtype)


def path_integral(
    field: Callable[[Tensor], Tensor], path: Callable[[Tensor], Tensor], *, nodes: int = 64
) -> Tensor:
    r"""$\int_0^1 F(z(s)) \cdot z'(s)\, ds$ by Gauss-Legendre quadrature, in float64.

    Args:
        field: maps points (m, d) to vectors (m, d).
        path: maps positions (m,) in [0, 1] to points (m, d); differentiable.
        nodes: m; 64 give machine precision on a half circle.

    >>> path_integral(lambda z: z, lambda s: s[:, None] * torch.tensor([3.0, 4.0]))
    tensor(12.5000, dtype=torch.float64)
    """
    x, w = np.polynomial.legendre.leggauss(nodes)
    s, weights = torch.from_numpy((x + 1) / 2).requires_grad_(), torch.from_numpy(w / 2)
    with torch.enable_grad():
        z = path(s)
        velocity = torch.stack(
            [torch.autograd.grad(x.sum(), s, retain_graph=True)[0] for x in z.unbind(-1)], -1
        )
    return (weights * (field(z.detach()) * velocity).sum(-1)).sum()


class PathWork(NamedTuple):
    """The work of one field along two paths that share both ends."""

    outside: Tensor
    inside: Tensor


def grad_scale_work(power: float) -> PathWork:
    r"""Work of the GradScale field on the paper's two paths from $t$ to $-2t$.

    Outside: out to $2t$, then round the circle of radius 2. Inside: round the circle of radius
    1, then out. A field with a potential does equal work on both; here it is $-2^{p+1}$ against
    $-2$, equal for $p = 0$ alone. (The paper prints both without the minus: going from $t$ to
    $-t$ *lowers* the cosine by 2. Its conclusion stands.)

    Paper: Proposition "no_potential".

    >>> work = grad_scale_work(power=1.0)
    >>> print(f"outside {work.outside.item():.3f}, inside {work.inside.item():.3f}")
    outside -4.000, inside -2.000
    """
    t = torch.tensor([0.0, 1.0], dtype=torch.float64)

    def work(path: Callable[[Tensor], Tensor]) -> Tensor:
        return path_integral(lambda z: grad_scale_field(z, t, power=power), path)

    def half_circle(radius: float) -> Tensor:
        return work(lambda s: radius * torch.stack([(torch.pi * s).sin(), (torch.pi * s).cos()], 1))

    def outward(sign: float) -> Tensor:
        return work(lambda s: sign * (1 + s)[:, None] * t)

    return PathWork(
        outside=outward(1.0) + half_circle(2.0), inside=half_circle(1.0) + outward(-1.0)
    )
