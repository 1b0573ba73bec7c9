"""NormConfidence: embedding norms as confidence scores."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from normscope._checks import invalid
from normscope._files import whole_file
from normscope.confidence.calibration import Calibration, calibration, flat_warning
from normscope.confidence.covariates import Covariates, columns_of, share_explained
from normscope.confidence.foreign import check_kind, only_of
from normscope.confidence.progress import warn
from normscope.confidence.raw import check_not_normalised
from normscope.confidence.reference import LEAST, ReferenceNorms, chosen_way, reference_norms
from normscope.confidence.streams import is_stream, streamed
from normscope.confidence.trust import ROWS, norm_trust
from normscope.evaluation.inputs import (
    Values,
    classes_of,
    column,
    embeddings_of,
    row_norms,
    zero_one,
)

_KIND, _VERSION = "normscope.NormConfidence", 1
_SAID = ("names", "d", "explained", "trust", "warnings")
_KEPT = "calibration."
_NUMBERS = {"method": str, "n": int, "ece": float, "ece_before": float}  # the rest are arrays
_WORTH_SAYING = 0.1


@dataclass(eq=False)
class NormConfidence:
    """Confidence in embeddings, from their norms compared with a reference's.

    Build it with `fit` or `from_norms`. If the norm depends on a covariate, such as text length,
    pass it: norms are then compared with those of similar rows.

    Attributes:
        d: columns of the reference; None if it was given as norms.
        names: the covariates, in order.
        explained: the share of the variance of the log norm that each covariate explains: its
            correlation ratio over quantile bins.
        trust: AUROC of `score` for whether the neighbours of a reference row give its label; near
            .5 it is uninformative, below it misleads. None without labels.
        warnings: caveats on the scores, one a line.
        calibration: the result of `calibrate`; None before.

    >>> rng = np.random.default_rng(0)
    >>> reference = rng.normal(size=(1000, 8))
    >>> confidence = NormConfidence.fit(reference)
    >>> confidence.score(np.array([[0.1] * 8, [3.0] * 8, [np.nan] * 8]))
    array([ 0.,  1., nan])
    """

    _reference: ReferenceNorms = field(repr=False)
    names: tuple[str, ...]
    d: int | None = None
    explained: dict[str, float] = field(default_factory=dict)
    trust: float | None = None
    warnings: list[str] = field(default_factory=list)
    calibration: Calibration | None = field(default=None, repr=False)

    @classmethod
    def fit(
        cls,
        reference: object,
        labels: object = None,
        covariates: Covariates | None = None,
        *,
        conditional: Literal["binned", "smooth"] | None = None,
    ) -> NormConfidence:
        """Fit the reference to at least 20 rows that the network was trained for.

        Where a covariate explains more than a tenth of the variance of the log norm, a
        UserWarning says so.

        Args:
            reference: raw embeddings, (m, d), none of them zero or not finite: an array, a tensor,
                a data frame or lists. An Arrow table, an iterator of blocks of rows, or a source
                of `scoring.open_embeddings` is read as a stream: eight bytes a row are kept.
            labels: their classes, whole numbers or strings, (m,), for `trust`.
            covariates: numbers that may affect the norm: by name, (m,) each, or (m, c). They need
                200 rows.
            conditional: "binned" compares norms within quantile bins of one covariate, of at least
                50 rows each; "smooth" compares residuals of the log norm, as `Smooth` says. By
                default binned for one covariate and smooth for more.
        """
        if is_stream(reference):
            drawn = streamed("reference", reference, most=ROWS if labels is not None else 1)
            rows, norms, places = drawn.z, drawn.norms, drawn.places
        else:
            rows = embeddings_of("reference", reference)
            norms, places = row_norms("reference", rows), slice(None)
        found = cls.from_norms(norms, covariates=covariates, conditional=conditional)
        found.d = int(rows.shape[1])
        if labels is not None:
            score = found.score_norms(norms, covariates)[places]
            found.trust = norm_trust(rows, _taken(labels, places, len(norms)), score)
        for line in found.warnings:
            warn(line)
        return found

    @classmethod
    def from_norms(
        cls,
        norms: Values,
        *,
        covariates: Covariates | None = None,
        conditional: Literal["binned", "smooth"] | None = None,
    ) -> NormConfidence:
        """`fit` from precomputed norms, (m,), as in a stream; it issues no Python warning."""
        usual = reference_norms(norms)
        columns = columns_of(covariates, rows=len(usual))
        for name, values in columns.items():
            if unknown := int((~np.isfinite(values)).sum()):
                got = f"{unknown:,} that are not, of {len(values):,}"
                raise invalid(f"covariates[{name!r}]", "finite", got, "Leave these rows out.")
        way = chosen_way(conditional, columns=len(columns), rows=len(usual))
        logs = np.log(usual)
        explained = {name: share_explained(logs, c) for name, c in columns.items()}
        lines = [
            _line(name, share, float(np.corrcoef(logs, columns[name])[0, 1]))
            for name, share in explained.items()
            if share > _WORTH_SAYING
        ]
        reference = ReferenceNorms.of(usual, _matrix(columns, rows=len(usual)), way=way)
        return cls(reference, tuple(columns), explained=explained, warnings=lines)

    def score(self, z: Values, covariates: Covariates | None = None) -> np.ndarray:
        """The share of the reference with a smaller norm, in [0, 1], (n,); ties count one half.

        Args:
            z: raw embeddings, (n, d). A row that is zero or not finite scores NaN.
            covariates: as in `fit`, if it had any; where one is not finite, the score is NaN.
        """
        return self.score_norms(self._norms(z), covariates)

    def novelty(self, z: Values, covariates: Covariates | None = None) -> np.ndarray:
        r"""Bits of surprise at so small a norm, (n,): $-\log_2$ of its conformal p-value.

        That is $p = (1 + \#\{i : \|r_i\| \le \|z\|\}) / (m + 1)$ over the reference r: a row like
        the reference has $p \le a$ with probability a at most (given several covariates, nearly so
        if the rows are many). Arguments as for `score`.
        """
        return self.novelty_norms(self._norms(z), covariates)

    def score_norms(self, norms: Values, covariates: Covariates | None = None) -> np.ndarray:
        """`score` from precomputed norms, (n,)."""
        return self.scored_norms(norms, covariates)[0]

    def novelty_norms(self, norms: Values, covariates: Covariates | None = None) -> np.ndarray:
        """`novelty` from precomputed norms, (n,)."""
        return self.scored_norms(norms, covariates)[1]

    def scored_norms(
        self, norms: Values, covariates: Covariates | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """`score` and `novelty` from precomputed norms, (n,) each, looked up once."""
        below, up_to, total = self._counts(norms, covariates)
        return (below + up_to) / 2 / total, np.log2((total + 1) / (1 + up_to))

    def calibrate(
        self,
        z: Values,
        correct: Values,
        covariates: Covariates | None = None,
        *,
        method: Literal["auto", "isotonic", "logistic"] = "auto",
    ) -> Calibration:
        """Fit the probability of being right at each score, for `probability`.

        If it is much the same at every score, a UserWarning says so.

        Args:
            z: raw embeddings, (n, d), at least 20, best not those of the reference.
            correct: whether each row's answer is right, bools, or zeros and ones, (n,).
            covariates: as in `fit`.
            method: "auto" is isotonic from 1000 rows on, else logistic.
        """
        if method not in ("auto", "isotonic", "logistic"):
            raise invalid("method", "auto, isotonic or logistic", method, "The default is auto.")
        score = self.score(z, covariates)
        right = zero_one("correct", correct, rows=len(score))
        if len(score) < LEAST:
            raise invalid("z", f"at least {LEAST} rows", len(score), "Calibrate on more.")
        if unknown := int(np.isnan(score).sum()):
            constraint = "rows that are finite and not zero, and so their covariates"
            raise invalid("z", constraint, f"{unknown:,} others", "Leave these rows out.")
        if method == "auto":
            method = "isotonic" if len(score) >= 1000 else "logistic"
        found = self.calibration = calibration(score, right, method=method)
        if found.flat:
            line = flat_warning(float(right.mean()), found.ece)
            warn(line)
        return found

    def probability(self, z: Values, covariates: Covariates | None = None) -> np.ndarray:
        """The probability of being right, (n,), non-decreasing in the score; NaN where that is."""
        if self.calibration is None:
            raise RuntimeError(
                "calibrate must be called before probability. Give it rows with known answers."
            )
        return self.calibration.probability(self.score(z, covariates))

    def save(self, path: Path | str) -> None:
        """Write it to one .npz file, atomically."""
        said = json.dumps({name: getattr(self, name) for name in _SAID})
        arrays: dict[str, Any] = {"kind": _KIND, "version": _VERSION, "said": said}
        arrays |= self._reference.arrays()
        if self.calibration is not None:
            arrays |= {_KEPT + k: v for k, v in asdict(self.calibration).items()}
        with whole_file(Path(path)) as partial, partial.open("wb") as file:
            np.savez(file, **arrays)

    @classmethod
    def load(cls, path: Path | str) -> NormConfidence:
        """Read what `save` wrote; other or damaged files are refused."""
        with only_of("NormConfidence", path, version=_VERSION):
            with Path(path).open("rb") as stream, np.load(stream, allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files}
            check_kind(arrays["kind"], arrays["version"], kind=_KIND, version=_VERSION)
            return cls._restored(arrays)

    @classmethod
    def _restored(cls, arrays: dict[str, np.ndarray]) -> NormConfidence:
        said = json.loads(str(arrays["said"]))
        reference = ReferenceNorms.from_arrays(arrays)
        found = cls(
            reference,
            tuple(map(_text, said["names"])),
            d=None if said["d"] is None else int(said["d"]),
            explained={_text(k): float(v) for k, v in said["explained"].items()},
            trust=None if said["trust"] is None else float(said["trust"]),
            warnings=[_text(line) for line in said["warnings"]],
        )
        probe = np.ones((1, len(found.names)))  # what can't score is damaged
        if not np.isfinite(reference.counts(np.ones(1), probe)[2]).all():
            raise ValueError
        kept = {k.removeprefix(_KEPT): v for k, v in arrays.items() if k.startswith(_KEPT)}
        if kept:
            values = {k: _NUMBERS.get(k, np.asarray)(v) for k, v in kept.items()}
            found.calibration = Calibration(**values)
        return found

    def _norms(self, z: Values) -> np.ndarray:
        z = embeddings_of("z", z)
        norms = row_norms("z", z)
        if self.d not in (None, z.shape[1]):
            constraint = f"of {self.d} columns, as the reference was"
            raise invalid("z", constraint, int(z.shape[1]), "Both come from one network.")
        check_not_normalised("z", norms)
        return norms

    def _counts(
        self, norms: Values, covariates: Covariates | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """How many of the rows that each is compared with are below it, up to it, and in all."""
        given = column("norms", norms, missing=True)
        columns = columns_of(covariates, rows=len(given))
        if set(columns) != set(self.names):
            constraint = ", ".join(self.names) or "left out, as they were in fit"
            got = ", ".join(columns) or "none"
            raise invalid("covariates", constraint, got, "Give those that it was fitted with.")
        x = _matrix({name: columns[name] for name in self.names}, rows=len(given))
        return self._reference.counts(given, x)


def _taken(labels: object, places: np.ndarray | slice, rows: int) -> object:
    """The labels of some rows, if those of so many are given."""
    return labels if isinstance(places, slice) else classes_of(labels, rows=rows)[1][places]


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _matrix(columns: dict[str, np.ndarray], *, rows: int) -> np.ndarray:
    """Columns side by side, (rows, c), also where there are none."""
    return np.stack([*columns.values()], 1) if columns else np.empty((rows, 0))


def _line(name: str, share: float, correlation: float) -> str:
    return (
        f"{name} explains {100 * share:.0f} % of the variance of the log norm (correlation "
        f"{correlation:+.2f}): scores are percentiles given it; without it, rows of "
        f"{'large' if correlation > 0 else 'small'} {name} would look surer."
    )
