"""The one way this library puts embeddings on the sphere."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from normscope._precision import has_float64, widened


def safe_norm(z: Tensor) -> Tensor:
    r"""$\|z\|$ over the last dimension, (..., 1), in float32 or wider, of any size.

    Squares of entries beyond 1e19 overflow float32, and below 1e-23 vanish in it; so they are
    summed in float64, and where even that is too narrow, or a device has none, the largest entry
    is taken out first.

    >>> safe_norm(torch.tensor([[3e30, 4e30], [0.0, 0.0]]))
    tensor([[5.0000e+30],
            [0.0000e+00]])
    """
    return _Norm.apply(z)  # pyright: ignore[reportReturnType]


def norm_factor(norm: Tensor, power: float, of: str) -> Tensor:
    r"""What GradScale multiplies by: $\|z\|^p$; zero for a zero row with any power.

    Args:
        norm: of each row.
        power: $p$.
        of: `"each"` row's own norm, the `"mean"` norm of all rows, or each one's `"share"` of it.

    >>> norm_factor(torch.tensor([1.0, 3.0]), 1.0, "share")
    tensor([0.5000, 1.5000])
    """
    nonzero = norm != 0
    base = norm.where(nonzero, 1.0)
    if of != "each":
        mean = widened(norm).mean()  # a sum of float32 may be beyond it
        mean = mean.where(mean != 0, 1.0)
        base = mean.expand_as(norm) if of == "mean" else base / mean
    return torch.where(nonzero, base**power, 0.0).to(norm.dtype)


def unit(z: Tensor) -> tuple[Tensor, Tensor]:
    r"""$\hat z = z / \|z\|$ and $\|z\|$ over the last dimension, in float32 or wider.

    A zero row has no direction: its $\hat z$ is zero and its norm is given as infinity, so that
    dividing by it, in the forward pass or in the backward, gives zero and never NaN.

    Args:
        z: embeddings, (..., d).

    Returns:
        The directions, (..., d), and the norms, (..., 1).

    >>> unit(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
    (tensor([[0.6000, 0.8000],
            [0.0000, 0.0000]]), tensor([[5.],
            [inf]]))
    """
    return _Unit.apply(z)  # pyright: ignore[reportReturnType]


def _length(z: Tensor) -> Tensor:
    if z.dtype != torch.float64 and has_float64(z.device):
        length = torch.linalg.vector_norm(z, dim=-1, keepdim=True, dtype=torch.float64)
        return length.to(torch.float32)
    z = z.to(torch.promote_types(z.dtype, torch.float32))
    largest = z.abs().amax(-1, keepdim=True)
    largest = largest.where((largest > 0) & largest.isfinite(), 1.0)
    return largest * torch.linalg.vector_norm(z / largest, dim=-1, keepdim=True)


class _Norm(torch.autograd.Function):
    """The norm, whose gradient is the direction: autograd's own way takes twice the kernels.

    No forward mode: torch.compile would not take it.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(z: Tensor) -> Tensor:
        return _length(z)

    @staticmethod
    def setup_context(ctx, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs, output)

    @staticmethod
    def backward(ctx, grad: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        z, norm = ctx.saved_tensors
        # direction first: 1 / norm may be too large a number
        return (z / norm.masked_fill(norm == 0, torch.inf) * grad).to(z.dtype)


class _Unit(torch.autograd.Function):
    r"""Direction and norm: $\nabla_z = \frac{1}{\|z\|} g_\perp + g_{\|z\|} \hat z$."""

    generate_vmap_rule = True

    @staticmethod
    def forward(z: Tensor) -> tuple[Tensor, Tensor]:
        norm = _length(z)
        norm = norm.masked_fill_(norm == 0, torch.inf)
        return z / norm, norm

    @staticmethod
    def setup_context(ctx, inputs: tuple[Tensor], output: tuple[Tensor, Tensor]) -> None:
        ctx.save_for_backward(*output)
        ctx.dtype = inputs[0].dtype
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx, grad: Tensor | None, norm_grad: Tensor | None) -> Tensor | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        u, norm = ctx.saved_tensors
        parts = [] if grad is None else [orthogonal_part(grad, u) / norm]
        parts += [] if norm_grad is None else [norm_grad * u]
        return sum(parts[1:], parts[0]).to(ctx.dtype) if parts else None


@torch.no_grad()
def angles_between(before: Sequence[Tensor], after: Sequence[Tensor]) -> Tensor:
    r"""The angle between each pair of tensors, (k,), in radians; all entries are one vector.

    $2 \arctan(\|\hat a - \hat b\| / \|\hat a + \hat b\|)$, since the arc cosine loses angles below
    some 3e-4 in float32. A zero tensor has no direction: NaN.

    >>> angles_between([torch.tensor([2.0, 0.0])], [torch.tensor([3.0, 3.0])])
    tensor([0.7854])
    """
    pairs = []
    for a, b in zip(before, after, strict=True):
        wide = torch.promote_types(a.dtype, torch.float32)
        a_hat, b_hat = (x.to(wide) / torch.linalg.vector_norm(x, dtype=wide) for x in (a, b))
        pairs.append(torch.stack([(a_hat - b_hat).norm(), (a_hat + b_hat).norm()]))
    apart, along = torch.stack(pairs).unbind(1)
    return 2 * torch.atan2(apart, along)


def orthogonal_part(a: Tensor, b_hat: Tensor) -> Tensor:
    r"""$a_{\perp b}$: the component of $a$ orthogonal to the unit vector $\hat b$, (..., d).

    >>> orthogonal_part(torch.tensor([1.0, 1.0]), torch.tensor([0.0, 1.0]))
    tensor([1., 0.])
    """
    return a - (a * b_hat).sum(-1, keepdim=True) * b_hat
