"""Scores for a file of any length, in memory that does not grow with it."""

from __future__ import annotations

import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from normscope._checks import invalid
from normscope.confidence import NormConfidence, check_not_normalised, norm_trust
from normscope.scoring.blocks import COVARIATE, OK, Block, Source
from normscope.scoring.places import is_url
from normscope.scoring.spread import Columns, Parcel, Spread, parcels
from normscope.scoring.tally import Summary, Tally, counted, named
from normscope.scoring.writers import written

Progress = Callable[[int, int], None]

_SAMPLE_ROWS = 10_000  # of the reference, for `trust`
_SAMPLE_BYTES = 1 << 26
_MERGED_ROWS = 1 << 16
_NO_ROWS = np.empty((0, 0), np.float32)
_NO_PLACES = np.empty(0, np.int64)


@dataclass(frozen=True)
class FittedReference:
    """The reference that norms are compared with.

    Attributes:
        confidence: fitted, or loaded.
        norm_mean: of the rows it was fitted on; None if it was loaded.
        left_out: status -> rows of the reference that were left out.
    """

    confidence: NormConfidence
    norm_mean: float | None = None
    left_out: dict[str, int] = field(default_factory=dict)


def fit_reference(
    source: Source, *, labels: np.ndarray | None = None, progress: Progress | None = None
) -> FittedReference:
    """Read the reference's norms, and its covariates if it has any, once.

    Rows without a norm are left out and counted. The norms stay in memory: eight bytes a row.

    Args:
        source: of raw embeddings, like those to be scored.
        labels: integers, (rows,): measures `trust` on a sample of 10,000 rows.
        progress: called with the rows read and the rows in all.
    """
    if labels is not None and (labels.shape != (source.rows,) or labels.dtype.kind not in "iu"):
        constraint = f"an integer for each of the reference's {source.rows:,} rows"
        got = f"{labels.dtype} {labels.shape}"
        raise invalid("labels", constraint, got, "Give each row its class.")
    sample = None if labels is None else _Sample(source)
    norms, columns = [], []
    counts: Counter[int] = Counter()
    start = 0
    for parcel in parcels(source, _Drawn(_NO_PLACES if sample is None else sample.drawn)):
        block = parcel.block
        status = _with_covariates(block)
        fine = status == OK
        counts.update(counted(status))
        norms.append(block.norms[fine])
        columns.append({name: column[fine] for name, column in block.covariates.items()})
        if sample is not None:
            sample.take(block, start, fine)
        start += len(block)
        if progress is not None:
            progress(start, source.rows)
    joined = np.concatenate(norms)
    given = {name: np.concatenate([part[name] for part in columns]) for name in columns[0]}
    confidence = NormConfidence.from_norms(joined, covariates=given or None)
    confidence.d = source.d
    if sample is not None and labels is not None:
        score = confidence.score_norms(*sample.norms())
        confidence.trust = norm_trust(sample.embeddings(), labels[sample.places()], score)
    return FittedReference(confidence, float(joined.mean()), named(counts))


def load_reference(path: Path | str) -> FittedReference | None:
    """The reference that `NormConfidence.save` left in a file; None if it holds something else."""
    if is_url(str(path)) or not Path(path).is_file():
        return None  # a device would be read without end
    try:
        with zipfile.ZipFile(path) as packed:
            members = set(packed.namelist())
    except (OSError, zipfile.BadZipFile):
        return None
    if not {"kind.npy", "version.npy"} <= members:
        return None
    return FittedReference(NormConfidence.load(path))


