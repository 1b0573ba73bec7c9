"""Sentences that can be true or false, each with a number, an interval and a verdict."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from normscope.extend import invalid
from normscope_paper.harness.intervals import UNKNOWN, Interval, Spread, mean_interval

Verdict = Literal["reproduced", "not reproduced", "inconclusive"]
VERDICTS: tuple[Verdict, ...] = ("reproduced", "not reproduced", "inconclusive")
NOT_IN_PAPER = "not in the paper"  # the paper's number, for a claim of our own
_ROUNDING = 1e-9  # of an interval: a mean that is nearer to zero is zero


class Comparison(NamedTuple):
    """Two rows of a table of runs that a claim compares, and on what."""

    row: str
    base: str
    column: str


@dataclass(frozen=True)
class Claim:
    """One sentence of the paper, put to the test.

    Args:
        sentence: what the paper says, so that it can be true or false.
        paper: its number, as printed.
        value: ours.
        interval: a 95 % confidence interval over seeds; both ends are the value where nothing is
            random.
        region: the values for which the sentence is true, both ends included.
        recipe: which reading of the paper was run.
        compares: the rows whose difference in kNN the value is, if it is one.
    """

    sentence: str
    paper: str
    value: float
    interval: Interval
    region: Interval
    recipe: str
    compares: Comparison | None = None

    def __post_init__(self) -> None:
        numbers = (self.value, *self.interval, *self.region)
        if any(math.isnan(x) for x in numbers) or not self.interval[0] <= self.interval[1]:
            raise invalid("interval", "two numbers in order", str(numbers), "Nothing to judge.")

    @classmethod
    def exact(
        cls, sentence: str, value: float, region: Interval, *, paper: str, recipe: str
    ) -> Claim:
        """A claim on a number in which nothing is random."""
        return cls(sentence, paper, value, (value, value), region, recipe)

    @classmethod
    def over_seeds(
        cls,
        sentence: str,
        values: Sequence[float],
        region: Interval,
        *,
        paper: str,
        recipe: str,
        spread: Spread | None = None,
        possible: Interval = UNKNOWN,
        compares: Comparison | None = None,
    ) -> Claim:
        """A claim on the mean of a number that each seed gives.

        `spread` is as in `mean_interval`; the interval is cut to the `possible` values.
        """
        mean, (low, high) = mean_interval(values, spread)
        interval = max(low, possible[0]), min(high, possible[1])
        return cls(sentence, paper, mean, interval, region, recipe, compares)

    @classmethod
    def jointly(
        cls,
        sentence: str,
        columns: Sequence[Sequence[float]],
        region: Interval,
        *,
        paper: str,
        recipe: str,
        worst: Literal["largest", "smallest"],
    ) -> Claim:
        """A claim on several numbers at once: on the largest or the smallest, as `worst` says.

        `columns` has, for each number, its value by every seed.
        """
        pick = max if worst == "largest" else min
        every = [mean_interval(column) for column in columns]
        value = pick(mean for mean, _ in every)
        interval = pick(low for _, (low, _) in every), pick(high for _, (_, high) in every)
        return cls(sentence, paper, value, interval, region, recipe)

    @property
    def verdict(self) -> Verdict:
        """Reproduced if the whole interval lies in the region, not if none of it does.

        >>> Claim("x grows", "+", 1.0, (0.5, 1.5), (0.0, math.inf), "text").verdict
        'reproduced'
        >>> Claim("x grows", "+", 1.0, (-0.5, 2.5), (0.0, math.inf), "text").verdict
        'inconclusive'
        """
        (low, high), (least, most) = self.interval, self.region
        if least <= low and high <= most:
            return "reproduced"
        return "not reproduced" if high < least or most < low else "inconclusive"

    @property
    def value_text(self) -> str:
        """Our value and its interval, to two digits of the interval's half; a dash if unknown.

        >>> Claim("x", "2", 4.965, (3.164, 6.766), (0.0, 9.0), "text").value_text
        '5.0 [3.2, 6.8]'
        """
        low, high = self.interval
        if math.isinf(low) and math.isinf(high):
            return "-"
        if low == high:
            return f"{self.value:.3g}"
        half = (high - low) / 2
        value = 0.0 if abs(self.value) < 2 * _ROUNDING * half else self.value
        places = max(0, 1 - math.floor(math.log10(half)))
        return f"{value:.{places}f} [{low:.{places}f}, {high:.{places}f}]"

    @property
    def region_text(self) -> str:
        """Where the sentence is true.

        >>> Claim("x", "2", 2.0, (1.9, 2.1), (0.0, math.inf), "text").region_text
        'at least 0'
        """
        least, most = self.region
        if math.isinf(most):
            return f"at least {least:.4g}"
        return f"at most {most:.4g}" if math.isinf(least) else f"{least:.4g} to {most:.4g}"


def tally(claims: Sequence[Claim]) -> dict[Verdict, int]:
    """How many claims have each verdict."""
    verdicts = [claim.verdict for claim in claims]
    return {verdict: verdicts.count(verdict) for verdict in VERDICTS}
