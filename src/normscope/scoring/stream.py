"""Scores for a file of any length, in memory that does not grow with it."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import numpy as np

from normscope._checks import invalid
from normscope.confidence import EmbeddingTrust, check_not_normalised
from normscope.scoring.blocks import Block, Source
from normscope.scoring.reference import BESIDE, FittedReference, Progress
from normscope.scoring.sample import joined
from normscope.scoring.spread import Columns, Parcel, Spread
from normscope.scoring.tally import Summary, Tally
from normscope.scoring.writers import written

_MERGED_ROWS = 1 << 16  # where norms alone are compared
_JUDGED_ROWS = 1 << 13  # whose embeddings are compared
_NO_ROWS = np.empty((0, 0), np.float32)
_T = TypeVar("_T", Block, Parcel)


def score_file(
    source: Source,
    reference: FittedReference,
    out: Path,
    *,
    progress: Progress | None = None,
    watch: Callable[[np.ndarray], object] | None = None,
) -> Summary:
    """Write id, norm, score, novelty, confidence if there is one, and status of every row.

    Rows are read in one thread while those before them are scored and written. Rows without a
    norm, or with a covariate that is not finite, get NaN and their status. A row that is the
    reference's own, of the same number, is compared with the reference's others. If two rows
    have one id, if many that follow each other were normalised, or if the file ends too soon,
    nothing is written.

    Args:
        source: of raw embeddings, with the covariates the reference was fitted with.
        reference: as `fit_reference` or `fit_trust` gives it.
        out: ends in .parquet, .arrow, .npz, .csv or .jsonl.
        progress: called with the rows scored and the rows in all.
        watch: called with what is delivered of consecutive rows: confidence, or the score.
    """
    reference.check_columns(source.path, source.d)
    seen = np.empty(0, np.int64)
    tally = Tally(delivers=reference.delivers)
    start = 0
    with written(out) as writer, closing(_batches(source, reference)) as batches:
        for block, found in batches:
            rows = slice(start, start + len(block))
            if block.ids is None:
                ids = np.arange(rows.start, rows.stop)
            else:
                ids = block.ids
                seen = seen if len(seen) else np.empty(source.rows, np.int64)
                seen[rows] = _hashes(ids)
            if reference.raw:
                check_not_normalised(str(source.path), block.norms)
            beside = {name: found.pop(name) for name in BESIDE if name in found}
            columns = {"id": ids, **found}
            writer.write(columns)
            tally.add(columns | beside, block.texts)
            if watch is not None:
                watch(columns[reference.delivers])
            start = rows.stop
            if progress is not None:
                progress(start, source.rows)
        _check_distinct(source.path, seen)
    return tally.summary(reference.share_up_to)


@dataclass(frozen=True)
class _Scored:
    """What comes back of a block where others score it: all but the rows themselves."""

    reference: FittedReference

    def __call__(self, block: Block, start: int) -> Parcel:
        return Parcel(block, self.reference.columns(block, start), None)


def _batches(
    source: Source, reference: FittedReference
) -> Generator[tuple[Block, Columns], None, None]:
    """Rows without their embeddings, and their columns, many rows at a time."""
    whole = isinstance(reference.confidence, EmbeddingTrust)
    least = _JUDGED_ROWS if whole else _MERGED_ROWS
    if isinstance(source, Spread):
        for parts in _merged(source.mapped(_Scored(reference)), least):
            names = parts[0].columns
            columns = {name: np.concatenate([p.columns[name] for p in parts]) for name in names}
            yield joined([replace(part.block, z=_NO_ROWS) for part in parts]), columns
        return
    # without the rows where norms alone are compared: a view, even of none, keeps all alive
    blocks = (replace(b, z=b.z.copy() if whole else _NO_ROWS) for b in source.blocks())
    start = 0
    for block in _ahead(joined(parts) for parts in _merged(blocks, least)):
        yield block, reference.columns(block, start)
        start += len(block)


def _merged(parts: Iterator[_T], least: int) -> Iterator[list[_T]]:
    """Parts of so many rows together: larger batches spread the cost of a call."""
    held: list[_T] = []
    for part in parts:
        held.append(part)
        if sum(map(len, held)) >= least:
            yield held
            held = []
    if held:
        yield held


def _ahead(blocks: Iterator[Block]) -> Iterator[Block]:
    """The same blocks, each read in another thread while the one before is in use."""
    with ThreadPoolExecutor(1) as pool:
        coming = pool.submit(next, blocks, None)
        while (block := coming.result()) is not None:
            coming = pool.submit(next, blocks, None)
            yield block


def _hashes(ids: np.ndarray) -> np.ndarray:
    """64 bits of each id; integers are their own.

    Among ten million strings, two share theirs with a chance of three in a million.
    """
    if ids.dtype.kind in "iu":
        return ids.astype(np.int64)
    return np.fromiter(map(hash, ids.tolist()), np.int64, len(ids))


def _check_distinct(path: str, seen: np.ndarray) -> None:
    ordered = np.sort(seen)
    again = ordered[1:] == ordered[:-1]
    if again.any():
        first, second = np.flatnonzero(seen == ordered[1:][again][0])[:2]
        got = f"{again.sum():,} that occur again, as in rows {first:,} and {second:,}"
        raise invalid(f"id of {path}", "distinct", got, "Give each row its own.")
