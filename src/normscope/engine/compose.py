"""From a spec to a network, in one order: construct, cut, append GradScale, load."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from normscope.engine.spec import RunSpec
from normscope.interventions import GradScale, cut_init_, scale_invariant_parameters
from normscope.methods import METHODS, Method
from normscope.nets import backbone


def build(spec: RunSpec, *, side: int) -> Method:
    """The network of a spec with its interventions, fresh, on the CPU; always the same one.

    Args:
        spec: what to build.
        side: of the images that it will see.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(spec.seed)
        net = backbone(spec.net, side=side)
        method = METHODS[spec.method](net, **spec.options)
    if spec.cut != 1:
        scope = invariant_names(method, side) if spec.cut_scope == "invariant" else spec.cut_scope
        cut_init_(method, spec.cut, scope)
    if spec.grad_scale:
        method.embedder.append(GradScale(spec.grad_scale))
    return method


def invariant_names(method: Method, side: int) -> set[str]:
    """The parameters of a method whose scale its embeddings do not feel."""
    probe = _Embeddings(method)
    least = 8 if side <= 32 else 64  # weights are the same at any size, and this is quick
    x = torch.randn(8, 3, min(side, least), min(side, least))
    names = scale_invariant_parameters(probe, x)
    return {name.removeprefix("method.") for name in names}


class _Embeddings(nn.Module):
    """A method as a map from images to the embeddings that its loss sees."""

    def __init__(self, method: Method) -> None:
        super().__init__()
        self.method = method

    def forward(self, x: Tensor) -> Tensor:
        return list(self.method.layers(x).values())[-1]
