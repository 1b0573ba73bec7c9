"""EmbeddingTrust: how new a row is, and how sure its answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from normscope._checks import invalid
from normscope.confidence.calibration import FLAT
from normscope.confidence.covariates import LEAST_ROWS, Covariates
from normscope.confidence.delivered import Bits, Delivered, by_rule, chosen
from normscope.confidence.explained import Explained, blank
from normscope.confidence.held_out import TwoSided
from normscope.confidence.measured import COPY, Measured, Space
from normscope.confidence.parts import Parts
from normscope.confidence.progress import search_progress, warn
from normscope.confidence.raw import WAY_OUT, alike, check_not_normalised
from normscope.confidence.reference import LEAST
from normscope.confidence.rows import Rows, all_usable, rows_of
from normscope.confidence.stored import load, save
from normscope.confidence.streams import at_places, is_stream, streamed
from normscope.confidence.sureness import Sureness, sureness
from normscope.confidence.verdict import Verdict
from normscope.confidence.voters import Voters
from normscope.evaluation.bank import MOST, Search, Way, chosen_search
from normscope.evaluation.inputs import Values, zero_one

Columns = dict[str, np.ndarray]

_HELD_OUT = 10_000  # rows at most: of p-values at 5 %, half a point is then two deviations
_AT_ONCE = 16_384
_SPEAKS = -np.log2(0.05)


@dataclass(eq=False)
class EmbeddingTrust:
    """How new rows are to a reference, and how sure their answers, by direction and norm.

    Build it with `fit`. Each part is a p-value among rows of the reference that were held out:

    - `norm`: how unusual the norm is, small or large;
    - `norm_given`: the same among rows of like covariates, if there are any;
    - `neighbours`: how far the five nearest are, by cosine;
    - `mahalanobis`: how far the direction is from the mean, in the reference's covariance.

    With covariates, the last two are given these too.

    Attributes:
        d: columns of the reference.
        raw: whether the reference's norms carry anything; not if it was normalised.
        names: the covariates, in order.
        verdict: what each part is worth here; `print` shows it.

    >>> rng = np.random.default_rng(0)
    >>> trust = EmbeddingTrust.fit(rng.normal(size=(1000, 8)) + 3)
    >>> trust.novelty(np.array([[3.0] * 8, [-3.0] * 8])) > 4
    array([False,  True])
    """

    d: int
    raw: bool
    names: tuple[str, ...]
    verdict: Verdict
    _ends: np.ndarray = field(repr=False)
    _space: Space = field(repr=False)
    _parts: Parts = field(repr=False)
    _delivered: Delivered = field(repr=False)
    _voters: Voters | None = field(default=None, repr=False)
    _sureness: Sureness | None = field(default=None, repr=False)

    @classmethod
    @torch.no_grad()
    def fit(
        cls,
        z: object,
        labels: object = None,
        covariates: Covariates | None = None,
        known_bad: object = None,
        *,
        bad_covariates: Covariates | None = None,
        search: Search = "auto",
    ) -> EmbeddingTrust:
        """Fit to at least 20 rows that the network was trained for.

        What the verdict warns of is a UserWarning too.

        Args:
            z: raw embeddings, (m, d), finite and not zero: an array, a tensor, a data frame or
                lists. Of an Arrow table, an iterator of blocks of rows, or a source of
                `scoring.open_embeddings`, 200,000 rows are kept at most, drawn as they come. If
                rows were normalised, only directions are used.
            labels: their classes, whole numbers or strings, (m,), of two classes at least:
                `confidence` is then that of the neighbours' vote.
            covariates: numbers that the parts may depend on, such as text length: by name, (m,)
                each, or (m, c). They need 200 rows.
            known_bad: raw embeddings of at least 20 rows that should look new, (b, d), to choose
                the parts by.
            bad_covariates: theirs, if there are `covariates`.
            search: "exact" compares with all rows, "faiss" with lists of them that are near,
                "sample" with 200,000 that a seed draws. "auto" is exact up to 200,000 rows, then
                faiss if it is installed, else the sample.
        """
        if known_bad is None and bad_covariates is not None:
            advice = "Give the rows that they are of."
            raise invalid("bad_covariates", "left out without known_bad", bad_covariates, advice)
        known, total, voters, way = _known(z, labels, covariates, search)
        held = _drawn(len(known), _HELD_OUT, seed=1)
        some = known.take(held)
        space = Space.of(known.z, way=way)
        progress = search_progress(len(held), space.bank)
        usual = space.measured(some.z, own=torch.from_numpy(held), progress=progress)
        raw = not alike(known.norms)
        parts = Parts.of(usual, some.x, raw=raw)
        bits = parts.left_out(usual, some.x)
        rule = by_rule(parts.rule, bits)
        found = cls(
            int(known.z.shape[1]),
            raw,
            known.names,
            Verdict(str(rule), warnings=(*_caveats(known, total), *parts.warnings(usual))),
            np.stack([known.x.min(0), known.x.max(0)]),
            space,
            parts,
            rule,
        )
        if known_bad is not None:
            bad = found._rows(known_bad, bad_covariates, "known_bad")
            found._choose(bits, all_usable("known_bad", bad, least=LEAST))
        if voters is not None:
            found._voters, right = voters.tried(usual.near, held)
            found._learn(found._features(usual, some.x), right)
        for line in found.verdict.warnings:
            warn(line)
        return found

    @classmethod
    def from_model(
        cls,
        model: Any,
        texts: Sequence[str],
        labels: object = None,
        covariates: Covariates | None = None,
        known_bad: Sequence[str] | None = None,
        **fit: Any,
    ) -> EmbeddingTrust:
        """`fit` to what a sentence-transformers model makes of texts, before any `Normalize`.

        Embed the texts that are to be judged by
        `normscope.integrations.sentence_transformers.raw_embeddings`.

        Args:
            model: a `SentenceTransformer`.
            texts: at least 20 that the model is used for.
            labels: as in `fit`.
            covariates: as in `fit`.
            known_bad: at least 20 texts that should look new.
            fit: further arguments of `fit`.
        """
        from normscope.integrations.sentence_transformers import raw_embeddings

        bad = None if known_bad is None else raw_embeddings(model, known_bad)
        return cls.fit(raw_embeddings(model, texts), labels, covariates, bad, **fit)

    @torch.no_grad()
    def novelty(self, z: object, covariates: Covariates | None = None) -> np.ndarray:
        r"""Bits of surprise, (n,): $-\log_2$ of the p-value of the parts that are delivered.

        A row like the reference has $p \le a$ with probability a or less, for a from 1 / (m + 1)
        on, m rows being held out. That is nearly so, not by proof: they were held out in turn,
        not for good. More bits than $\log_2 (m + 1)$ order rows, and are no probability.

        A row of the reference itself is its own neighbour: score rows that it does not hold.

        Args:
            z: raw embeddings, (n, d). A row that is zero or not finite scores NaN.
            covariates: as in `fit`, if it had any; where one is not finite, the score is NaN. Rows
                with one beyond the reference's range are judged as at its end: a UserWarning
                counts them, and `explain` names them.
        """

        def column(rows: Measured, x: np.ndarray) -> Columns:
            return {"novelty": self._delivered.bits(self._parts.bits(rows, x))}

        return self._columns(self._rows(z, covariates), column)["novelty"]

    @torch.no_grad()
    def confidence(self, z: object, covariates: Covariates | None = None) -> np.ndarray:
        """The probability of being right, (n,): of the neighbours' vote, or as calibrated.

        Arguments as for `novelty`. It is fitted on rows like the reference: of a row that is new
        to it, it means little.
        """
        model = self._sureness
        if model is None:
            raise RuntimeError(
                "fit must be given labels, or calibrate called, before confidence. "
                "Give rows with known answers."
            )

        def column(rows: Measured, x: np.ndarray) -> Columns:
            return {"confidence": model.probability(self._features(rows, x))}

        return self._columns(self._rows(z, covariates), column)["confidence"]

    @torch.no_grad()
    def predict(self, z: object, covariates: Covariates | None = None) -> np.ndarray:
        """The class that the neighbours vote for, (n,). Arguments as for `novelty`."""
        voters = self._voters
        if voters is None:
            raise RuntimeError("fit must be given labels before predict. Give each row its class.")
        rows = all_usable("z", self._rows(z, covariates), least=0)

        def column(rows: Measured, x: np.ndarray) -> Columns:
            del x
            return {"answer": voters.answer(rows.near)}

        return self._columns(rows, column)["answer"].astype(voters.classes.dtype)

    @torch.no_grad()
    def explain(self, z: object, covariates: Covariates | None = None) -> Explained:
        """Each row's status and parts, what speaks for its being new, and its nearest neighbour.

        Arguments as for `novelty`.
        """
        rows = self._rows(z, covariates)
        found = self._columns(rows, self._said)
        return Explained(
            status=rows.status,
            novelty=found["novelty"],
            p_value=2.0 ** -found["novelty"],
            speaks=found["speaks"],
            bits={name: found[name] for name in self._parts.held_out},
            nearest=found["nearest"],
            distance=found["distance"],
            answer=found.get("answer"),
            confidence=found.get("confidence"),
        )

    @property
    def has_confidence(self) -> bool:
        """Whether `confidence` can be asked for."""
        return self._sureness is not None

    @property
    def flat(self) -> bool:
        """Whether there is a confidence, and it is much the same for every row."""
        return self._sureness is not None and self._sureness.flat

    def share_up_to(self, norms: np.ndarray) -> np.ndarray | None:
        """The share of held-out rows with at most these norms, (n,); None if norms carry nothing.

        Args:
            norms: not below zero, (n,).
        """
        held = self._parts.held_out.get("norm")
        if not isinstance(held, TwoSided):
            return None
        with np.errstate(divide="ignore"):
            return 2.0 ** -held.small.bits(-np.log(norms))

    @torch.no_grad()
    def judged(
        self, z: object, covariates: Covariates | None = None, *, own: np.ndarray | None = None
    ) -> dict[str, np.ndarray]:
        """Novelty, confidence if there is one, and three columns of bools, (n,) each.

        `outside`: with a covariate beyond the reference's range. `own`: a row of the reference,
        compared with all others of it. `copy`: with another of its direction in the reference.

        For a stream, batch by batch: without a warning, a bar, or a look at whether the rows were
        normalised.

        Args:
            z: as for `novelty`.
            covariates: as for `novelty`.
            own: the place in the reference, searched exactly, of the row that each may be, or -1.
        """

        def columns(some: Measured, x: np.ndarray) -> Columns:
            found = {"novelty": self._delivered.bits(self._parts.bits(some, x))}
            found["copy"] = some.near.distance[:, 0].numpy() < COPY
            if self._sureness is not None:
                found["confidence"] = self._sureness.probability(self._features(some, x))
            return found

        rows = rows_of("z", z, covariates, names=self.names).beyond(self._ends)
        found = np.full(len(rows), -1)
        if own is not None:
            fine = np.flatnonzero(rows.usable)
            found[fine] = self._space.verified(rows.take(fine).z, own[fine])
        judged = self._columns(rows, columns, quiet=True, own=found)
        return {**judged, "outside": rows.is_outside, "own": found >= 0}

    def _said(self, rows: Measured, x: np.ndarray) -> Columns:
        """What `explain` says of rows that can be judged."""
        bits = self._parts.bits(rows, x)
        novelty = self._delivered.bits(bits)
        loudest = self._parts.loudest(self._delivered.parts, rows, x)
        found = {
            **bits,
            "novelty": novelty,
            "speaks": np.where(novelty >= _SPEAKS, loudest, ""),
            "nearest": rows.near.rows[:, 0].numpy(),
            "distance": rows.near.distance[:, 0].double().numpy(),
        }
        if self._voters is not None:
            found["answer"] = self._voters.answer(rows.near)
        if self._sureness is not None:
            found["confidence"] = self._sureness.probability(self._features(rows, x))
        return found

    @torch.no_grad()
    def calibrate(
        self, z: object, correct: Values, covariates: Covariates | None = None
    ) -> Sureness:
        """Make `confidence` the probability that your own answers are right.

        Args:
            z: raw embeddings, (n, d), at least 20, not those of the reference.
            correct: whether each row's answer is right, bools, or zeros and ones, (n,).
            covariates: as in `fit`.
        """
        rows = all_usable("z", self._rows(z, covariates), least=LEAST)
        right = zero_one("correct", correct, rows=len(rows))
        model, line = self._learn(self._columns(rows, self._features), right)
        if line is not None:
            warn(line)
        return model

    def save(self, path: Path | str) -> None:
        """Write it to one .safetensors file, atomically."""
        pieces = (self._space, self._parts, self._delivered, self._voters, self._sureness)
        said = {"raw": self.raw, "names": self.names}
        save(Path(path), said, self._ends, *pieces, self.verdict)

    @classmethod
    def load(cls, path: Path | str) -> EmbeddingTrust:
        """Read what `save` wrote; other or damaged files are refused."""
        return cls(**load(Path(path)))

    def _choose(self, usual: Bits, bad: Rows) -> None:
        """Choose the parts by known bad rows, and say what each is worth."""
        found = self._columns(bad, self._parts.bits)
        self._delivered, findings = chosen(self._parts.rule, usual, found)
        rest = tuple(f for f in self.verdict.findings if f.of != "new")
        self.verdict = replace(self.verdict, novelty=str(self._delivered), findings=findings + rest)

    def _learn(self, features: Columns, right: np.ndarray) -> tuple[Sureness, str | None]:
        """Fit the confidence, and say what each part is worth; with a warning, if it is flat."""
        self._sureness, findings = sureness(features, right)
        line = self._sureness.warning()
        rest = tuple(f for f in self.verdict.findings if f.of != "right")
        lines = tuple(w for w in self.verdict.warnings if not w.startswith(FLAT))
        self.verdict = replace(
            self.verdict,
            confidence=str(self._sureness),
            findings=rest + findings,
            warnings=lines + ((line,) if line else ()),
        )
        return self._sureness, line

    def _features(self, rows: Measured, x: np.ndarray) -> Columns:
        """What confidence may be fitted on: ranks of the parts, and the share of the vote."""
        found = self._parts.ranks(rows, x)
        if self._voters is not None:
            found["vote"] = self._voters.vote(rows.near).share
        return found

    def _rows(self, z: object, covariates: Covariates | None, name: str = "z") -> Rows:
        """Rows to be judged, checked against the reference."""
        rows = rows_of(name, z, covariates, names=self.names)
        if rows.z.shape[1] != self.d:
            constraint = f"of {self.d} columns, as the reference was"
            raise invalid(name, constraint, int(rows.z.shape[1]), "Both come from one network.")
        if self.raw:
            check_not_normalised(name, rows.norms)
        rows = rows.beyond(self._ends)
        if rows.outside:
            line = f"{rows.outside:,} of {len(rows):,} rows of {name} have a covariate beyond "
            line += "the reference's range: they are judged as at its end. explain() names them"
            warn(line)
        return rows

    def _columns(
        self,
        rows: Rows,
        of: Callable[[Measured, np.ndarray], Columns],
        *,
        quiet: bool = False,
        own: np.ndarray | None = None,
    ) -> Columns:
        """Columns of all rows, some rows at a time; blank where a row cannot be judged."""
        places = np.flatnonzero(rows.usable)
        progress = None if quiet else search_progress(len(places), self._space.bank)
        found: Columns = {}
        for start in range(0, max(1, len(places)), _AT_ONCE):
            some = places[start : start + _AT_ONCE]
            few = rows.take(some)
            mine = None if own is None or (own < 0).all() else torch.from_numpy(own[some])
            part = of(self._space.measured(few.z, own=mine), few.x)
            for name, values in part.items():
                found.setdefault(name, blank(values.dtype, len(rows)))[some] = values
            if progress is not None:
                progress(start + len(some), len(places))
        return found


def _known(
    z: object, labels: object, covariates: Covariates | None, search: Search
) -> tuple[Rows, int, Voters | None, Way]:
    """The rows that are kept, of how many, who votes, and how to search."""
    stream = None
    if is_stream(z):
        stream = streamed("z", z, most=MOST if search in ("auto", "sample") else None)
        z, covariates = stream.z, at_places(covariates, stream)
    rows = all_usable("z", rows_of("z", z, covariates), least=LEAST)
    if rows.names and len(rows) < 4 * LEAST_ROWS:
        constraint = f"given with at least {4 * LEAST_ROWS} rows"
        raise invalid("covariates", constraint, len(rows), "Give more rows, or leave them out.")
    total = len(rows) if stream is None else stream.rows
    voters = None if labels is None else Voters.of(labels, rows=total)
    if stream is not None:
        voters = voters and voters.take(stream.places)
    way, most = chosen_search(search, rows=len(rows))
    drawn = _drawn(len(rows), most, seed=0)
    return rows.take(drawn), total, voters and voters.take(drawn), way


def _drawn(rows: int, most: int, *, seed: int) -> np.ndarray:
    """At most so many places, ascending: all of them, or a draw."""
    if rows <= most:
        return np.arange(rows)
    return np.sort(np.random.default_rng(seed).choice(rows, most, replace=False))


def _caveats(known: Rows, rows: int) -> list[str]:
    """What is flat or short about a reference of which so many rows were given."""
    lines = []
    if len(known) < rows:
        lines.append(
            f"the reference is {len(known):,} of {rows:,} rows, drawn at random: to search all, "
            "pass search='exact' or, with faiss installed, search='faiss'"
        )
    if alike(known.norms):
        lines.append(
            f"norms carry nothing here: all of the reference's are {known.norms[0]:.4g}, so only "
            f"directions are used. {WAY_OUT}"
        )
    ends = known.x.min(0), known.x.max(0)
    lines += [
        f"{name} is flat: it is the same for every row"
        for name, low, high in zip(known.names, *ends, strict=True)
        if low == high
    ]
    return lines
