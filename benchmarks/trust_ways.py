"""Ways to tell new rows from known ones, and right answers from wrong: ours, and others'."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import normscope as ns

NEIGHBOURS = 20  # that vote in scikit-learn


@dataclass
class Rows:
    """Embeddings, (n, d), and the length of each text, if there are texts."""

    z: np.ndarray
    length: np.ndarray | None = None

    @property
    def given(self) -> dict[str, np.ndarray] | None:
        """The covariates."""
        return None if self.length is None else {"length": self.length}

    def take(self, rows: np.ndarray) -> Rows:
        """Some of the rows."""
        return Rows(self.z[rows], None if self.length is None else self.length[rows])

    def __add__(self, other: Rows) -> Rows:
        both = None
        if self.length is not None and other.length is not None:
            both = np.concatenate([self.length, other.length])
        return Rows(np.concatenate([self.z, other.z]), both)


@dataclass
class Sets:
    """What every way is given."""

    reference: Rows
    labels: np.ndarray
    known: Rows
    truth: np.ndarray
    novel: dict[str, Rows]

    @property
    def all(self) -> Rows:
        """Known rows, then the novel ones."""
        rows = self.known
        for kind in self.novel.values():
            rows = rows + kind
        return rows


@dataclass
class Way:
    """A way's scores of all rows: how new, and how sure, the opposite unless it says otherwise."""

    novelty: np.ndarray
    seconds: float | None = None
    sure: np.ndarray | None = None
    bits: bool = False  # whether novelty is bits of a p-value
    usual: dict[str, np.ndarray] = field(default_factory=dict)  # known rows', if it has two fits


def of_texts(path: Path) -> Sets:
    """The sets of a file that `texts.py` wrote."""
    with np.load(path) as file:
        arrays = dict(file)
    rows = lambda name: Rows(arrays[name], arrays[f"{name}_length"])  # noqa: E731
    kinds = [name for name in arrays if name.startswith("novel_") and f"{name}_length" in arrays]
    return Sets(
        rows("reference"),
        arrays["reference_labels"],
        rows("known"),
        arrays["known_labels"],
        {name.removeprefix("novel_"): rows(name) for name in kinds},
    )


def fitted(sets: Sets, *, given: bool, **more: Any) -> ns.EmbeddingTrust:
    """Our score, fitted; its warnings are in its verdict."""
    covariates = sets.reference.given if given else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return ns.EmbeddingTrust.fit(sets.reference.z, sets.labels, covariates, **more)


def explained(trust: ns.EmbeddingTrust, rows: Rows) -> Any:
    """What our score says of rows; a length beyond the reference's is judged as at its end."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return trust.explain(rows.z, rows.given if trust.names else None)


def ours(sets: Sets) -> tuple[dict[str, Way], np.ndarray, dict[str, ns.EmbeddingTrust]]:
    """Our parts and what is delivered, without covariates and given them; whether votes are right.

    Returns:
        the ways, whether each known row's vote is its label, and what was fitted.
    """
    found: dict[str, Way] = {}
    right = np.empty(0)
    trusts = {}
    for given in (False, True) if sets.reference.length is not None else (False,):
        start = time.perf_counter()
        trust = fitted(sets, given=given)
        said = explained(trust, sets.all)
        seconds = time.perf_counter() - start
        suffix = ", given length" if given else ""
        for part, bits in said.bits.items():
            if not (given and part == "norm"):  # which is the same without covariates
                found[part.removesuffix("_given") + suffix] = Way(bits, bits=True)
        sure = said.confidence[: len(sets.truth)]
        found["delivered" + suffix] = Way(said.novelty, seconds, sure, bits=True)
        if not given:
            right = said.answer[: len(sets.truth)] == sets.truth
        trusts[suffix] = trust
    return found, right, trusts


def by_known_bad(sets: Sets) -> Way:
    """Delivered by evidence: fitted with half the kinds as known bad rows, tried on the others."""
    kinds, at = list(sets.novel), places(sets)
    found = Way(np.full(len(sets.all.z), np.nan))
    for half in (0, 1):
        bad = [sets.novel[kind].z for kind in kinds[half::2]]
        trust = fitted(sets, given=False, known_bad=np.concatenate(bad))
        usual = trust.novelty(sets.known.z)
        for kind in kinds[1 - half :: 2]:
            found.usual[kind] = usual
            found.novelty[at[kind]] = trust.novelty(sets.novel[kind].z)
    return found


def cleanlab_features(sets: Sets) -> Way:
    """Cleanlab's OutOfDistribution on embeddings."""
    from cleanlab.outlier import OutOfDistribution  # pyright: ignore[reportMissingImports]

    found = OutOfDistribution()
    found.fit(features=sets.reference.z, verbose=False)
    return Way(-found.score(features=sets.all.z))


