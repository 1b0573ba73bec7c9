"""A summary of a file's scores, streamed and merged: counts, and the rows at both ends."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from normscope.scoring.blocks import OK, OUTSIDE, STATUSES

_OCTAVES = 60  # of norms, from 2**-30 on; the first and the last bin hold the rest
_BINS_AN_OCTAVE = 512  # each a seventh of a percent wide
_BINS = _OCTAVES * _BINS_AN_OCTAVE
_BARS = 60  # that they are shown as
_TAIL = 5e-4  # of either end is left out of what is shown
_SCORE_BINS = 20
_ENDS = 20  # rows
_UNUSUAL = 0.05

# The share of the reference with at most these norms, (n,); None where it is not known
ShareUpTo = Callable[[np.ndarray], np.ndarray | None]


@dataclass(frozen=True)
class Row:
    """A row of a file with its scores; `place` is its number, from 0."""

    id: int | str
    norm: float
    score: float
    novelty: float
    confidence: float | None = None
    text: str | None = None
    place: int = 0


@dataclass(frozen=True)
class Histogram:
    """Where most of a file's norms lie, and the reference's.

    Attributes:
        edges: of the bars, (b + 1,).
        shares: of the file's rows that have a score, (b,).
        reference: of the reference's rows, (b,); None where norms are compared given covariates.
    """

    edges: np.ndarray
    shares: np.ndarray
    reference: np.ndarray | None


@dataclass(frozen=True)
class Summary:
    """Summary of a file's norms and scores.

    Attributes:
        rows: all of them.
        norm_mean: of the rows that have a score; NaN if none has.
        low: the share of these whose score is below .05.
        statuses: status -> rows, except those that are "ok".
        norms: their histogram; None if no row has a score.
        scores: the rows by score, in 20 equal steps from 0 to 1, (20,).
        confidences: likewise by confidence; None if there is none.
        highest: the twenty rows to trust most, by what is delivered, the first first.
        lowest: the twenty to trust least, the last first.
        delivers: the column that they are ranked by.
        own: rows that are the reference's, each compared with the others of it.
        copies: other rows that have a copy in the reference.
    """

    rows: int
    norm_mean: float
    low: float
    statuses: dict[str, int]
    norms: Histogram | None
    scores: np.ndarray
    confidences: np.ndarray | None
    highest: list[Row]
    lowest: list[Row]
    delivers: Literal["score", "confidence"]
    own: int = 0
    copies: int = 0

    @property
    def scored(self) -> int:
        """How many rows have a score."""
        return int(self.scores.sum())


class Tally:
    """Adds up a file's scores, batch by batch; tallies of parts merge.

    Args:
        delivers: the column that ranks rows.
    """

    def __init__(self, *, delivers: Literal["score", "confidence"] = "score") -> None:
        self._delivers: Literal["score", "confidence"] = delivers
        self._statuses: Counter[int] = Counter()
        self._total, self._low = 0.0, 0
        self._own, self._copies = 0, 0
        self._norms = np.zeros(_BINS, np.int64)
        self._scores = np.zeros(_SCORE_BINS, np.int64)
        self._confidences = np.zeros(_SCORE_BINS, np.int64)
        self._highest, self._lowest = _Ends(-1), _Ends(1)

    def add(
        self,
        columns: dict[str, np.ndarray],
        texts: np.ndarray | None = None,
        *,
        start: int | None = None,
    ) -> None:
        """Take the columns of rows from number `start` on, as they are written, and their texts.

        Without `start`, they follow those before.
        """
        status = columns["status"]
        start = self._statuses.total() if start is None else start
        self._statuses.update(counted(status))
        fine = np.flatnonzero((status == OK) | (status == OUTSIDE))
        if not len(fine):
            return
        norms, score = columns["norm"][fine], columns["score"][fine]
        self._total += float(norms.sum())
        self._low += int((score < _UNUSUAL).sum())
        if "own" in columns:
            self._own += int(columns["own"].sum())
            self._copies += int((columns["copy"] & ~columns["own"]).sum())
        self._norms += np.bincount(_bin_of(norms), minlength=_BINS)
        self._scores += _steps(score)
        if "confidence" in columns:
            self._confidences += _steps(columns["confidence"][fine])
        for ends in (self._highest, self._lowest):
            ends.take(fine, columns, texts, start, self._delivers)

    def merge(self, other: Tally) -> None:
        """Take in the tally of other rows of the same file."""
        self._statuses.update(other._statuses)
        self._total += other._total
        self._low += other._low
        self._own += other._own
        self._copies += other._copies
        self._norms += other._norms
        self._scores += other._scores
        self._confidences += other._confidences
        self._highest.merge(other._highest)
        self._lowest.merge(other._lowest)

    def summary(self, share_up_to: ShareUpTo) -> Summary:
        """The summary, with the reference's norms beside the file's."""
        scored = int(self._scores.sum())
        mean, share = (self._total / scored, self._low / scored) if scored else (math.nan, math.nan)
        return Summary(
            rows=self._statuses.total(),
            norm_mean=float(mean),
            low=share,
            statuses=named(self._statuses),
            norms=self._histogram(share_up_to) if scored else None,
            scores=self._scores,
            confidences=self._confidences if self._confidences.any() else None,
            highest=self._highest.rows,
            lowest=self._lowest.rows,
            delivers=self._delivers,
            own=self._own,
            copies=self._copies,
        )

    def _histogram(self, share_up_to: ShareUpTo) -> Histogram:
        fine = np.exp2(np.arange(_BINS + 1) / _BINS_AN_OCTAVE - _OCTAVES / 2)
        below = np.concatenate([[0.0], np.cumsum(self._norms) / self._norms.sum()])
        known = share_up_to(fine)
        # the first bin and the last one, which hold what lies beyond, are not shown
        ends = [
            (np.searchsorted(share, _TAIL, "right") - 1, np.searchsorted(share, 1 - _TAIL))
            for share in (below, *([] if known is None else [known]))
        ]
        first, last = max(1, min(a for a, _ in ends)), min(_BINS - 1, max(b for _, b in ends))
        edges = np.linspace(fine[first], fine[max(last, first + 1)], _BARS + 1)
        bars = [
            np.diff(np.interp(edges, fine, share))
            for share in (below, *([] if known is None else [known]))
        ]
        return Histogram(edges, bars[0], bars[1] if len(bars) > 1 else None)


class _Ends:
    """the twenty rows that `sign` times what is delivered puts first; of equal ones, the first."""

    def __init__(self, sign: int) -> None:
        self._sign = sign
        self.rows: list[Row] = []
        self._keys: list[tuple[float, ...]] = []

    def take(
        self,
        places: np.ndarray,
        columns: dict[str, np.ndarray],
        texts: np.ndarray | None,
        start: int,
        by: str,
    ) -> None:
        """Look at the rows that stand at these places of the columns."""
        signed = self._sign * columns[by][places]
        if len(self.rows) == _ENDS:  # few rows are left after the first batches
            near = np.flatnonzero(signed <= self._keys[-1][0])
            signed, places = signed[near], places[near]
        if len(signed) > _ENDS:
            near = np.flatnonzero(signed <= np.partition(signed, _ENDS - 1)[_ENDS - 1])
            signed, places = signed[near], places[near]
        # what is delivered ends at 0 and 1; novelty and the norm go on
        novelty, norm = columns["novelty"][places], columns["norm"][places]
        order = np.lexsort((places, self._sign * norm, -self._sign * novelty, signed))[:_ENDS]
        for i, at in zip(order, places[order], strict=True):
            key = (signed[i], -self._sign * novelty[i], self._sign * norm[i])
            self._keys.append(tuple(map(float, key)))
            self.rows.append(_row(columns, int(at), texts, start))
        self._sort()

    def merge(self, other: _Ends) -> None:
        """Take in those of other rows."""
        self._keys += other._keys
        self.rows += other.rows
        self._sort()

    def _sort(self) -> None:
        order = sorted(range(len(self.rows)), key=lambda i: (*self._keys[i], self.rows[i].place))[
            :_ENDS
        ]
        self.rows = [self.rows[i] for i in order]
        self._keys = [self._keys[i] for i in order]


def _row(columns: dict[str, np.ndarray], at: int, texts: np.ndarray | None, start: int) -> Row:
    names = ("id", "norm", "score", "novelty", "confidence")
    values: dict[str, Any] = {
        name: columns[name][at : at + 1].tolist()[0] for name in names if name in columns
    }
    return Row(**values, text=None if texts is None else str(texts[at]), place=start + at)


def _bin_of(norms: np.ndarray) -> np.ndarray:
    place = (np.log2(norms) + _OCTAVES / 2) * _BINS_AN_OCTAVE
    return np.clip(place, 0, _BINS - 1).astype(np.int64)


def _steps(shares: np.ndarray) -> np.ndarray:
    """How many lie in each of 20 equal steps from 0 to 1, (20,)."""
    step = np.minimum(shares * _SCORE_BINS, _SCORE_BINS - 1).astype(np.int64)
    return np.bincount(step, minlength=_SCORE_BINS)


def counted(status: np.ndarray) -> dict[int, int]:
    """How many rows have each status that occurs."""
    found = np.bincount(status, minlength=len(STATUSES))
    return {code: int(n) for code, n in enumerate(found) if n}


def named(counts: Counter[int]) -> dict[str, int]:
    """Status -> rows, except those that are "ok"."""
    return {STATUSES[code]: n for code, n in sorted(counts.items()) if code != OK}