class _Sample:
    """At most 10,000 rows of a source, drawn at random with a fixed seed."""

    def __init__(self, source: Source) -> None:
        n = min(_SAMPLE_ROWS, _SAMPLE_BYTES // (4 * source.d), source.rows)
        self.drawn = np.sort(np.random.default_rng(0).choice(source.rows, n, replace=False))
        self._places: list[np.ndarray] = []
        self._blocks: list[Block] = []

    def take(self, block: Block, start: int, fine: np.ndarray) -> None:
        """Keep those drawn of a block that begins at row `start`, if they are fine."""
        first, last = np.searchsorted(self.drawn, [start, start + len(block)])
        places = self.drawn[first:last]
        places = places[fine[places - start]]
        at = places - start
        z = block.z[at].astype(np.float64 if block.z.dtype.itemsize == 8 else np.float32)
        given = {name: column[at] for name, column in block.covariates.items()}
        self._places.append(places)
        self._blocks.append(Block(block.norms[at], block.status[at], z, None, given))

    def places(self) -> np.ndarray:
        """Which rows of the source they are, (n,)."""
        return np.concatenate(self._places)

    def embeddings(self) -> np.ndarray:
        """The rows themselves, (n, d)."""
        return np.concatenate([block.z for block in self._blocks])

    def norms(self) -> tuple[np.ndarray, dict[str, np.ndarray] | None]:
        """Their norms, (n,), and their covariates, if there are any."""
        norms = np.concatenate([block.norms for block in self._blocks])
        given = {
            name: np.concatenate([block.covariates[name] for block in self._blocks])
            for name in self._blocks[0].covariates
        }
        return norms, given or None


@dataclass(frozen=True)
class _Drawn:
    """Blocks with the embeddings of some rows of their source."""

    places: np.ndarray

    def __call__(self, block: Block, start: int) -> Parcel:
        first, last = np.searchsorted(self.places, [start, start + len(block)])
        return Parcel(block, carried=self.places[first:last] - start)


def score_file(
    source: Source,
    reference: FittedReference,
    out: Path,
    *,
    progress: Progress | None = None,
    watch: Callable[[np.ndarray], object] | None = None,
) -> Summary:
    """Write id, norm, score, novelty and status of every row of a file.

    Rows are read in one thread while those before them are scored and written. Rows without a
    norm, or with a covariate that is not finite, get NaN and their status. If two rows have one
    id, if many that follow each other were normalised, or if the file ends too soon, nothing is
    written.

    Args:
        source: of raw embeddings, with the covariates the reference was fitted with.
        reference: as `fit_reference` gives it.
        out: ends in .parquet, .arrow, .npz, .csv or .jsonl.
        progress: called with the rows scored and the rows in all.
        watch: called with the scores of consecutive rows.
    """
    seen = np.empty(0, np.int64)
    tally = Tally()
    start = 0
    with written(out) as writer:
        for block, found in _batches(source, reference):
            rows = slice(start, start + len(block))
            if block.ids is None:
                ids = np.arange(rows.start, rows.stop)
            else:
                ids = block.ids
                seen = seen if len(seen) else np.empty(source.rows, np.int64)
                seen[rows] = _hashes(ids)
            check_not_normalised(str(source.path), block.norms)
            columns = {"id": ids, **found}
            writer.write(columns)
            tally.add(columns, block.texts)
            if watch is not None:
                watch(columns["score"])
            start = rows.stop
            if progress is not None:
                progress(start, source.rows)
        _check_distinct(source.path, seen)
    return tally.summary(reference.confidence)


def scored(block: Block, reference: FittedReference) -> Columns:
    """Norm, score, novelty and status of the rows of a block, (n,) each."""
    found = reference.confidence.scored_norms(block.norms, block.covariates or None)
    score, novelty = (values.astype(np.float32) for values in found)
    status = _with_covariates(block)
    return {"norm": block.norms, "score": score, "novelty": novelty, "status": status}


@dataclass(frozen=True)
class _Scored:
    """Blocks with the columns of `scored`."""

    reference: FittedReference

    def __call__(self, block: Block, start: int) -> Parcel:
        del start
        return Parcel(block, scored(block, self.reference))


def _batches(source: Source, reference: FittedReference) -> Iterator[tuple[Block, Columns]]:
    """Rows without their embeddings, and the columns of `scored`, many rows at a time."""
    if not isinstance(source, Spread):
        for block in _ahead(_merged(source.blocks())):
            yield block, scored(block, reference)
        return
    held: list[Parcel] = []
    for parcel in source.mapped(_Scored(reference)):
        held.append(parcel)
        if sum(len(p.block) for p in held) >= _MERGED_ROWS:
            yield _together(held)
            held = []
    if held:
        yield _together(held)


def _together(parts: list[Parcel]) -> tuple[Block, Columns]:
    columns = {c: np.concatenate([p.columns[c] for p in parts]) for c in parts[0].columns}
    return _joined([part.block for part in parts]), columns


def _merged(blocks: Iterator[Block]) -> Iterator[Block]:
    """Batches of at least 65,536 rows, except the last, without the rows themselves.

    Larger batches spread the cost of a call; norms are taken in blocks that fit the cache.
    """
    held: list[Block] = []
    for block in blocks:
        held.append(replace(block, z=_NO_ROWS))  # a view, even of none, would keep them alive
        if sum(map(len, held)) >= _MERGED_ROWS:
            yield _joined(held)
            held = []
    if held:
        yield _joined(held)


def _joined(parts: list[Block]) -> Block:
    ids = [part.ids for part in parts if part.ids is not None]
    texts = [part.texts for part in parts if part.texts is not None]
    return Block(
        np.concatenate([part.norms for part in parts]),
        np.concatenate([part.status for part in parts]),
        _NO_ROWS,
        np.concatenate(ids) if ids else None,
        {c: np.concatenate([part.covariates[c] for part in parts]) for c in parts[0].covariates},
        np.concatenate(texts) if texts else None,
    )


def _ahead(blocks: Iterator[Block]) -> Iterator[Block]:
    """The same blocks, each read in another thread while the one before is in use."""
    with ThreadPoolExecutor(1) as pool:
        coming = pool.submit(next, blocks, None)
        while (block := coming.result()) is not None:
            coming = pool.submit(next, blocks, None)
            yield block


def _with_covariates(block: Block) -> np.ndarray:
    """The status of each row, including whether its covariates are finite."""
    status = block.status
    for column in block.covariates.values():
        status = np.where((status == OK) & ~np.isfinite(column), COVARIATE, status)
    return status.astype(np.uint8)


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
