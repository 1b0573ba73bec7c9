"""From a spec to a network, in one order: construct, cut, append GradScale, load."""

from __future__ import annotations

import threading

import torch
from torch import Tensor, nn

from normscope._threads import one_thread
from normscope.engine.spec import CutScope, RunSpec
from normscope.interventions import GradScale, cut_init_, scale_invariant_parameters
from normscope.methods import METHODS, Method, width_of
from normscope.nets import ResNet, backbone

_DRAWING = threading.Lock()  # all threads share torch's random state


def constructed(spec: RunSpec, *, side: int) -> Method:
    """A spec's network without interventions, freshly initialised on the CPU; deterministic.

    Args:
        spec: what to build.
        side: pixels of an image's side.
    """
    with _DRAWING, torch.random.fork_rng(devices=[]):
        torch.manual_seed(spec.seed)
        net = backbone(spec.net, side=side)
        return METHODS[spec.method](net, **spec.options)


def build(spec: RunSpec, *, side: int) -> Method:
    """The same with its interventions."""
    method = constructed(spec, side=side)
    if spec.cut != 1:
        cut_init_(method, spec.cut, _cut_scope(method, spec.cut_scope, side))
        method.follow(0.0)  # a momentum copy starts as what it copies
    if spec.grad_scale:
        method.embedder.append(GradScale(spec.grad_scale, of=spec.grad_scale_of))
    return method


def _cut_scope(method: Method, scope: CutScope, side: int) -> CutScope | set[str]:
    """A spec's scope as `cut_init_` takes it."""
    if scope == "invariant":
        return invariant_names(method, side)
    if scope == "rest":
        return {n for n, _ in method.named_parameters()} - invariant_names(method, side)
    if scope == "last":  # of the layers before the loss, wherever the method registers them
        prefix = next(name for name, part in method.named_modules() if part is method.embedder)
        last = [n for n, part in method.embedder.named_modules() if isinstance(part, nn.Linear)][-1]
        layer = method.embedder.get_submodule(last)
        return {f"{prefix}.{last}.{name}" for name, _ in layer.named_parameters()}
    return scope


def invariant_names(method: Method, side: int) -> set[str]:
    """Names of a method's parameters whose scale does not change its embeddings.

    A transformer's are left out: residual connections make none of them scale-invariant. The
    search takes one forward pass per parameter, so its result is cached for networks built alike.
    """
    shapes = tuple((name, *p.shape) for name, p in method.named_parameters())
    alike = (type(method), type(method.backbone), shapes)
    if alike not in _invariant:
        with one_thread():
            _invariant[alike] = _found_invariant(method, side)
    return set(_invariant[alike])


_invariant: dict[object, set[str]] = {}


def _found_invariant(method: Method, side: int) -> set[str]:
    generator = torch.Generator().manual_seed(0)
    if isinstance(method.backbone, ResNet):  # any size will do, and a small one is quick
        small = min(side, 8 if side <= 32 else 32)
        x = torch.randn(4, 3, small, small, generator=generator)
        names = scale_invariant_parameters(_Embeddings(method), x)
    else:
        h = torch.randn(8, width_of(method.backbone), generator=generator)
        names = scale_invariant_parameters(_Heads(method), h)
    return {name.removeprefix("method.") for name in names}


class _Embeddings(nn.Module):
    """A method as a map from images to the embeddings that its loss sees."""

    def __init__(self, method: Method) -> None:
        super().__init__()
        self.method = method

    def forward(self, x: Tensor) -> Tensor:
        return list(self.method.layers(x).values())[-1]


class _Heads(_Embeddings):
    """The same from the backbone's features on."""

    def forward(self, x: Tensor) -> Tensor:
        return list(self.method.heads(x).values())[-1]
