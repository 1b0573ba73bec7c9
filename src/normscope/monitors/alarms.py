"""Alarms of a training: each condition raises one, which stands until the condition ends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from normscope.monitors.course import Course
from normscope.monitors.rules import TOGETHER, WILD, signs

# while one kind stands, its consequences raise nothing
_IMPLIED = {
    "embedding": {"gradient", "collapse", "fast", "line", "slow", "vanishing", "exploding"},
    "gradient": {"collapse", "fast", "line", "slow", "vanishing", "exploding"},
    "collapse": {"fast", "line", "slow", "vanishing", "exploding"},
    "fast": {"collapse", "line", "slow", "vanishing", "exploding"},
}


class Alarms:
    """Raises alarms, and withdraws them.

    Args:
        power: of a GradScale before the loss.

    Attributes:
        raised: every line so far, oldest first.
        standing: the line of each condition that has not ended, by kind.
        withdrawn: a line for each alarm whose condition ended, oldest first.

    >>> alarms = Alarms()
    >>> for step, norm in enumerate([9.0, 2e4, 2.1e4, 12.0]):
    ...     alarms.see({"step": step, "norm_mean": norm})
    >>> alarms.raised
    ['step 1: the mean norm is 2e+04, and was 9 at first. Lower the lr, or add weight decay.']
    >>> alarms.standing, alarms.withdrawn
    ({}, ['step 3: over: the mean norm is 2e+04, and was 9 at first.'])
    """

    def __init__(self, power: float = 0.0) -> None:
        self.power = power
        self.course = Course()
        self.raised: list[str] = []
        self.standing: dict[str, str] = {}
        self.withdrawn: list[str] = []

    def see(self, record: Mapping[str, Any]) -> None:
        """Judge one observation."""
        self.course.see(record, wild=WILD, together=TOGETHER)
        step = f"step {record['step']}"
        for sign in signs(record, self.course, power=self.power):
            implied = any(sign.kind in _IMPLIED.get(kind, ()) for kind in self.standing)
            if sign.kind in self.standing and sign.ended:
                line = self.standing.pop(sign.kind)
                self.withdrawn.append(f"{step}: over: {line.split('. ')[0]}.")
            elif sign.holds and not implied and sign.kind not in self.standing:
                self.standing[sign.kind] = sign.line
                self.raised.append(f"{step}: {sign.line}")

    def diagnosis(self, record: Mapping[str, Any]) -> str:
        """The state at a record in one sentence, or two with a remedy."""
        if self.standing:
            return f"step {record['step']}: " + " ".join(self.standing.values())
        known = {
            "layers turn by {:.2g} rad per step": self.course.angle if self.course.angles else None,
            "mean norm {:.3g}": record.get("norm_mean"),
            "mean cosine {:.2f}": record.get("mean_cosine"),
            "RankMe {:.3g}": self.course.ranks[-1] if self.course.ranks else None,
        }
        facts = ", ".join(form.format(x) for form, x in known.items() if x is not None)
        return f"step {record['step']}: no alarm stands: {facts}."

    def state_dict(self) -> dict[str, Any]:
        """What later judgements depend on, as plain values."""
        return {"course": self.course.state_dict(), "standing": dict(self.standing)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from another's state."""
        self.course = Course(**state["course"])
        self.standing = dict(state["standing"])
