"""Where a run stands, on disk: whole or not at all, and loaded without running any code."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from normscope._checks import invalid
from normscope._files import whole_file
from normscope.methods import Method


def save(
    path: Path, method: Method, optimizer: torch.optim.Optimizer, progress: dict[str, Any]
) -> None:
    """Write a checkpoint.

    Args:
        path: the file.
        method: the network, with gradients that an epoch's end may have left over.
        optimizer: its optimizer.
        progress: plain values and tensors of the loop.
    """
    gradients = {
        name: p.grad for name, p in method.named_parameters() if p.grad is not None
    }  # there are none unless gradients are summed over an epoch's end
    state = {
        "method": method.state_dict(),
        "optimizer": optimizer.state_dict(),
        "gradients": gradients,
        "progress": progress,
    }
    with whole_file(path) as partial:
        torch.save(state, partial)


def load(path: Path) -> dict[str, Any]:
    """The checkpoint's contents, on the CPU."""
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, pickle.UnpicklingError, EOFError, KeyError, ValueError) as error:
        got = f"{path.name}: {str(error).splitlines()[0]}"
        raise invalid("checkpoint", "one that normscope wrote", got, "Start anew.") from None


def restore_(
    state: dict[str, Any], method: Method, optimizer: torch.optim.Optimizer
) -> dict[str, Any]:
    """Bring network and optimizer to where they were; the loop's own values."""
    method.load_state_dict(state["method"])
    optimizer.load_state_dict(state["optimizer"])
    gradients: dict[str, Tensor] = state["gradients"]
    for name, p in method.named_parameters():
        p.grad = gradients[name].to(p.device) if name in gradients else None
    return state["progress"]
