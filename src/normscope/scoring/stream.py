"""Scores for a file of any length, in memory that does not grow with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np

from normscope._checks import invalid
from normscope.confidence import EmbeddingTrust, check_not_normalised
from normscope.scoring.blocks import Block, Source
from normscope.scoring.reference import FittedReference, Progress
from normscope.scoring.sample import joined
from normscope.scoring.tally import Summary, Tally
from normscope.scoring.writers import written

_MERGED_ROWS = 1 << 16  # where norms alone are compared
_JUDGED_ROWS = 1 << 13  # whose embeddings are compared
_NO_ROWS = np.empty((0, 0), np.float32)


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
    norm, or with a covariate that is not finite, get NaN and their status. If two rows have one
    id, if many that follow each other were normalised, or if the file ends too soon, nothing is
    written.

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
    with written(out) as writer:
        for block in _ahead(_merged(source.blocks(), reference)):
            rows = slice(start, start + len(block))
            if block.ids is None:
                ids = np.arange(rows.start, rows.stop)
            else:
                ids = block.ids
                seen = seen if len(seen) else np.empty(source.rows, np.int64)
                seen[rows] = _hashes(ids)
            if reference.raw:
                check_not_normalised(str(source.path), block.norms)
            columns = {"id": ids, **scored(block, reference)}
            writer.write(columns)
            tally.add(columns, block.texts)
            if watch is not None:
                watch(columns[reference.delivers])
            start = rows.stop
            if progress is not None:
                progress(start, source.rows)
        _check_distinct(source.path, seen)
    return tally.summary(reference.share_up_to)


def scored(block: Block, reference: FittedReference) -> dict[str, np.ndarray]:
    """Norm, score, novelty, confidence if there is one, and status of a block's rows, (n,) each."""
    return reference.columns(block)


def _merged(blocks: Iterator[Block], reference: FittedReference) -> Iterator[Block]:
    """Larger batches, which spread the cost of a call; the norms are taken in smaller blocks.

    Where norms alone are compared, the rows themselves are dropped.
    """
    whole = isinstance(reference.confidence, EmbeddingTrust)
    least = _JUDGED_ROWS if whole else _MERGED_ROWS
    held: list[Block] = []
    for block in blocks:
        # a view, even of no rows, would keep all of them alive
        held.append(replace(block, z=block.z.copy() if whole else _NO_ROWS))
        if sum(map(len, held)) >= least:
            yield joined(held)
            held = []
    if held:
        yield joined(held)


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
