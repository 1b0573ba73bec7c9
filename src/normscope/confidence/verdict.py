"""What each part is worth on a reference, in numbers and in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Interval = tuple[float, float, float]  # a number, and the ends of its 95 % interval

CALLED = {
    "norm": "the norm",
    "norm_given": "the norm given covariates",
    "neighbours": "the distance to neighbours",
    "mahalanobis": "the Mahalanobis distance",
    "vote": "the neighbours' vote",
}
_SURER = {
    "norm": "higher norm",
    "norm_given": "higher norm given covariates",
    "neighbours": "nearer neighbours",
    "mahalanobis": "smaller Mahalanobis distance",
    "vote": "a clearer vote",
}


@dataclass(frozen=True)
class Finding:
    """One part, for one question.

    Attributes:
        part: its name.
        of: "right": whether a row's answer is right; "new": whether a row is known to be bad.
        auroc: with its interval. For "right", of what should be surer: a larger norm, nearer
            neighbours. For "new", of the part's p-value.
        adds: by how much the AUROC of all parts exceeds that without this one, with its interval;
            for "right" alone.
        used: whether what is delivered uses it.
    """

    part: str
    of: Literal["right", "new"]
    auroc: Interval
    adds: Interval | None
    used: bool

    def __str__(self) -> str:
        """The finding in a line."""
        value, low, high = self.auroc
        name, numbers = CALLED[self.part], f"{_short(value)} [{_short(low)}, {_short(high)}]"
        if high < 0.5:
            what = {
                "right": f"{_SURER[self.part]} means *less* sure here",
                "new": f"{name} misleads",
            }
            said = what[self.of]
        elif low > 0.5:
            what = {"right": "tells right from wrong", "new": "tells known bad rows from others"}
            said = f"{name} {what[self.of]}"
        else:
            said = f"{name} says nothing here"
        if self.adds is not None:
            gain, least, most = self.adds
            beside = "adds" if least > 0 else "adds nothing"
            numbers += f"; it {beside} beside the others: {gain:+.3f} [{least:+.3f}, {most:+.3f}]"
        return f"{said}: {numbers}. {'Used.' if self.used else 'Not used.'}"


@dataclass(frozen=True)
class Verdict:
    """What to use on a reference, and why.

    Attributes:
        novelty: what the delivered novelty is, in a sentence.
        confidence: what the delivered confidence is, in a sentence.
        findings: part by part, for each question there is evidence on.
        warnings: of what is flat or short, one a line.
    """

    novelty: str
    confidence: str = "There is no confidence: neither labels nor known answers were given."
    findings: tuple[Finding, ...] = ()
    warnings: tuple[str, ...] = ()

    def of(self, question: Literal["right", "new"]) -> dict[str, Finding]:
        """The findings on one question, by part."""
        return {f.part: f for f in self.findings if f.of == question}

    def __str__(self) -> str:
        """All of it, a line each."""
        lines = [self.novelty, *(f"- {finding}" for finding in self.of("new").values())]
        lines += [self.confidence, *(f"- {finding}" for finding in self.of("right").values())]
        return "\n".join([*lines, *(f"Warning: {line}" for line in self.warnings)])


def in_words(names: tuple[str, ...]) -> str:
    """Parts as a list in a sentence.

    >>> in_words(("norm", "neighbours"))
    'the norm and the distance to neighbours'
    """
    *most, last = (CALLED[name] for name in names)
    return f"{', '.join(most)} and {last}" if most else last


def _short(x: float) -> str:
    """Two digits, without a leading zero, as AUROCs are written."""
    return f"{x:.2f}".removeprefix("0") if x < 1 else f"{x:.2f}"