def votes(sets: Sets, z: np.ndarray) -> np.ndarray:
    """The neighbours' votes by scikit-learn, (n, classes)."""
    from sklearn.neighbors import KNeighborsClassifier

    kwargs = {"n_neighbors": NEIGHBOURS, "metric": "cosine", "algorithm": "brute"}
    return KNeighborsClassifier(**kwargs).fit(sets.reference.z, sets.labels).predict_proba(z)


def cleanlab_votes(sets: Sets) -> Way:
    """Cleanlab's OutOfDistribution on the votes of scikit-learn's neighbours."""
    from cleanlab.outlier import OutOfDistribution  # pyright: ignore[reportMissingImports]

    found = OutOfDistribution()
    # without its own row a vote is honest
    own = NEIGHBOURS / (NEIGHBOURS - 1)
    at = np.arange(len(sets.labels))
    held_out = votes(sets, sets.reference.z) * own
    held_out[at, sets.labels] -= own / NEIGHBOURS
    found.fit(pred_probs=np.clip(held_out, 0, 1), labels=sets.labels, verbose=False)
    return Way(-found.score(pred_probs=votes(sets, sets.all.z)))


def neighbours_vote(sets: Sets) -> Way:
    """The largest share of the votes of scikit-learn's neighbours."""
    return Way(-votes(sets, sets.all.z).max(1))


def unit(z: np.ndarray) -> np.ndarray:
    """Directions."""
    return z / np.linalg.norm(z, axis=1, keepdims=True)


def outlier_factor(sets: Sets, *, directions: bool) -> Way:
    """scikit-learn's local outlier factor, of rows as they are or of their directions."""
    from sklearn.neighbors import LocalOutlierFactor

    of = unit if directions else np.asarray
    found = LocalOutlierFactor(novelty=True).fit(of(sets.reference.z))
    return Way(-found.score_samples(of(sets.all.z)))


def isolation_forest(sets: Sets) -> Way:
    """scikit-learn's isolation forest."""
    from sklearn.ensemble import IsolationForest

    found = IsolationForest(random_state=0).fit(sets.reference.z)
    return Way(-found.score_samples(sets.all.z))


PEERS: dict[str, Callable[[Sets], Way]] = {
    "cleanlab": cleanlab_features,
    "cleanlab, votes": cleanlab_votes,
    "kNN vote": neighbours_vote,
    "LOF": lambda sets: outlier_factor(sets, directions=False),
    "LOF, directions": lambda sets: outlier_factor(sets, directions=True),
    "isolation forest": isolation_forest,
}


def timed(way: Callable[[Sets], Way], sets: Sets) -> Way:
    """A way's scores, with the seconds that it took."""
    start = time.perf_counter()
    found = way(sets)
    found.seconds = time.perf_counter() - start
    return found


def places(sets: Sets) -> dict[str, slice]:
    """Where each kind stands among all rows."""
    found, start = {}, len(sets.known.z)
    for kind, rows in sets.novel.items():
        found[kind] = slice(start, start + len(rows.z))
        start += len(rows.z)
    return found
