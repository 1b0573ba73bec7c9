"""How two specs differ, and what that means for a run that should go on."""

from __future__ import annotations

import json
from typing import Any

from normscope.engine.spec import RunSpec

_LENGTH = {"epochs", "warmup_epochs", "horizon_epochs"}


def differences(old: RunSpec, new: RunSpec) -> dict[str, tuple[Any, Any]]:
    """The fields in which two specs differ, with both values.

    >>> differences(RunSpec(epochs=25), RunSpec(epochs=50))
    {'epochs': (25, 50), 'warmup_epochs': (5.0, 10), 'horizon_epochs': (25, 50)}
    """
    values, others = old.to_dict(), new.to_dict()
    return {name: (v, others[name]) for name, v in values.items() if v != others[name]}


def described(found: dict[str, tuple[Any, Any]]) -> str:
    """Differences as text.

    >>> described({"epochs": (25, 50), "options": ({}, {"dimension": 8})})
    'epochs 25 (now 50), options {} (now {"dimension": 8})'
    """
    shown = {name: [json.dumps(value) for value in pair] for name, pair in found.items()}
    return ", ".join(f"{name} {old} (now {new})" for name, (old, new) in shown.items())


def is_length(found: dict[str, tuple[Any, Any]]) -> bool:
    """Whether the specs differ in how long they train, and in what follows from that, alone."""
    return "epochs" in found and set(found) <= _LENGTH
