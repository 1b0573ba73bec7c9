"""Checkpoints: written atomically, and loaded without running any code."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import torch
from torch import Tensor

from normscope._checks import invalid
from normscope._files import whole_file
from normscope.engine.spec import RunSpec
from normscope.methods import Method


def save(
    path: Path,
    spec: RunSpec,
    method: Method,
    optimizer: torch.optim.Optimizer,
    progress: dict[str, Any],
    *,
    gradients: bool,
    average: Method | None = None,
) -> None:
    """Write a checkpoint.

    Args:
        path: the file.
        spec: the run's spec; no other run can load the checkpoint.
        method: the network.
        optimizer: its optimizer.
        progress: plain values and tensors of the loop.
        gradients: whether to save gradients that the optimizer has not used yet, as when a sum
            crosses an epoch's end.
        average: the network of averaged weights, if the run has one.
    """
    waiting = {
        name: p.grad for name, p in method.named_parameters() if gradients and p.grad is not None
    }
    state = {
        "spec_hash": spec.hash,
        "method": method.state_dict(),
        "optimizer": optimizer.state_dict(),
        "gradients": waiting,
        "average": average.state_dict() if average else {},
        "progress": progress,
    }
    with whole_file(path) as partial, partial.open("wb") as f:
        try:
            torch.save(state, f)
        except RuntimeError as error:
            cause = error.__context__  # torch hides a full disk behind its own error
            if isinstance(cause, OSError):
                raise OSError(cause.errno, cause.strerror, str(path)) from None
            raise


def load(path: Path, spec: RunSpec, *, shorter: Sequence[str] = ()) -> dict[str, Any]:
    """Load this run's checkpoint onto the CPU; another run's or a damaged one raises.

    Args:
        path: the file.
        spec: the run's spec.
        shorter: hashes of the same run before it was extended.
    """
    try:
        with ZipFile(path) as parts:
            damaged = parts.testzip()  # torch does not check this
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # damaged files raise errors of any kind
        raise _foreign(path, f"one that does not load ({type(error).__name__})") from None
    if damaged is not None:
        raise _foreign(path, f"one with a damaged part, {damaged}")
    if not isinstance(state, dict) or not state.keys() >= _KEYS:
        raise _foreign(path, "something else")
    if state["spec_hash"] not in (spec.hash, *shorter):
        raise _foreign(path, "that of another run")
    return state


# a checkpoint by an earlier version has no average
_KEYS = {"spec_hash", "method", "optimizer", "gradients", "progress"}


def _foreign(path: Path, got: str) -> ValueError:
    return invalid(str(path), "this run's checkpoint", got, "Remove the folder and train again.")


def restore_(
    state: dict[str, Any], method: Method, optimizer: torch.optim.Optimizer
) -> dict[str, Any]:
    """Restore network and optimizer; return the loop's values."""
    load_weights_(state, method)
    optimizer.load_state_dict(state["optimizer"])
    gradients: dict[str, Tensor] = state["gradients"]
    for name, p in method.named_parameters():
        p.grad = gradients[name].to(p.device) if name in gradients else None
    return state["progress"]


def load_weights_(state: dict[str, Any], method: Method, part: str = "method") -> None:
    """Restore the network's weights, or with the part `"average"` their average."""
    try:
        method.load_state_dict(state[part])
    except (RuntimeError, TypeError, AttributeError, KeyError) as error:
        advice = "If it was edited, remove the folder and train again."
        got = " ".join(str(error).split())[:200]
        raise invalid("checkpoint", "of this run's network", got, advice) from None
