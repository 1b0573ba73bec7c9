"""Alarms of a training: each condition raises one, which stands until the condition ends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from normscope.monitors.course import Course
from normscope.monitors.rules import BRISK, GOOD_ANGLE, TOGETHER, WILD, signs

# while one kind stands, its consequences raise nothing
_IMPLIED = {
    "embedding": {"gradient", "collapse", "fast", "line", "slow", "vanishing", "exploding"},
    "gradient": {"collapse", "fast", "line", "slow", "vanishing", "exploding"},
    "collapse": {"fast", "line", "slow", "vanishing", "exploding"},
    "fast": {"collapse", "line", "slow", "vanishing", "exploding"},
}

_NEAR = 0.9  # a mean cosine that is worth a word


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
        facts = ", ".join([*self._angles(), *self._embeddings(record)])
        return f"step {record['step']}: no alarm stands: {facts}."

    def highest(self) -> dict[str, float]:
        """`rad_per_step_highest`, if layers have turned."""
        return {"rad_per_step_highest": self.course.top_angle} if self.course.angles else {}

    def _angles(self) -> Iterator[str]:
        """How far layers turned at most, and what that suggests."""
        if not self.course.angles:
            return
        top, now = self.course.top_angle, self.course.angle
        later = f", now by {now:.2g}" if now < top / 2 else ""
        yield f"layers turned by {top:.2g} rad per step at most{later}"
        if top < GOOD_ANGLE / 3 and not self.course.rising:
            yield f"which is slow beside {GOOD_ANGLE:g}: a higher lr may help"
        elif top > BRISK:
            yield f"which is fast beside {GOOD_ANGLE:g}: a lower lr may help"

    def _embeddings(self, record: Mapping[str, Any]) -> Iterator[str]:
        if "norm_mean" in record:
            yield f"mean norm {record['norm_mean']:.3g}"
        if (cosine := record.get("mean_cosine")) is not None:
            near = ", near one direction" if cosine > _NEAR else ""
            yield f"mean cosine {cosine:.2f}{near}"
        if self.course.ranks:
            yield f"RankMe {self.course.ranks[-1]:.3g}"

    def state_dict(self) -> dict[str, Any]:
        """What later judgements depend on, as plain values."""
        return {"course": self.course.state_dict(), "standing": dict(self.standing)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from another's state."""
        self.course = Course(**state["course"])
        self.standing = dict(state["standing"])
