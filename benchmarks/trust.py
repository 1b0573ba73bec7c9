"""Novelty and confidence from embeddings: every part, what is delivered, and what others offer.

    python benchmarks/texts.py all-MiniLM-L6-v2 --out texts/minilm.npz
    python benchmarks/trust.py --texts texts/minilm.npz
    python benchmarks/trust.py --run runs/simclr-cifar10

Every way is fitted to the same reference and scores the same held-out rows. A kind's number is the
AUROC of novelty, new rows against known ones; that of "being right" is the confidence's, for
whether the neighbours' vote is a known row's label.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import normscope as ns
from images import of_run
from normscope.evaluation import auroc
from tables import HERE, Table, installed

SPLITS = 10
DRAWS = 200  # of the bootstrap
LEVELS = (0.05, 0.01)
NEIGHBOURS = 20


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
    fresh: dict[str, np.ndarray] = field(default_factory=dict)  # by kind, where fits differ


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
            if part != "norm_given" and not (given and part == "norm"):
                found[part + suffix] = Way(bits, bits=True)
            elif part == "norm_given":
                found["norm" + suffix] = Way(bits, bits=True)
        sure = said.confidence[: len(sets.truth)]
        found["delivered" + suffix] = Way(said.novelty, seconds, sure, bits=True)
        if not given:
            right = said.answer[: len(sets.truth)] == sets.truth
        trusts[suffix] = trust
    return found, right, trusts


def by_known_bad(sets: Sets) -> Way:
    """Delivered by evidence: fitted with half the kinds as known bad rows, tried on the others."""
    kinds = list(sets.novel)
    fresh, scores = {}, np.full(len(sets.known.z), np.nan)
    start = time.perf_counter()
    for half in (0, 1):
        bad = [sets.novel[kind].z for kind in kinds[half::2]]
        trust = fitted(sets, given=False, known_bad=np.concatenate(bad))
        usual = trust.novelty(sets.known.z)
        for kind in kinds[1 - half :: 2]:
            fresh[kind] = np.concatenate([usual, trust.novelty(sets.novel[kind].z)])
    return Way(scores, time.perf_counter() - start, fresh=fresh)


def cleanlab_features(sets: Sets) -> Way:
    """Cleanlab's OutOfDistribution on embeddings."""
    from cleanlab.outlier import OutOfDistribution

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
    from cleanlab.outlier import OutOfDistribution

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


def novelty_aurocs(way: Way, sets: Sets, drawn: np.random.Generator | None = None) -> list[float]:
    """AUROC of each kind; with a generator, of a bootstrap's rows."""
    n = len(sets.known.z)
    known = np.arange(n) if drawn is None else drawn.integers(n, size=n)
    found = []
    for kind, at in places(sets).items():
        rows = np.arange(at.start, at.stop)
        if drawn is not None:
            rows = drawn.choice(rows, len(rows))
        own = way.fresh.get(kind)
        usual, new = way.novelty[known], way.novelty[rows]
        if own is not None:
            usual, new = own[known], own[n + rows - at.start]
        found.append(auroc(np.r_[usual, new], np.repeat([False, True], [n, len(rows)])))
    return found


def mean_auroc(way: Way, sets: Sets, seed: int | None = None) -> float:
    """The mean over kinds; a seed draws the same rows for every way."""
    drawn = None if seed is None else np.random.default_rng(seed)
    return float(np.mean(novelty_aurocs(way, sets, drawn)))


def of_right(way: Way, right: np.ndarray, seed: int | None = None) -> float:
    """AUROC of being right among known rows."""
    sure = -way.novelty[: len(right)] if way.sure is None else way.sure
    rows = np.arange(len(right))
    if seed is not None:
        rows = np.random.default_rng(seed).choice(rows, len(rows))
    return auroc(sure[rows], right[rows])


def interval(value: Callable[[int | None], float]) -> list[float]:
    """A number, with the 95 % interval of a bootstrap over rows."""
    ends = np.quantile([value(seed) for seed in range(DRAWS)], (0.025, 0.975))
    return [value(None), *map(float, ends)]


def called(sets: Sets) -> list[dict[str, dict[str, float]]]:
    """The share of held-out known rows with p at most each level, in ten splits, by way."""
    pool, labels = sets.reference + sets.known, np.r_[sets.labels, sets.truth]
    found = []
    for seed in range(SPLITS):
        print(f"split {seed + 1} of {SPLITS}", file=sys.stderr)
        order = np.random.default_rng(seed).permutation(len(labels))
        ours_, rest = order[: len(sets.labels)], order[len(sets.labels) :]
        split = Sets(pool.take(ours_), labels[ours_], pool.take(rest), labels[rest], {})
        shares: dict[str, dict[str, float]] = {}
        for name, way in ours(split)[0].items():
            shares[name] = {str(a): float((way.novelty >= -np.log2(a)).mean()) for a in LEVELS}
        found.append(shares)
    return found


def shown(value: float, digits: int = 3) -> str:
    """A number as it stands in a table."""
    return "-" if np.isnan(value) else f"{value:.{digits}f}"


def with_ends(found: list[float]) -> str:
    """A number and its interval."""
    return f"{found[0]:.3f} [{found[1]:.3f}, {found[2]:.3f}]"


