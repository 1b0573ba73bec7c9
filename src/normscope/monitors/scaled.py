"""Which GradScale an embedding has passed, read from its autograd graph."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from torch import Tensor

from normscope._checks import NormOf

_SCALES = re.compile("GradScale")
# Nodes that move rows about and leave them as they are, except for their dtype.
_MOVES = re.compile(
    r"(Unsafe)?(View|Reshape|Cat|Stack|Split|Slice|Select|Index|IndexSelect|Unbind|Clone|ToCopy"
    r"|Transpose|T|Permute|Squeeze|Unsqueeze|Alias|AsStrided|UnsafeView)Backward\d*"
)
# Nodes that hide others: what torch.compile, checkpointing or a wrapper made.
_HIDES = re.compile("Compiled|Checkpoint|Generated|DDP|FSDP|AllGather|Pipeline")


def grad_scale_behind(z: Tensor) -> tuple[float, NormOf] | None:
    """Power and `of` of the GradScale whose output the rows of z are; None if there is none.

    >>> from normscope import GradScale
    >>> z = torch.ones(4, 3, requires_grad=True)
    >>> grad_scale_behind(GradScale(0.5)(z).chunk(2)[0]), grad_scale_behind(2 * z)
    ((0.5, 'each'), None)
    """
    for node in _upstream(z, through=_MOVES):
        if _SCALES.search(node.name()) and hasattr(node, "power"):
            return node.power, node.of
    return None


def passed_no_grad_scale(z: Tensor) -> bool:
    """Whether z has a graph that is known to hold no GradScale."""
    if z.grad_fn is None:
        return False
    names = [node.name() for node in _upstream(z, through=re.compile(""))]
    return not any(_SCALES.search(name) or _HIDES.search(name) for name in names)


def _upstream(z: Tensor, *, through: re.Pattern[str]) -> Iterator[Any]:
    """The graph's nodes from z's own backwards; past those alone whose name fits."""
    waiting: list[Any] = [z.grad_fn]
    seen: set[Any] = {None}
    while waiting:
        node = waiting.pop()
        if node in seen:
            continue
        seen.add(node)
        yield node
        if through.match(node.name()):
            waiting += [earlier for earlier, _ in node.next_functions]
