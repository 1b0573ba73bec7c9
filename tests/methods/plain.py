"""What the methods' reference tests share: a small network, two views, and how to compare."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

N = 6  # images


class Flat(nn.Sequential):
    """A backbone of one layer."""

    width = 5

    def __init__(self) -> None:
        super().__init__(nn.Flatten(), nn.Linear(3 * 8 * 8, self.width))


def views() -> Tensor:
    return torch.randn(2, N, 3, 8, 8, dtype=torch.float64)


def labels() -> Tensor:
    return torch.zeros(N, dtype=torch.long)


def online(net: nn.Module) -> dict[str, Tensor]:
    """The parameters that the loss is to reach."""
    return {n: p for n, p in net.named_parameters() if not n.startswith("momentum_")}


def assert_same_gradients(
    value: Tensor, expected: Tensor, parameters: Mapping[str, Tensor]
) -> None:
    """Two losses have one value, and one gradient, not zero, in every parameter."""
    torch.testing.assert_close(value, expected, rtol=1e-10, atol=1e-10)
    every = list(parameters.values())
    gradients = (torch.autograd.grad(loss, every) for loss in (value, expected))
    for name, got, reference in zip(parameters, *gradients, strict=True):
        assert reference.abs().max() > 0, name
        torch.testing.assert_close(got, reference, rtol=1e-8, atol=1e-10, msg=name)
