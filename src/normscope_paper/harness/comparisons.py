"""Claims on two cells of a table: the points between them, and how much these vary over seeds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator

from normscope.methods import METHODS
from normscope_paper.harness.cells import INTERVENTIONS, WORDS, RunTable, TrainedCell
from normscope_paper.harness.claims import NOT_IN_PAPER, Claim, Comparison
from normscope_paper.harness.intervals import UNKNOWN, Interval, Spread, t_quantile

_ALIKE = 1e-9  # points by which equal seeds differ, through rounding
Pair = tuple[TrainedCell, TrainedCell]  # a cell, and what it is compared with


def above(
    table: RunTable,
    sentence: str,
    cell: TrainedCell,
    base: TrainedCell,
    region: Interval = (0.0, math.inf),
    *,
    key: str = "knn",
    paper: str = NOT_IN_PAPER,
    recipe: str | None = None,
    compares: Comparison | None = None,
) -> Claim:
    """A claim on how many points of a share a cell is above another of its method.

    Args:
        table: which has both cells.
        sentence: what is claimed.
        cell: what is compared.
        base: with what.
        region: of the points, where the claim is true.
        key: the share.
        paper: what the paper says.
        recipe: the base's unless given.
        compares: as in `Claim`.
    """
    points, spread = difference(table, cell, base, key)
    reading = base.recipe if recipe is None else recipe
    return Claim.over_seeds(
        sentence, points, region, paper=paper, recipe=reading, spread=spread, compares=compares
    )


def gains_more(
    table: RunTable, sentence: str, pair: Pair, other: Pair, *, key: str = "knn", paper: str
) -> Claim:
    """A claim that a pair of cells is further apart than a pair of another method.

    Args:
        table: which has all four cells.
        sentence: what is claimed.
        pair: a cell and its base.
        other: the same of the other method.
        key: the share of which points are counted.
        paper: what the paper says.
    """
    (gained, spread), (others, their) = (difference(table, *two, key) for two in (pair, other))
    return Claim.over_seeds(
        sentence,
        [a - b for a, b in zip(gained, others, strict=True)],
        (0.0, math.inf),
        paper=paper,
        recipe=pair[1].recipe,
        spread=Spread(math.hypot(spread.sd, their.sd), min(spread.df, their.df)),
    )


def share(
    table: RunTable,
    sentence: str,
    part: TrainedCell,
    whole: TrainedCell,
    base: TrainedCell,
    region: Interval,
) -> Claim:
    r"""A claim on a part's share of a gain: (part - base) / (whole - base).

    Its interval is Fieller's: the shares $s$ for which `part - s whole - (1 - s) base`, whose
    variance is $1 + s^2 + (1 - s)^2$ times that of a cell, may be zero. The spread is the larger of
    those that `difference` finds for part and whole. Where the gain may be nothing, so may any
    share of it.

    Args:
        table: which has all cells.
        sentence: what is claimed.
        part: a cell.
        whole: the cell that it is a part of.
        base: the cell without either.
        region: of the share, where the claim is true.
    """
    gained, spread = difference(table, part, base)
    all_gained, all_spread = difference(table, whole, base)
    a, b, wider = statistics.fmean(gained), statistics.fmean(all_gained), max(spread, all_spread)
    k = (t_quantile(wider.df) * wider.sd) ** 2 / (2 * len(gained))
    square, line = b * b - 2 * k, a * b - k
    value, interval = a / b if b else 0.0, UNKNOWN
    if square > 0:
        root = math.sqrt(max(0.0, line * line - square * (a * a - 2 * k)))
        interval = (line - root) / square, (line + root) / square
    return Claim(sentence, NOT_IN_PAPER, value, interval, region, base.recipe)


def difference(
    table: RunTable, cell: TrainedCell, base: TrainedCell, key: str = "knn"
) -> tuple[list[float], Spread]:
    r"""Points of a share between two cells of a method, seed by seed, and the spread of one.

    Two or three seeds estimate a spread poorly, and cells need not vary alike. So the method's
    cells together count as one extra seed: with their variance $s_0^2$ of a difference, and the
    pair's own $s^2$ over n seeds, the variance is $(s_0^2 + (n - 1) s^2) / n$ with n degrees of
    freedom, or as many as $s_0^2$ has, if fewer. That is a moderated t (Smyth 2004) whose prior has
    one degree of freedom and holds the pair too: with more, intervals of pairs that vary more than
    the rest cover the truth too seldom. Without other cells the pair's own variance is used. Seeds
    that are all alike give no estimate, and an infinite spread.
    """
    points = [a - b for a, b in zip(cell.per_cent(key), base.per_cent(key), strict=True)]
    own = len(points) - 1
    square = statistics.variance(points) if own else 0.0
    df = max(1, own)
    pooled = pooled_spread(table, base.method, key)
    if pooled is not None:
        square = (2 * pooled.sd**2 + own * square) / (1 + own)
        df = min(1 + own, pooled.df)
    sd = math.sqrt(square)
    return points, Spread(sd if sd > _ALIKE else math.inf, df)


def pooled_spread(table: RunTable, method: str, key: str) -> Spread | None:
    """The spread of a share, in per cent, in all cells of a method; None if there is no estimate.

    Each cell's mean is removed, and then each seed's mean over a column and reading, since cells
    are compared seed by seed. Cells in which a network broke are left out, and cells whose seeds
    are all alike, such as networks at chance.
    """
    blocks: dict[tuple[str, str], list[list[float]]] = {}
    for cell in table.cells:
        values = cell.per_cent(key)
        varies = not cell.broken and max(values) - min(values) > _ALIKE
        if cell.method == method and varies:
            mean = statistics.fmean(values)
            here = blocks.setdefault((cell.column, cell.recipe), [])
            here.append([value - mean for value in values])
    squares, df = 0.0, 0
    for cells in blocks.values():
        for seed in zip(*cells, strict=True):
            mean = statistics.fmean(seed)
            squares += sum((value - mean) ** 2 for value in seed)
        df += (len(cells) - 1) * (len(cells[0]) - 1)
    return Spread(math.sqrt(squares / df), df) if df else None


def gains(table: RunTable, better: str, base: str, key: str | None = None) -> Iterator[Claim]:
    """For each column and recipe that has both rows: whether one is above the other, as printed.

    Where the paper has it below, the claim is that it is below; where it prints nothing, the claim
    is ours.
    """
    share_of = table.key if key is None else key
    for column, recipe in table.readings:
        cell, other = table.get(better, column, recipe), table.get(base, column, recipe)
        if cell is None or other is None:
            continue
        printed = None
        if cell.paper is not None and other.paper is not None:
            printed = cell.paper - other.paper
        below = printed is not None and printed < 0
        yield above(
            table,
            f"{better} is {'below' if below else 'above'} {base} on {column} (points of "
            f"{WORDS[share_of]})",
            cell,
            other,
            (-math.inf, 0.0) if below else (0.0, math.inf),
            key=share_of,
            paper=NOT_IN_PAPER if printed is None else f"{printed:+.1f}",
            compares=Comparison(better, base, column) if share_of == "knn" else None,
        )


def intervention_claims(table: RunTable) -> list[Claim]:
    """Each intervention against its method's default."""
    return [
        claim
        for method, interventions in INTERVENTIONS.items()
        for name in list(interventions)[1:]
        for claim in gains(
            table, f"{METHODS[method].TITLE}, {name}", f"{METHODS[method].TITLE}, default"
        )
    ]
