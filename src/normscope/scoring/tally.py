"""A summary of a file's scores, streamed: counts, and the rows at both ends."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from normscope.confidence import NormConfidence
from normscope.scoring.blocks import OK, STATUSES

_BINS = 16_000  # of norms, a thousandth of the first rows' median each; one more holds the rest
_BARS = 60  # that they are shown as, at most
_TAIL = 5e-4  # of either end is left out of what is shown
_SCORE_BINS = 20
_ENDS = 10  # rows


@dataclass(frozen=True)
class Row:
    """A row of a file with its scores."""

    id: int | str
    norm: float
    score: float
    novelty: float
    text: str | None = None


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
        low: the share of these below the reference's 5 % quantile.
        statuses: status -> rows, except those that are "ok".
        norms: their histogram; None if no row has a score.
        scores: the rows by score, in 20 equal steps from 0 to 1, (20,).
        highest: the ten rows of largest norm, the largest first.
        lowest: the ten of smallest norm, the smallest first.
    """

    rows: int
    norm_mean: float
    low: float
    statuses: dict[str, int]
    norms: Histogram | None
    scores: np.ndarray
    highest: list[Row]
    lowest: list[Row]


class Tally:
    """Adds up a file's scores, batch by batch."""

    def __init__(self) -> None:
        self._statuses: Counter[int] = Counter()
        self._total, self._low = 0.0, 0
        self._width = math.nan
        self._norms = np.zeros(_BINS + 1, np.int64)
        self._scores = np.zeros(_SCORE_BINS, np.int64)
        self._highest, self._lowest = _Ends(-1), _Ends(1)

    def add(self, columns: dict[str, np.ndarray], texts: np.ndarray | None = None) -> None:
        """Take the columns of consecutive rows, as they are written, and their texts, (n,)."""
        status = columns["status"]
        self._statuses.update(counted(status))
        fine = np.flatnonzero(status == OK)
        if not len(fine):
            return
        norms, score = columns["norm"][fine], columns["score"][fine]
        self._total += norms.sum()
        self._low += int((score < 0.05).sum())
        if math.isnan(self._width):
            self._width = max(16 * float(np.median(norms)) / _BINS, np.finfo(float).tiny)
        with np.errstate(over="ignore"):
            place = np.minimum(norms / self._width, _BINS).astype(np.int64)
        self._norms += np.bincount(place, minlength=_BINS + 1)
        step = np.minimum(score * _SCORE_BINS, _SCORE_BINS - 1).astype(np.int64)
        self._scores += np.bincount(step, minlength=_SCORE_BINS)
        for ends in (self._highest, self._lowest):
            ends.take(norms, fine, columns, texts)

    def summary(self, confidence: NormConfidence) -> Summary:
        """The summary, with the reference's numbers beside it."""
        scored = self._statuses[OK]
        mean, share = (self._total / scored, self._low / scored) if scored else (math.nan, math.nan)
        return Summary(
            rows=self._statuses.total(),
            norm_mean=float(mean),
            low=share,
            statuses=named(self._statuses),
            norms=self._histogram(confidence) if scored else None,
            scores=self._scores,
            highest=self._highest.rows,
            lowest=self._lowest.rows,
        )

    def _histogram(self, confidence: NormConfidence) -> Histogram:
        edges = np.arange(_BINS + 1) * self._width
        fine = [self._norms / self._norms.sum()]
        if not confidence.names:  # then its score is the reference's distribution function
            up_to = np.concatenate([[0.0], confidence.score_norms(edges[1:]), [1.0]])
            fine.append(np.diff(up_to))
        # the last place, which is open above, is never shown
        first = min(int(np.searchsorted(np.cumsum(s), _TAIL)) for s in fine)
        last = max(int(np.searchsorted(np.cumsum(s), 1 - _TAIL)) for s in fine)
        first, last = min(first, _BINS - 1), min(last + 1, _BINS)
        starts = np.arange(first, last, -(-(last - first) // _BARS))
        bars = [np.add.reduceat(s[:last], starts) for s in fine]
        return Histogram(edges[[*starts, last]], bars[0], bars[1] if len(bars) > 1 else None)


class _Ends:
    """The ten rows of smallest norm times `sign`; of equal ones, the first."""

    def __init__(self, sign: int) -> None:
        self._sign = sign
        self.rows: list[Row] = []

    def take(
        self,
        norms: np.ndarray,
        places: np.ndarray,
        columns: dict[str, np.ndarray],
        texts: np.ndarray | None,
    ) -> None:
        """Look at rows with these norms, which stand at these places of the columns."""
        signed = self._sign * norms
        if len(self.rows) == _ENDS:  # few rows are left after the first batches
            better = np.flatnonzero(signed < self._sign * self.rows[-1].norm)
            signed, places = signed[better], places[better]
        if len(signed) > _ENDS:
            near = np.flatnonzero(signed <= np.partition(signed, _ENDS - 1)[_ENDS - 1])
            signed, places = signed[near], places[near]
        for i in places[np.argsort(signed, kind="stable")[:_ENDS]]:
            names = ("id", "norm", "score", "novelty")
            values: list[Any] = [columns[name][i : i + 1].tolist()[0] for name in names]
            text = None if texts is None else str(texts[i])
            self.rows.append(Row(*values, text=text))
        self.rows = sorted(self.rows, key=lambda row: self._sign * row.norm)[:_ENDS]


def counted(status: np.ndarray) -> dict[int, int]:
    """How many rows have each status that occurs."""
    found = np.bincount(status, minlength=len(STATUSES))
    return {code: int(n) for code, n in enumerate(found) if n}


def named(counts: Counter[int]) -> dict[str, int]:
    """Status -> rows, except those that are "ok"."""
    return {STATUSES[code]: n for code, n in sorted(counts.items()) if code != OK}
