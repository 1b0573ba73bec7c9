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
from collections.abc import Callable
from pathlib import Path

import numpy as np

from images import of_run
from normscope.evaluation import auroc
from tables import HERE, Table, installed
from trust_ways import PEERS, Rows, Sets, Way, by_known_bad, of_texts, ours, places, timed

LEVELS = (0.05, 0.01)


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
