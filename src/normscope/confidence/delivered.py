"""The novelty that is delivered: parts put together, chosen by rule or by evidence."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from statistics import NormalDist

import numpy as np

from normscope.confidence.held_out import HeldOut
from normscope.confidence.verdict import Finding, in_words
from normscope.evaluation.ranks import auroc_interval

_WORTH = 0.01
Bits = dict[str, np.ndarray]  # part -> minus the binary logarithm of its p-values, (n,)


@dataclass(frozen=True)
class Delivered:
    r"""The harmonic mean of parts' p-values, and where it lies among that of held-out rows.

    $\log_2 \sum_j 1 / p_j$ is high where any part's p-value is small, however the others depend on
    it (Wilson, 2019): a part that says nothing of a row costs little. The p-value that is
    delivered is its place among held-out rows, since 1 / p of the mean alone is not one.

    Attributes:
        parts: those that are used.
        held_out: None with one part alone, whose bits are delivered as they are.
        by: what chose them.
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
        return f"Novelty is {how}, chosen by {self.by}."

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
    return Delivered.of(parts, usual, by="rule: no known bad rows were given")


def chosen(parts: tuple[str, ...], usual: Bits, bad: Bits) -> tuple[Delivered, tuple[Finding, ...]]:
    """The parts that known bad rows favour, beyond chance, over those of the rule.

    They must separate known bad rows from held-out ones better than the rule's do, by an AUROC of
    .01 with 95 % confidence after Bonferroni's correction for the number of choices. Neighbours
    stay among them: other kinds of new rows than those known need them.

    Args:
        parts: those of the rule.
        usual: bits of held-out rows of the reference, by part.
        bad: those of known bad rows.
    """
    positive = np.repeat([False, True], [len(rows[parts[0]]) for rows in (usual, bad)])
    both = {name: np.concatenate([usual[name], bad[name]]) for name in usual}
    rule = together(parts, both)
    sizes = range(1, len(both) + 1)
    choices = [c for n in sizes for c in combinations(both, n) if "neighbours" in c and c != parts]
    wider = NormalDist().inv_cdf(1 - 0.025 / max(1, len(choices))) / 1.96
    best, gained = parts, 0.0
    for choice in choices:
        gain, low, _ = auroc_interval(together(choice, both), positive, beside=rule)
        if gain - wider * (gain - low) > _WORTH and gain > gained:
            best, gained = choice, gain
    findings = tuple(
        Finding(name, "new", auroc_interval(both[name], positive), None, used=name in best)
        for name in both
    )
    by = "known bad rows" if best != parts else "rule: known bad rows favour no others"
    return Delivered.of(best, usual, by=by), findings