def table(title: str, sets: Sets, notes: list[str]) -> Table:
    """Everything about one set of embeddings."""
    print(f"{title}: ours", file=sys.stderr)
    ways, right, trusts = ours(sets)
    if len(sets.novel) > 1:
        ways["delivered, known bad"] = by_known_bad(sets)
    for name, way in PEERS.items():
        print(f"{title}: {name}", file=sys.stderr)
        ways[name] = timed(way, sets)
    shares = called(sets)

    by_kind = {name: novelty_aurocs(way, sets) for name, way in ways.items()}
    rows = [
        [kind, *(shown(values[i]) for values in by_kind.values())]
        for i, kind in enumerate(sets.novel)
    ]
    rows.append(["**mean**", *(shown(float(np.mean(values))) for values in by_kind.values())])
    sureness = {name: of_right(way, right) for name, way in ways.items() if not way.fresh}
    rows.append(["**being right**", *(shown(sureness.get(name, np.nan)) for name in ways)])
    for level in map(str, LEVELS):
        cells = []
        for name, way in ways.items():
            every = [100 * split[name][level] for split in shares] if way.bits else []
            cells.append(f"{min(every):.1f} to {max(every):.1f}" if every else "-")
        rows.append([f"% with p ≤ {level}, {SPLITS} splits", *cells])
    seconds = [way.seconds for way in ways.values()]
    rows.append(["seconds", *("-" if s is None else f"{s:.1f}" for s in seconds)])

    parts = {
        name: way for name, way in ways.items() if way.bits and not name.startswith("delivered")
    }
    delivered = [name for name in ways if name.startswith("delivered")]
    said: dict[str, list[float]] = {}
    best = max(parts, key=lambda name: mean_auroc(parts[name], sets))
    for name in delivered:
        difference = lambda seed, name=name: (  # noqa: E731
            mean_auroc(ways[name], sets, seed) - mean_auroc(parts[best], sets, seed)
        )
        said[f"Mean AUROC, {name} less the best single part ({best})"] = interval(difference)
    surest = max((n for n in sureness if n not in delivered), key=lambda name: sureness[name])
    for name in delivered:
        if name in sureness:
            difference = lambda seed, name=name: (  # noqa: E731
                of_right(ways[name], right, seed) - of_right(ways[surest], right, seed)
            )
            said[f"Being right, {name} less the best other ({surest})"] = interval(difference)
    larger = Way(-np.linalg.norm(sets.all.z, axis=1))
    said["A small norm alone: mean AUROC of novelty"] = interval(
        lambda seed: mean_auroc(larger, sets, seed)
    )
    said["A large norm alone: AUROC of being right"] = interval(
        lambda seed: of_right(larger, right, seed)
    )
    return Table(
        title=title,
        columns=["new rows", *ways],
        rows=rows,
        notes=[
            f"{len(sets.labels):,} reference rows of {sets.reference.z.shape[1]} columns, "
            f"{len(sets.truth):,} known ones, of which the vote is right on "
            f"{100 * right.mean():.1f} %; "
            f"{', '.join(sorted({f'{len(r.z):,}' for r in sets.novel.values()}))} of each new kind."
            " Seconds are of fitting and scoring all rows, of ours with all parts.",
            *notes,
            *(f"{what}: {with_ends(numbers)}." for what, numbers in said.items()),
            *(
                f"The verdict{suffix}: {' '.join(str(trust.verdict).splitlines())}"
                for suffix, trust in trusts.items()
            ),
        ],
        measured={
            "auroc": {name: dict(zip(sets.novel, by_kind[name], strict=True)) for name in ways},
            "right": sureness,
            "shares": shares,
            "said": said,
            "seconds": dict(zip(ways, seconds, strict=True)),
        },
        versions=installed("torch", "scikit-learn", "cleanlab"),
    )


def main() -> None:
    """Measure, and tell."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--texts", type=Path, help="a file that texts.py wrote")
    what.add_argument("--run", type=Path, help="the folder of a run on CIFAR-10")
    parser.add_argument("--data", type=Path, help="where datasets are; NORMSCOPE_DATA unless given")
    parser.add_argument("--folder", type=Path, default=HERE, help="where README.md is made")
    args = parser.parse_args()
    path = args.texts or args.run
    if not path.exists():
        parser.error(f"--{'texts' if args.texts else 'run'} must exist, got {path}.")
    if args.texts:
        notes = [
            "Length is in characters. The texts come from `texts.py`, with its seed 0.",
            "`known bad` is fitted twice, each time on the kinds that the other is tried on.",
        ]
        made = table(f"Novelty and confidence, texts, {path.stem}", of_texts(path), notes)
    else:
        arrays, labels, truth, told = of_run(path, args.data)
        reference, known, *_ = map(Rows, arrays.values())
        novel = {name: Rows(z) for name, z in list(arrays.items())[2:]}
        sets = Sets(reference, labels, known, truth, novel)
        made = table(f"Novelty and confidence, images, {path.name}", sets, [told])
    made.save(f"trust-{path.stem}", args.folder)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit("stopped; nothing was stored") from None
