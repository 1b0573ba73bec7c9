"""GradScale: the identity, whose backward pass multiplies each gradient by a power of the norm."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from normscope._checks import check_floating, check_number
from normscope._sphere import safe_norm

_ADVICE = "Power 1 cancels the norm from a cosine loss's gradient, 0 changes nothing."


class _GradScale(torch.autograd.Function):
    """Reverse mode only: a scaled gradient is not the derivative of anything (`theory`)."""

    generate_vmap_rule = True

    @staticmethod
    def forward(z: Tensor, power: float) -> Tensor:  # noqa: ARG004
        return z.clone()  # a view would forbid in-place layers after it

    @staticmethod
    def setup_context(ctx, inputs: tuple[Tensor, float], output: Tensor) -> None:  # noqa: ARG004
        z, ctx.power = inputs
        ctx.save_for_backward(z)

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        (z,) = ctx.saved_tensors
        return (grad * _scale(z, ctx.power)).to(grad.dtype), None


def _scale(z: Tensor, power: float) -> Tensor:
    r"""$\|z\|^p$ per row, (..., 1), in float32 or wider; zero for a zero row whatever the power."""
    norm = safe_norm(z)
    nonzero = norm != 0
    return torch.where(nonzero, norm.where(nonzero, 1.0) ** power, 0.0)


def grad_scale(z: Tensor, power: float = 1.0) -> Tensor:
    r"""`z` itself, whose gradient will be multiplied by $\|z\|^p$, row by row.

    A cosine-based loss sends back a gradient proportional to $1/\|z\|$. Power 1 cancels that
    factor, so that large embeddings learn as fast as small ones.

    Args:
        z: embeddings, (..., d), as the network gives them; put this between network and loss.
        power: $p$. At 0 the very same tensor is returned.

    Zero rows get a zero gradient (of a finite one). Works under autocast, `torch.compile`, DDP,
    and the reverse mode of `torch.func`.

    Paper: Listing "grad_scaling", Section 6.

    >>> z = torch.tensor([[3.0, 4.0]], requires_grad=True)
    >>> grad_scale(z, power=1.0).sum().backward()
    >>> z.grad
    tensor([[5., 5.]])
    """
    check_floating("z", z, "(..., d)")
    power = check_number("power", power, _ADVICE, positive=False)
    return z if power == 0 else _GradScale.apply(z, power)  # pyright: ignore[reportReturnType]


class GradScale(nn.Module):
    r"""`grad_scale` as a layer, to append to a network.

    With power 1 the paper divides the learning rate by 6 and warms up for 100 epochs.

    Args:
        power: $p$; 0 is the default training, 1 cancels the embedding norm from the gradient.

    >>> nn.Sequential(nn.Linear(8, 2), GradScale(power=1.0))[1]
    GradScale(power=1.0)
    """

    def __init__(self, power: float = 1.0) -> None:
        super().__init__()
        self.power = check_number("power", power, _ADVICE, positive=False)

    def forward(self, z: Tensor) -> Tensor:
        """The same values, (..., d)."""
        return grad_scale(z, self.power)

    def extra_repr(self) -> str:
        """The power, for `print(module)`."""
        return f"power={self.power}"
