"""Modules within a SentenceTransformer, which is a sequence of them."""

from __future__ import annotations

from copy import copy

from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize
from torch import nn


def before_normalize(
    model: SentenceTransformer, name: str, module: nn.Module
) -> SentenceTransformer:
    """The model with a module before its first `Normalize`, or last if it has none.

    Its other modules are those of `model`, not copies.
    """
    children = list(model.named_children())
    at = [i for i, (_, child) in enumerate(children) if isinstance(child, Normalize)]
    children.insert(at[0] if at else len(children), (name, module))
    return with_modules(model, children)


def with_modules(
    model: SentenceTransformer, children: list[tuple[str, nn.Module]]
) -> SentenceTransformer:
    """The model with these modules instead of its own."""
    found = copy(model)
    found._modules = dict(children)
    return found
