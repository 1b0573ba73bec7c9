"""What two cells of a table say: points between them, their noise, and claims on both."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping
from typing import Any

from normscope.experiments.cells import INTERVENTIONS, NAMES, WORDS, broken, cells_of, per_cent
from normscope.experiments.results import NOT_IN_PAPER, Claim, Noise, Results, t_quantile

_ALIKE = 1e-9  # points by which seeds differ through rounding alone


def above(
    results: Results,
    sentence: str,
    cell: Mapping[str, Any],
    base: Mapping[str, Any],
    region: tuple[float, float] = (0.0, math.inf),
    *,
    key: str = "knn",
    paper: str = NOT_IN_PAPER,
    recipe: str | None = None,
) -> Claim:
    """A claim on how many points of a share a cell is above another of its method.

    Args:
        results: with both cells.
        sentence: what is claimed.
        cell: what is compared.
        base: with what.
        region: of the points, where the claim is true.
        key: the share.
        paper: what the paper says.
        recipe: the base's unless given.
    """
    points, strays = difference(results, cell, base, key)
    told = base["recipe"] if recipe is None else recipe
    return Claim.over_seeds(sentence, points, region, paper=paper, recipe=told, noise=strays)


def gains_more(
    results: Results,
    sentence: str,
    pair: tuple[Mapping[str, Any], Mapping[str, Any]],
    other: tuple[Mapping[str, Any], Mapping[str, Any]],
    *,
    key: str = "knn",
    paper: str,
) -> Claim:
    """A claim that a pair of cells is further apart than a pair of another method.

    Args:
        results: with all four cells.
        sentence: what is claimed.
        pair: a cell and its base.
        other: the same of the other method.
        key: the share of which points are counted.
        paper: what the paper says.
    """
    (gained, strays), (others, stray) = (difference(results, *two, key) for two in (pair, other))
    return Claim.over_seeds(
        sentence,
        [a - b for a, b in zip(gained, others, strict=True)],
        (0.0, math.inf),
        paper=paper,
        recipe=pair[1]["recipe"],
        noise=Noise(
            math.hypot(strays.deviation, stray.deviation), min(strays.freedom, stray.freedom)
        ),
    )


def share(
    results: Results,
    sentence: str,
    part: Mapping[str, Any],
    whole: Mapping[str, Any],
    base: Mapping[str, Any],
    region: tuple[float, float],
) -> Claim:
    r"""A claim on the share of a gain that a part of it has: (part - base) / (whole - base).

    Its interval is Fieller's: the shares $s$ for which `part - s whole - (1 - s) base`, whose
    variance is $1 + s^2 + (1 - s)^2$ times that of a cell, may be zero. The noise is the larger of
    what `difference` has for part and whole. Nothing is known of a share of what may be nothing.

    Args:
        results: with all cells.
        sentence: what is claimed.
        part: a cell.
        whole: the cell that it is a part of.
        base: the cell without either.
        region: of the share, where the claim is true.
    """
    gained, strays = difference(results, part, base)
    all_gained, all_stray = difference(results, whole, base)
    a, b, noise = statistics.fmean(gained), statistics.fmean(all_gained), max(strays, all_stray)
    k = (t_quantile(noise.freedom) * noise.deviation) ** 2 / (2 * len(gained))
    square, line = b * b - 2 * k, a * b - k
    value, interval = a / b if b else 0.0, (-math.inf, math.inf)
    if square > 0:
        root = math.sqrt(max(0.0, line * line - square * (a * a - 2 * k)))
        interval = (line - root) / square, (line + root) / square
    return Claim(sentence, NOT_IN_PAPER, value, interval, region, base["recipe"])


def difference(
    results: Results, cell: Mapping[str, Any], base: Mapping[str, Any], key: str = "knn"
) -> tuple[list[float], Noise]:
    r"""Points of a share between two cells of a method, seed by seed, and how far one strays.

    Two or three seeds say little of that, and cells need not be alike. So what all the method's
    cells say counts as one seed more: with their variance $s_0^2$ of a difference, and the pair's
    own $s^2$ over n seeds, it is $(s_0^2 + (n - 1) s^2) / n$ with n degrees of freedom, or as many
    as $s_0^2$ has, if fewer. That is a moderated t (Smyth 2004) whose prior has one degree, and
    holds the pair too: with more degrees, pairs noisier than the rest are covered too seldom. The
    pair's own is all there is where no other cell tells. Seeds that are all alike say nothing, and
    anything is possible.
    """
    points = [a - b for a, b in zip(per_cent(cell, key), per_cent(base, key), strict=True)]
    own = len(points) - 1
    square = statistics.variance(points) if own else 0.0
    freedom = max(1, own)
    every = noise(results, base["values"]["method"], key)
    if every is not None:
        square = (2 * every.deviation**2 + own * square) / (1 + own)
        freedom = min(1 + own, every.freedom)
    deviation = math.sqrt(square)
    return points, Noise(deviation if deviation > _ALIKE else math.inf, freedom)


def noise(results: Results, method: str, key: str) -> Noise | None:
    """How far a share, in per cent, strays in a method's cells, all alike; None if nothing tells.

    What is left once each cell has its mean, and each seed of a column and reading its own: two
    cells are compared seed by seed. A cell in which a network broke tells nothing of it, nor one
    whose seeds are all alike, such as networks at chance.
    """
    blocks: dict[tuple[str, str], list[list[float]]] = {}
    for cell in results.data["cells"]:
        values = per_cent(cell, key)
        told = not broken(cell) and max(values) - min(values) > _ALIKE
        if cell["values"]["method"] == method and told:
            mean = statistics.fmean(values)
            here = blocks.setdefault((cell["column"], cell["recipe"]), [])
            here.append([value - mean for value in values])
    squares, freedom = 0.0, 0
    for cells in blocks.values():
        for seed in zip(*cells, strict=True):
            mean = statistics.fmean(seed)
            squares += sum((value - mean) ** 2 for value in seed)
        freedom += (len(cells) - 1) * (len(cells[0]) - 1)
    return Noise(math.sqrt(squares / freedom), freedom) if freedom else None


def gains(results: Results, better: str, base: str, key: str | None = None) -> Iterator[Claim]:
    """For each column and recipe that has both rows: whether one is above the other, as printed.

    Where the paper has it below, the claim is that it is below; where it prints nothing, the claim
    is ours.
    """
    cells = cells_of(results)
    told: str = results.data["key"] if key is None else key
    for (row, column, recipe), cell in cells.items():
        other = cells.get((base, column, recipe))
        if row != better or other is None:
            continue
        printed = None
        if cell["paper"] is not None and other["paper"] is not None:
            printed = cell["paper"] - other["paper"]
        below = printed is not None and printed < 0
        yield above(
            results,
            f"{better} is {'below' if below else 'above'} {base} on {column} (points of "
            f"{WORDS[told]})",
            cell,
            other,
            (-math.inf, 0.0) if below else (0.0, math.inf),
            key=told,
            paper=NOT_IN_PAPER if printed is None else f"{printed:+.1f}",
        )


def intervention_claims(results: Results) -> list[Claim]:
    """Each intervention against its method's default."""
    return [
        claim
        for method, interventions in INTERVENTIONS.items()
        for name in list(interventions)[1:]
        for claim in gains(results, f"{NAMES[method]}, {name}", f"{NAMES[method]}, default")
    ]
