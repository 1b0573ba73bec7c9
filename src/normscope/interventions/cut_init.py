"""Cut-initialisation: divide a fresh network's weights by a constant, once."""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import nn

from normscope._checks import check_number
from normscope.interventions.scope import Scope, selected_parameters

# A buffer, so that the record travels with the weights: into every state_dict, copy and device.
RECORD = "cut_init_c"
# An attribute of every part of a module that was cut; the parts hold no buffer of their own.
_MEMBER = "_part_of_a_cut_module"

AnyModule = TypeVar("AnyModule", bound=nn.Module)


@torch.no_grad()
def cut_init_(module: AnyModule, c: float = 3.0, scope: Scope = "all") -> AnyModule:
    r"""Divide the parameters of a freshly initialised module by `c`, in place.

    Small weights give small embeddings, small embeddings large gradients: the network starts
    where the cosine similarity learns fast, and weight decay keeps it there.

    Args:
        module: any nn.Module, on any device, before training.
        c: the divisor; the paper takes 3 for SimCLR and 9 for SimSiam.
        scope: what to cut: `"all"` parameters (the paper's listing), `"weights"` (no biases,
            no layers named ...Norm...), `"last"` (the last linear layer in the order of
            registration, with its bias, so that its output shrinks by exactly c), or a set of
            parameter names.

    Returns:
        The same module.

    A tied parameter is cut once. A second cut is refused, of the module, of a part of it, or of a
    whole around it, and of their copies. The state_dict carries a record, the buffer
    `cut_init_c`: to resume, build, cut, then load. Loading a cut state into an uncut module fails
    because `cut_init_c` is unexpected (with `strict=False`, or when a part is loaded alone,
    PyTorch drops the record, and nothing can tell).

    A cut raises the effective learning rate. Where a batch norm follows every layer but those
    before the loss, SGD after a cut of everything by c is SGD at c squared times the learning rate
    (and as much weight decay a step), but for linear layers' biases and the batch norms' epsilon:
    a rate that was right may be too large.

    Paper: Listing "cut_init", Section 6.

    >>> layer = nn.Linear(2, 2, bias=False)
    >>> before = layer.weight.norm()
    >>> print(f"{cut_init_(layer, c=4.0).weight.norm() / before:.2f}")
    0.25
    """
    c = check_number("c", c, "The paper takes 3 for SimCLR and 9 for SimSiam.")
    parameters = selected_parameters(module, scope)
    refuse_second_cut(module)
    # The record first: whatever can fail does so before a weight is changed.
    network = _unwrapped(module)
    device = next(iter(parameters.values())).device
    network.register_buffer(RECORD, torch.tensor(c, device=device))
    for part in network.modules():
        setattr(part, _MEMBER, True)
    for p in parameters.values():
        p.div_(c)
    return module


def _unwrapped(module: nn.Module) -> nn.Module:
    """The network itself, whose state_dict people save, inside what wraps it."""
    while True:
        if isinstance(module, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
            module = module.module
        elif isinstance(compiled := getattr(module, "_orig_mod", None), nn.Module):
            module = compiled
        else:
            return module


def refuse_second_cut(module: nn.Module) -> None:
    """Raise if the module, a part of it, or a whole that it is part of has been cut."""
    for name, part in module.named_modules():
        if hasattr(part, _MEMBER):
            where = f"its part {name!r}" if name else "it"
            raise RuntimeError(
                f"module must be fresh, but {where} has been cut already. "
                "To resume, build the network, cut it, then load its checkpoint."
            )
