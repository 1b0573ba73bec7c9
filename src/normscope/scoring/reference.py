"""What rows are compared with: fitted to a stream once, and applied to any block of rows."""

from __future__ import annotations

import warnings
import zipfile
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import numpy as np

from normscope._checks import invalid
from normscope.confidence import LEAST, EmbeddingTrust, NormConfidence, norm_trust
from normscope.scoring.blocks import COVARIATE, OK, OUTSIDE, Block, Source
from normscope.scoring.places import is_url
from normscope.scoring.sample import Sample, likely
from normscope.scoring.spread import Parcel, Spread
from normscope.scoring.tally import counted, named

Progress = Callable[[int, int], None]
Columns = dict[str, np.ndarray]

BESIDE = ("own", "copy")  # columns of bools that are counted, and not written
REFERENCE_ROWS = 50_000  # that neighbours are looked for among
_ROUNDED = 1e-3  # of a norm, to float16
_TRUST_ROWS = 10_000  # for the AUROC of norms
_BAD_ROWS = 10_000
_SAMPLE_BYTES = 1 << 28  # of rows that are drawn: 50,000 of 1,342 float32


@dataclass(frozen=True)
class FittedReference:
    """The reference that rows are compared with.

    Attributes:
        confidence: fitted, or loaded: the norm alone, or norm, neighbours and direction.
        norm_mean: of the rows it was fitted on; None if it was loaded.
        left_out: status -> rows of the reference that were left out.
        notes: what to know of how it was drawn, one a line.
        places: the rows of its source that neighbours are looked for among, ascending, (m,); None
            if it was loaded, or by the norm alone.
        norms: of these rows, (m,).
    """

    confidence: NormConfidence | EmbeddingTrust
    norm_mean: float | None = None
    left_out: dict[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    places: np.ndarray | None = field(default=None, repr=False, compare=False)
    norms: np.ndarray | None = field(default=None, repr=False, compare=False)

    @property
    def delivers(self) -> Literal["score", "confidence"]:
        """The column that ranks rows: confidence if there is one, else the score."""
        found = self.confidence
        sure = isinstance(found, EmbeddingTrust) and found.has_confidence
        return "confidence" if sure else "score"

    @property
    def flat(self) -> bool:
        """Whether what is delivered is much the same for every row: it ranks none."""
        return isinstance(self.confidence, EmbeddingTrust) and self.confidence.flat

    @property
    def raw(self) -> bool:
        """Whether its norms carry anything, so that normalised rows can't be compared."""
        return isinstance(self.confidence, NormConfidence) or self.confidence.raw

    @property
    def verdict(self) -> list[str]:
        """What is delivered, and what each part is worth: a sentence a line."""
        found = self.confidence
        if isinstance(found, EmbeddingTrust):
            said = replace(found.verdict, warnings=())
            return [*str(said).splitlines(), *self.notes]
        lines = ["Score and novelty are by the norm alone."]
        if found.trust is not None:
            shown = f"{found.trust:.2f}".removeprefix("0")
            line = f"The norm separates right from wrong with AUROC {shown} in the reference."
            lines.append(line)
        return [*lines, *self.notes]

    @property
    def warnings(self) -> list[str]:
        """Caveats on the scores, one a line."""
        found = self.confidence
        if isinstance(found, EmbeddingTrust):
            return [f"Warning: {line}" for line in found.verdict.warnings]
        return list(found.warnings)

    def columns(self, block: Block, start: int | None = None) -> Columns:
        """Norm, score, novelty, confidence if there is one, and status, (n,) each.

        The score is in [0, 1], higher for rows like the reference: by the norm alone, the share
        of the reference with smaller norms; else the p-value of the novelty, the share of
        held-out rows of the reference that look newer.

        Args:
            block: of rows.
            start: the number of its first row, if it is of a stream: a row that is the reference's
                own of that number is compared with the others. `own` and `copy` are columns then,
                as `EmbeddingTrust.judged` gives them.
        """
        status = with_covariates(block)
        given, beside = block.covariates or None, {}
        if isinstance(self.confidence, NormConfidence):
            score, novelty = self.confidence.scored_norms(block.norms, given)
            found = {"score": score, "novelty": novelty}
        else:
            own = None if start is None else self._own(start, block.norms)
            found = self.confidence.judged(block.z, given, own=own)
            beside = {name: found.pop(name) for name in BESIDE}
            outside = found.pop("outside").astype(bool)
            status = np.where((status == OK) & outside, OUTSIDE, status).astype(np.uint8)
            blank = (status != OK) & (status != OUTSIDE)
            found = {name: np.where(blank, np.nan, column) for name, column in found.items()}
            found = {"score": np.exp2(-found["novelty"]), **found}
            beside = {name: column & ~blank for name, column in beside.items()}
        narrow = {name: column.astype(np.float32) for name, column in found.items()}
        columns = {"norm": block.norms, **narrow, "status": status}
        return columns if start is None else {**columns, **beside}

    def _own(self, start: int, norms: np.ndarray) -> np.ndarray | None:
        """Which of its rows has each one's number and norm, (n,), -1 where none has."""
        if self.places is None or self.norms is None:
            return None
        found = np.full(len(norms), -1)
        first, last = np.searchsorted(self.places, [start, start + len(norms)])
        at = self.places[first:last] - start
        same = np.abs(norms[at] / self.norms[first:last] - 1) < _ROUNDED
        found[at[same]] = np.arange(first, last)[same]
        return found

    def share_up_to(self, norms: np.ndarray) -> np.ndarray | None:
        """The share of the reference with at most these norms, (n,); None where unknown."""
        if isinstance(self.confidence, EmbeddingTrust):
            return self.confidence.share_up_to(norms)
        return None if self.confidence.names else self.confidence.score_norms(norms)

    def check_columns(self, name: str, d: int) -> None:
        """Refuse rows of another length than the reference's."""
        if self.confidence.d not in (None, d):
            constraint = f"of {self.confidence.d} columns, as the reference was"
            raise invalid(name, constraint, d, "Both come from one network.")

    def save(self, path: Path) -> None:
        """Write it to a file that `load_reference` reads, with `suffix`."""
        self.confidence.save(path)

    @property
    def suffix(self) -> str:
        """Of a file that it is saved to."""
        return ".safetensors" if isinstance(self.confidence, EmbeddingTrust) else ".npz"


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
    if labels is not None:
        _check_labels(labels, source)
    sample = Sample(0 if labels is None else _at_most(_TRUST_ROWS, source))
    norms, columns = [], []
    counts: Counter[int] = Counter()
    for block, fine in _read(source, sample, counts, progress):
        norms.append(block.norms[fine])
        columns.append({name: column[fine] for name, column in block.covariates.items()})
    usual = np.concatenate(norms)
    given = {name: np.concatenate([part[name] for part in columns]) for name in columns[0]}
    confidence = NormConfidence.from_norms(usual, covariates=given or None)
    confidence.d = source.d
    if labels is not None:
        places, some = sample.drawn()
        score = confidence.score_norms(some.norms, some.covariates or None)
        confidence.trust = norm_trust(some.z, labels[places], score)
    return FittedReference(confidence, float(usual.mean()), named(counts))


def fit_trust(
    source: Source,
    *,
    labels: np.ndarray | None = None,
    known_bad: Source | None = None,
    most: int = REFERENCE_ROWS,
    progress: Progress | None = None,
) -> FittedReference:
    """Read the reference once, and fit `EmbeddingTrust` to a sample of its rows.

    Rows that can't be judged are left out and counted. What the verdict warns of is not issued as
    a Python warning.

    Args:
        source: of embeddings, with covariates if there are any.
        labels: whole numbers or strings, (rows,), for confidence.
        known_bad: of rows that should look new, to choose the parts by; 10,000 are used at most.
        most: rows that are kept, drawn by seed 0; fewer if they are very long.
        progress: called with the rows read and the rows in all.
    """
    if labels is not None:
        _check_labels(labels, source)
    if known_bad is not None and known_bad.d != source.d:
        constraint = f"of {source.d} columns, as the reference is"
        raise invalid("known_bad", constraint, known_bad.d, "Both come from one network.")
    places, known, counts, mean = _drawn(source, most, progress)
    bad = None if known_bad is None else _drawn(known_bad, _BAD_ROWS, None)[1]
    for name, found in (("reference", known), ("known_bad", bad)):
        if found is not None and len(found) < LEAST:
            advice = "Give it more rows that are finite and not zero."
            raise invalid(name, f"at least {LEAST} rows", len(found), advice)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # they are in the verdict
        trust = EmbeddingTrust.fit(
            known.z,
            labels=None if labels is None else labels[places],
            covariates=known.covariates or None,
            known_bad=None if bad is None else bad.z,
            bad_covariates=None if bad is None else bad.covariates or None,
            search="exact",
        )
    usable = source.rows - counts.total()
    notes = ()
    if len(known) < usable:
        drawn = f"{len(known):,} of its {usable:,} rows, drawn by seed 0"
        notes = (f"The reference is {drawn}.",)
    return FittedReference(trust, mean, named(counts), notes, places, known.norms)


def load_reference(path: Path | str) -> FittedReference | None:
    """The reference that `FittedReference.save` left in a file; None if it holds something else."""
    if is_url(str(path)) or not Path(path).is_file():
        return None  # a device would be read without end
    if Path(path).suffix == ".safetensors":
        return FittedReference(EmbeddingTrust.load(path)) if _is_trust(Path(path)) else None
    try:
        with zipfile.ZipFile(path) as packed:
            members = set(packed.namelist())
    except (OSError, zipfile.BadZipFile):
        return None
    if not {"kind.npy", "version.npy"} <= members:
        return None
    return FittedReference(NormConfidence.load(path))


def with_covariates(block: Block) -> np.ndarray:
    """The status of each row, including whether its covariates are finite."""
    status = block.status
    for column in block.covariates.values():
        status = np.where((status == OK) & ~np.isfinite(column), COVARIATE, status)
    return status.astype(np.uint8)


@dataclass(frozen=True)
class _Carried:
    """What comes back of a block where others read it: of the rows, those that may be drawn."""

    most: int
    rows: int

    def __call__(self, block: Block, start: int) -> Parcel:
        places = np.arange(start, start + len(block))
        carried = likely(places, most=self.most, rows=self.rows) & (with_covariates(block) == OK)
        return Parcel(block, {}, carried)


def _read(
    source: Source, sample: Sample, counts: Counter[int], progress: Progress | None
) -> Iterator[tuple[Block, np.ndarray]]:
    """Each block and which of its rows are fine; the others are counted, and a sample drawn."""
    start = there = 0
    with closing(_parcels(source, sample.most)) as parcels:
        for parcel in parcels:
            status = with_covariates(parcel.block)
            counts.update(counted(status[status != OK]))
            fine = status == OK
            here = fine & (parcel.carried if parcel.carried is not None else False)
            sample.take(parcel.block, start, here)
            yield parcel.block, fine
            there += int(here.sum())
            start += len(parcel)
            if progress is not None:
                progress(start, source.rows)
    usable = start - counts.total()
    if there < min(sample.most, usable):
        constraint = "of rows of which half can be judged, where other processes read it"
        raise invalid("reference", constraint, f"{usable:,} of {start:,}", "Leave the others out.")


def _parcels(source: Source, most: int) -> Generator[Parcel, None, None]:
    """The blocks of a source; of rows read elsewhere, the embeddings of those that may be drawn."""
    if isinstance(source, Spread):
        yield from source.mapped(_Carried(most, source.rows))
        return
    for block in source.blocks():
        yield Parcel(block, {}, np.ones(len(block), bool))


def _drawn(
    source: Source, most: int, progress: Progress | None
) -> tuple[np.ndarray, Block, Counter[int], float]:
    """Rows drawn of a source, which they are, the counts of bad ones, and the mean norm."""
    sample, counts, total = Sample(_at_most(most, source)), Counter[int](), 0.0
    for block, fine in _read(source, sample, counts, progress):
        total += float(block.norms[fine].sum())
    mean = total / max(1, source.rows - counts.total())
    return *sample.drawn(), counts, mean


def _at_most(rows: int, source: Source) -> int:
    """So many rows, or as many as fit in 256 MiB of float32."""
    return max(LEAST, min(rows, _SAMPLE_BYTES // (4 * source.d)))


def _check_labels(labels: np.ndarray, source: Source) -> None:
    if labels.shape != (source.rows,) or labels.dtype.kind not in "iuU":
        constraint = f"an integer or a string for each of the reference's {source.rows:,} rows"
        got = f"{labels.dtype} {labels.shape}"
        raise invalid("labels", constraint, got, "Give each row its class.")


def _is_trust(path: Path) -> bool:
    """Whether the head of a .safetensors file says that it holds a saved reference."""
    with path.open("rb") as stream:
        size = int.from_bytes(stream.read(8), "little")
        return b"normscope.EmbeddingTrust" in stream.read(min(size, 1 << 24))
