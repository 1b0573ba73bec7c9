"""The novelty that is delivered: parts put together, chosen by rule or by evidence."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from statistics import NormalDist

import numpy as np

from normscope.confidence.held_out import HeldOut
from normscope.confidence.verdict import Finding, in_words
from normscope.evaluation.ranks import auroc_interval

Bits = dict[str, np.ndarray]  # part -> minus the binary logarithm of its p-values, (n,)


@dataclass(frozen=True)
class Delivered:
    r"""The harmonic mean of parts' p-values, and where it lies among that of held-out rows.

    $\log_2 \sum_j 1 / p_j$ is high where any part's p-value is small, however the others depend on
    it (Wilson, 2019): a part that says nothing of a row costs little.

    Attributes:
        parts: those that are used.
        held_out: None with one part alone, whose bits are delivered as they are.
        by: "rule", or "known bad rows".
    """

    parts: tuple[str, ...]
    held_out: HeldOut | None
    by: str

    @classmethod
    def of(cls, parts: tuple[str, ...], usual: Bits, *, by: str) -> Delivered:
        """From the parts, and the bits of held-out rows."""
        if len(parts) == 1:
            return cls(parts, None, by)
        return cls(parts, HeldOut.of(together(parts, usual)), by)

    def __str__(self) -> str:
        """What it is, in a sentence."""
        how = in_words(self.parts) + (" together" if len(self.parts) > 1 else " alone")
        why = "by rule: no known bad rows were given" if self.by == "rule" else f"by {self.by}"
        return f"Novelty is {how}, chosen {why}."

    def bits(self, found: Bits) -> np.ndarray:
        """Of rows with these parts, (n,)."""
        total = together(self.parts, found)
        return total if self.held_out is None else self.held_out.bits(total)


def together(parts: tuple[str, ...], found: Bits) -> np.ndarray:
    """The binary logarithm of the sum of 1 / p over parts, (n,).

    >>> together(("a", "b"), {"a": np.array([3.0]), "b": np.array([3.0])})
    array([4.])
    """
    return np.logaddexp2.reduce([found[name] for name in parts])


def by_rule(parts: tuple[str, ...], usual: Bits) -> Delivered:
    """All the parts together."""
    return Delivered.of(parts, usual, by="rule")


def chosen(parts: tuple[str, ...], usual: Bits, bad: Bits) -> tuple[Delivered, tuple[Finding, ...]]:
    """The parts that known bad rows favour, beyond chance, over those of the rule.

    They must separate known bad rows from held-out ones better than the rule's do, with 95 %
    confidence after Bonferroni's correction for the number of choices.

    Args:
        parts: those of the rule.
        usual: bits of held-out rows of the reference, by part.
        bad: those of known bad rows.
    """
    positive = np.repeat([False, True], [len(rows[parts[0]]) for rows in (usual, bad)])
    both = {name: np.concatenate([usual[name], bad[name]]) for name in usual}
    rule = together(parts, both)
    choices = [c for n in range(1, len(both) + 1) for c in combinations(both, n) if c != parts]
    wider = NormalDist().inv_cdf(1 - 0.025 / max(1, len(choices))) / 1.96
    best, gained = parts, 0.0
    for choice in choices:
        gain, low, _ = auroc_interval(together(choice, both), positive, beside=rule)
        if gain - wider * (gain - low) > 0 and gain > gained:
            best, gained = choice, gain
    findings = tuple(
        Finding(name, "new", auroc_interval(both[name], positive), None, used=name in best)
        for name in both
    )
    return Delivered.of(best, usual, by="known bad rows"), findings
