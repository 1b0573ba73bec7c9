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

    Under SGD, on weights that a normalisation follows, a cut by c acts as a learning rate $c^2$
    times as high. If batch norms follow all layers except those before the loss, a cut of all
    weights is exactly that (with as much weight decay per step), except for linear biases and the
    norms' epsilon. A learning rate that was right may then be too high. A cut of the last layer
    alone leaves all other gradients as they were.

    Args:
        module: any nn.Module, on any device, before training.
        c: the divisor; the paper takes 3 for SimCLR and 9 for SimSiam.
        scope: what to cut: `"all"` parameters (the paper's listing), `"weights"` (no biases,
            no layers named ...Norm...), `"last"` (the last linear layer in the order of
            registration, with its bias, so that its output shrinks by exactly c), or a set of
            parameter names.

    Returns:
        The same module.

    A tied parameter is cut once. A second cut of the module, a part of it, a whole around it, or a
    copy of these raises. The state_dict carries a record, the buffer `cut_init_c`: to resume,
    build, cut, then load. Loading a cut state into an uncut module fails because `cut_init_c` is
    unexpected. With `strict=False`, or for a part loaded alone, PyTorch drops the record silently.

    Paper: Listing "cut_init", Section 6.

    >>> layer = nn.Linear(2, 2, bias=False)
    >>> before = layer.weight.norm()
    >>> print(f"{cut_init_(layer, c=4.0).weight.norm() / before:.2f}")
    0.25
    """
    c = check_number("c", c, "The paper takes 3 for SimCLR and 9 for SimSiam.")
    parameters = selected_parameters(module, scope)
    refuse_second_cut(module)
    # The record first, so that anything that fails does so before a weight is changed.
    network = _unwrapped(module)
    device = next(iter(parameters.values())).device
    network.register_buffer(RECORD, torch.tensor(c, device=device))
    for part in network.modules():
        setattr(part, _MEMBER, True)
    for p in parameters.values():
        p.div_(c)
    return module


def _unwrapped(module: nn.Module) -> nn.Module:
    """The network itself, whose state_dict people save, without its wrappers."""
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
