"""Which parameters an intervention acts on; shared memory counts once, under one name."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from difflib import get_close_matches
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter

from normscope._checks import invalid

Scope = Literal["all", "weights", "last"] | Collection[str]


def selected_parameters(module: nn.Module, scope: Scope) -> dict[str, nn.Parameter]:
    """The floating-point parameters in scope, by name; parameters that share memory come once.

    Refuses meta and lazy parameters, which have no values yet, and an empty selection.
    """
    if not isinstance(module, nn.Module):
        raise invalid("module", "an nn.Module", module, "Pass the network itself.")
    named = dict(_names_in_scope(module, scope))
    for name, p in named.items():
        if isinstance(p, UninitializedParameter) or p.is_meta:
            raise invalid(
                "module",
                "initialised",
                f"{name} without values",
                "Run to_empty() and its initialisation, or one batch through lazy layers, first.",
            )
    named = {name: p for name, p in named.items() if p.is_floating_point()}
    if not named:
        raise invalid("module", "a module with parameters in scope", module, f"Scope: {scope!r}.")
    return _each_memory_once(named)


def _names_in_scope(module: nn.Module, scope: Scope) -> Iterator[tuple[str, nn.Parameter]]:
    every = dict(module.named_parameters(remove_duplicate=False))
    if isinstance(scope, str):
        if scope == "all":
            yield from every.items()
        elif scope == "weights":
            yield from ((n, p) for n, p in every.items() if _is_weight(module, n))
        elif scope == "last":
            yield from _last_linear(module)
        else:
            raise invalid(
                "scope",
                "'all', 'weights', 'last' or a set of parameter names",
                scope,
                f"For one parameter, pass {{{scope!r}}}.",
            )
        return
    if not isinstance(scope, Iterable):
        raise invalid("scope", "'all', 'weights', 'last' or a set of names", scope, "See help.")
    for name in scope:
        if name not in every:
            near = get_close_matches(str(name), every, n=3) or list(every)[:3]
            raise invalid("scope", "names of the module's parameters", name, f"Like: {near}.")
        yield name, every[name]


def is_normalisation(layer: nn.Module) -> bool:
    """Whether its class name says so: BatchNorm2d, MyRMSNorm, BatchNormAct2d, no NormalisedHead."""
    return re.search(r"Norm(?![a-z])", type(layer).__name__) is not None


def _is_weight(module: nn.Module, name: str) -> bool:
    """Whether it is neither a bias nor part of a normalisation layer."""
    owner, _, own_name = name.rpartition(".")
    is_bias = "bias" in own_name or "bias" in owner.split(".")  # the latter if parametrised
    return not is_bias and not is_normalisation(module.get_submodule(owner))


def _last_linear(module: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    linear = [name for name, m in module.named_modules() if isinstance(m, nn.Linear)]
    if not linear:
        raise invalid("scope", "'all', 'weights' or a set", "last", "There is no nn.Linear here.")
    prefix = f"{linear[-1]}." if linear[-1] else ""
    for name, p in module.get_submodule(linear[-1]).named_parameters():
        yield prefix + name, p


def _each_memory_once(named: dict[str, nn.Parameter]) -> dict[str, nn.Parameter]:
    """Tied parameters under their first name, even where each has an object of its own.

    Two views of one storage are tied if they span the same bytes with as many elements (a
    transpose does). Views that only overlap are refused: each scaling would affect the other.
    """
    once: dict[str, nn.Parameter] = {}
    spans: dict[_Span, str] = {}
    for name, p in named.items():
        span = _memory_span(p)
        if span in spans:
            continue
        clash = next((other for other in spans if span.overlaps(other)), None)
        if clash or (p.numel() > 1 and 0 in p.stride()):
            pair = f"{name} and {spans[clash]}" if clash else f"{name}, an expanded tensor"
            raise invalid("module", "free of partly shared parameters", pair, "Untie them.")
        once[name] = p
        spans[span] = name
    return once


class _Span(NamedTuple):
    device: torch.device
    start: int
    stop: int
    elements: int

    def overlaps(self, other: _Span) -> bool:
        """Whether some address lies in both."""
        return self.device == other.device and self.start < other.stop and other.start < self.stop


def _memory_span(p: Tensor) -> _Span:
    """The addresses from the first element's to past the last one's."""
    last = sum((size - 1) * stride for size, stride in zip(p.shape, p.stride(), strict=True))
    spanned = (last + 1) * p.element_size() if p.numel() else 0
    return _Span(p.device, p.data_ptr(), p.data_ptr() + spanned, p.numel())
