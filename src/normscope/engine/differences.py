"""How two specs differ, and what that means for a run that should go on."""

from __future__ import annotations

import json
from typing import Any

from normscope.engine.spec import RunSpec
from normscope.methods import METHODS

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


def extends(old: RunSpec, new: RunSpec) -> bool:
    """Whether the second is the first, trained for more epochs of one schedule.

    The rate must be the same at every step of the first, and still above zero at its end; nothing
    else may depend on the run's length.

    >>> planned = {"horizon_epochs": 50, "warmup_epochs": 5}
    >>> extends(RunSpec(epochs=25, **planned), RunSpec(epochs=50, **planned))
    True
    >>> extends(RunSpec(epochs=25), RunSpec(epochs=50))
    False
    """
    return (
        set(differences(old, new)) == {"epochs"}
        and new.epochs > old.epochs
        and new.horizon_epochs > old.epochs
        and not (new.small_views or METHODS[new.method].SPANS_RUN)
    )


def how_to_extend(old: RunSpec, new: RunSpec) -> str:
    """What to do about a run of another length.

    >>> how_to_extend(RunSpec(epochs=25), RunSpec(epochs=50))[:62]
    'Its rate fell to zero over 25 epochs, which cannot be undone. '
    """
    if METHODS[new.method].SPANS_RUN or new.small_views:
        what = "views grow" if new.small_views else "momentum rises"
        return f"Its {what} over the whole run. Train {new.epochs} epochs from the start."
    if new.horizon_epochs <= old.epochs:
        why = f"Its rate is zero after {new.horizon_epochs:g} epochs."
    else:
        why = f"Its rate fell to zero over {old.horizon_epochs:g} epochs, which cannot be undone."
    return (
        f"{why} Train {new.epochs} epochs in another folder. To extend a run of {old.epochs} "
        f"epochs, start it with --horizon-epochs {new.epochs} and --warmup-epochs."
    )


def is_length(found: dict[str, tuple[Any, Any]]) -> bool:
    """Whether the specs differ in how long they train, and in what follows from that, alone."""
    return "epochs" in found and set(found) <= _LENGTH
