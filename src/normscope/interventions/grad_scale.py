"""GradScale: the identity, whose backward pass multiplies each gradient by a power of the norm."""

from __future__ import annotations

import torch
import torch.fx
from torch import Tensor, nn

from normscope._checks import NormOf, check_floating, check_norm_of, check_number
from normscope._sphere import norm_factor, safe_norm

_ADVICE = "Power 1 cancels the norm from a cosine loss's gradient, 0 changes nothing."


class _GradScale(torch.autograd.Function):
    """Reverse mode only: a scaled gradient is not the derivative of anything (`theory`)."""

    generate_vmap_rule = True

    @staticmethod
    def forward(z: Tensor, power: float, of: NormOf) -> Tensor:  # noqa: ARG004
        return z.clone()  # a view would forbid in-place layers after it

    @staticmethod
    def setup_context(ctx, inputs: tuple[Tensor, float, NormOf], output: Tensor) -> None:  # noqa: ARG004
        z, ctx.power, ctx.of = inputs
        ctx.save_for_backward(z)

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor, None, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        (z,) = ctx.saved_tensors
        factor = norm_factor(safe_norm(z), ctx.power, ctx.of)
        return (grad * factor).to(grad.dtype), None, None


def grad_scale(z: Tensor, power: float = 1.0, *, of: NormOf = "each") -> Tensor:
    r"""Return `z`, and multiply its gradient by $\|z\|^p$ row by row in the backward pass.

    A cosine-based loss sends back a gradient proportional to $1/\|z\|$. Power 1 cancels that
    factor, so that large embeddings learn as fast as small ones.

    Args:
        z: embeddings, (..., d), as the network gives them; put this between network and loss.
        power: $p$. At 0 the very same tensor is returned.
        of: whose norm. `"each"` (the paper's) is the row's own; it combines the effects of the
            other two. `"mean"`, the mean norm of all rows, scales their gradients alike.
            `"share"`, the row's norm over the mean, shifts weight to large embeddings, and the
            learning rate can stay. Rows are those of one call: a micro-batch, under DDP one
            process's part, under vmap a single row.

    The cancelled factor is also a brake. After $L$ layers without normalisation, a power above
    $2 / L$ lets norms grow to infinity in a finite time, proportional to one over the squared
    learning rate (`simulation.heads`). SimCLR's projector and the batch norms before it count as
    about three layers: at power 1, keep the learning rate low and watch the norm.

    Zero rows get a zero gradient if the incoming one is finite. Works under autocast,
    `torch.compile`, DDP, the reverse mode of `torch.func`, and `torch.fx`, to which it is one
    call. TorchScript cannot hold its backward pass.

    Paper: Listing "grad_scaling", Section 6.

    >>> z = torch.tensor([[3.0, 4.0]], requires_grad=True)
    >>> grad_scale(z, power=1.0).sum().backward()
    >>> z.grad
    tensor([[5., 5.]])
    """
    check_floating("z", z, "(..., d)")
    power = check_number("power", power, _ADVICE, positive=False)
    check_norm_of("of", of)
    return z if power == 0 else _GradScale.apply(z, power, of)  # pyright: ignore[reportReturnType]


torch.fx.wrap("grad_scale")  # traced as one call: its checks look at values


class GradScale(nn.Module):
    r"""`grad_scale` as a layer, to append to a network.

    With power 1 the paper divides the learning rate by 6 and warms up for 100 epochs.

    Args:
        power: $p$; 0 is the default training, 1 cancels the embedding norm from the gradient.
        of: whose norm, `"each"`, `"mean"` or `"share"`.

    >>> nn.Sequential(nn.Linear(8, 2), GradScale(power=1.0))[1]
    GradScale(power=1.0, of='each')
    """

    def __init__(self, power: float = 1.0, *, of: NormOf = "each") -> None:
        super().__init__()
        check_norm_of("of", of)
        self.of: NormOf = of
        self.power = check_number("power", power, _ADVICE, positive=False)

    def forward(self, z: Tensor) -> Tensor:
        """The same values, (..., d)."""
        return grad_scale(z, self.power, of=self.of)

    def __prepare_scriptable__(self) -> nn.Module:
        """Refuse `torch.jit.script`, which would stop inside autograd's machinery."""
        raise RuntimeError(
            "GradScale must be left out of TorchScript, which cannot hold its backward pass. "
            "Its forward is the identity: to script a trained network, put nn.Identity() there."
        )

    def extra_repr(self) -> str:
        """The settings, for `print(module)`."""
        return f"power={self.power}, of={self.of!r}"
