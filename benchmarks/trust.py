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
        usual = way.usual.get(kind, way.novelty)[known]
        both = np.concatenate([usual, way.novelty[rows]])
        found.append(auroc(both, np.repeat([False, True], [n, len(rows)])))
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


def interval(value: Callable[[int | None], float], draws: int) -> list[float]:
    """A number, with the 95 % interval of a bootstrap over rows."""
    ends = np.quantile([value(seed) for seed in range(draws)], (0.025, 0.975))
    return [value(None), *map(float, ends)]


def called(sets: Sets, splits: int) -> list[dict[str, dict[str, float]]]:
    """The share of held-out known rows with p at most each level, in each split, by way."""
    pool, labels = sets.reference + sets.known, np.r_[sets.labels, sets.truth]
    found = []
    for seed in range(splits):
        print(f"split {seed + 1} of {splits}", file=sys.stderr)
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


def shares_shown(shares: list[dict[str, dict[str, float]]], name: str, level: str) -> str:
    """The percent that a way calls new: the mean over splits, the least and the most."""
    every = [100 * split[name][level] for split in shares if name in split]
    if not every:
        return "-"
    return f"{np.mean(every):.1f} ({min(every):.1f} to {max(every):.1f})"


def compared(
    sets: Sets, ways: dict[str, Way], right: np.ndarray, draws: int
) -> dict[str, list[float]]:
    """What is delivered less the best single part or other way, and the norm's own share."""
    found: dict[str, list[float]] = {}
    mean = lambda name, seed=None: mean_auroc(ways[name], sets, seed)  # noqa: E731
    sure = lambda name, seed=None: of_right(ways[name], right, seed)  # noqa: E731
    delivered = [name for name in ways if name.startswith("delivered")]
    parts = [name for name, way in ways.items() if way.bits and name not in delivered]
    others = [name for name in ways if name not in delivered]
    best, surest = max(parts, key=mean), max(others, key=sure)
    for name in delivered:
        found[f"Mean AUROC, {name} less the best single part ({best})"] = interval(
            lambda seed, name=name: mean(name, seed) - mean(best, seed), draws
        )
        if not ways[name].usual:
            found[f"Being right, {name} less the best other way ({surest})"] = interval(
                lambda seed, name=name: sure(name, seed) - sure(surest, seed), draws
            )
    small = Way(-np.linalg.norm(sets.all.z, axis=1))
    found["A small norm alone, mean AUROC of novelty"] = interval(
        lambda seed: mean_auroc(small, sets, seed), draws
    )
    found["A large norm alone, AUROC of being right"] = interval(
        lambda seed: of_right(small, right, seed), draws
    )
    return found


def measured(sets: Sets) -> tuple[dict[str, Way], np.ndarray, list[str]]:
    """Every way, whether votes are right, and our verdicts."""
    ways, right, trusts = ours(sets)
    if len(sets.novel) > 1:
        ways["delivered, known bad"] = timed(by_known_bad, sets)
    for name, way in PEERS.items():
        print(name, file=sys.stderr)
        ways[name] = timed(way, sets)
    verdicts = [
        f"The verdict{suffix}: {' '.join(str(trust.verdict).split())}"
        for suffix, trust in trusts.items()
    ]
    return ways, right, verdicts


def table(title: str, sets: Sets, notes: list[str], *, splits: int, draws: int) -> Table:
    """Everything about one set of embeddings."""
    ways, right, verdicts = measured(sets)
    shares = called(sets, splits)
    by_kind = {name: novelty_aurocs(way, sets) for name, way in ways.items()}
    sureness = {name: of_right(way, right) for name, way in ways.items() if not way.usual}
    means = [shown(float(np.mean(values))) for values in by_kind.values()]
    seconds = {name: way.seconds for name, way in ways.items()}
    said = compared(sets, ways, right, draws)
    rows = [
        [kind, *(shown(values[i]) for values in by_kind.values())]
        for i, kind in enumerate(sets.novel)
    ]
    rows += [
        ["**mean**", *means],
        ["**being right**", *(shown(sureness.get(name, np.nan)) for name in ways)],
        *(
            [f"% with p ≤ {a}, {splits} splits", *(shares_shown(shares, n, str(a)) for n in ways)]
            for a in LEVELS
        ),
        ["seconds", *("-" if s is None else f"{s:.1f}" for s in seconds.values())],
    ]
    sizes = ", ".join(sorted({f"{len(new.z):,}" for new in sets.novel.values()}))
    about = (
        f"{len(sets.labels):,} reference rows of {sets.reference.z.shape[1]} columns; "
        f"{len(sets.truth):,} known rows, of which the vote is right on {100 * right.mean():.1f} "
        f"%; {sizes} new ones of each kind. Seconds are of fitting and scoring all rows, ours "
        "with all parts."
    )
    differences = [f"{what}: {with_ends(numbers)}." for what, numbers in said.items()]
    return Table(
        title=title,
        columns=["new rows", *ways],
        rows=rows,
        notes=[about, *notes, *differences, *verdicts],
        measured={
            "auroc": {name: dict(zip(sets.novel, by_kind[name], strict=True)) for name in ways},
            "right": sureness,
            "shares": shares,
            "said": said,
            "seconds": seconds,
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
    parser.add_argument("--splits", type=int, default=10, help="held-out splits for p-values")
    parser.add_argument("--draws", type=int, default=200, help="of the bootstrap")
    parser.add_argument("--folder", type=Path, default=HERE, help="where README.md is made")
    args = parser.parse_args()
    path = args.texts or args.run
    if not path.exists():
        parser.error(f"--{'texts' if args.texts else 'run'} must exist, got {path}.")
    for name in ("splits", "draws"):
        if getattr(args, name) < 1:
            parser.error(f"--{name} must be at least 1, got {getattr(args, name)}.")
    if args.texts:
        sets, title = of_texts(path), "texts"
        notes = [
            "Length is in characters. The texts come from `texts.py`, with its seed 0.",
            "`known bad` is fitted twice, each time on the kinds that the other is tried on.",
        ]
    else:
        arrays, labels, truth, told = of_run(path, args.data)
        reference, known, *_ = map(Rows, arrays.values())
        novel = {name: Rows(z) for name, z in list(arrays.items())[2:]}
        sets, title, notes = Sets(reference, labels, known, truth, novel), "images", [told]
    title = f"Novelty and confidence, {title}, {path.stem}"
    made = table(title, sets, notes, splits=args.splits, draws=args.draws)
    made.save(f"trust-{path.stem}", args.folder)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit("stopped; nothing was stored") from None
