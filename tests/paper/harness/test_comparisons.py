"""Claims on two cells of a table: points, spreads, and intervals that cover the truth."""

import math
import statistics
from dataclasses import replace
from itertools import pairwise, product

import numpy as np
import pytest
from tests.paper.harness.tables import cell, table_of  # pyright: ignore[reportMissingImports]

from normscope_paper.harness.cells import RunTable
from normscope_paper.harness.claims import NOT_IN_PAPER
from normscope_paper.harness.comparisons import (
    above,
    difference,
    gains,
    gains_more,
    pooled_spread,
    share,
)
from normscope_paper.harness.intervals import t_quantile


def test_a_gain_is_judged_by_the_papers_sign() -> None:
    table = table_of(default=(40.0, [0.5, 0.6]), cut=(43.5, [0.521, 0.619]))
    (claim,) = gains(table, "cut", "default")
    assert claim.value == pytest.approx(2)
    assert claim.paper == "+3.5"
    assert claim.verdict == "reproduced"
    worse = table_of(default=(40.0, [0.5, 0.6]), cut=(30.0, [0.521, 0.619]))
    (claim,) = gains(worse, "cut", "default")
    assert "below" in claim.sentence
    assert claim.verdict == "not reproduced"
    unknown = table_of(default=(None, [0.5, 0.6]), cut=(43.5, [0.5, 0.7]))
    (claim,) = gains(unknown, "cut", "default")
    assert claim.paper == NOT_IN_PAPER
    assert claim.verdict == "inconclusive"
    alike = table_of(default=(40.0, [0.56, 0.60]), cut=(43.5, [0.57, 0.61]))  # but for rounding
    (claim,) = gains(alike, "cut", "default")
    assert claim.verdict == "inconclusive"


def test_the_pooled_spread_is_what_neither_cells_nor_seeds_explain() -> None:
    rng = np.random.default_rng(0)
    cells = []
    for method, sd in (("simclr", 0.5), ("simsiam", 4.0)):
        for column in "ab":
            seeds = rng.normal(0, 10, 3)  # all cells of a column move together
            for row in range(40):
                knns = 50 + row / 2 + seeds + rng.normal(0, sd, 3)
                cells.append(cell(str(row), knns / 100, column=column, method=method))
    table = RunTable("knn", cells)
    for method, sd in (("simclr", 0.5), ("simsiam", 4.0)):
        found = pooled_spread(table, method, "knn")
        assert found is not None
        assert found.df == 2 * 39 * 2
        assert found.sd == pytest.approx(sd, rel=0.2)
    points, spread = difference(table, cells[1], cells[0])
    square = 2 * pooled_spread(table, "simclr", "knn").sd ** 2
    mixed = (square + 2 * statistics.variance(points)) / 3  # as one seed more
    assert spread == (pytest.approx(math.sqrt(mixed)), 3)
    claim = above(table, "second above first", cells[1], cells[0])
    half = t_quantile(3) * spread.sd / math.sqrt(3)
    assert claim.interval[1] - claim.value == pytest.approx(half)
    before = pooled_spread(table, "simclr", "knn")
    cells.append(cell("broken", [0.0] * 3, column="a"))
    assert pooled_spread(table, "simclr", "knn") == before  # it would make the others look alike
    assert pooled_spread(RunTable("knn", cells[:1]), "simclr", "knn") is None


def table_of_noise(rng, columns: int, rows: int, spread: float, factor: float) -> RunTable:
    """Cells of two seeds whose noise differs by some e ** spread, of the last two by `factor`."""
    cells = []
    for column, row in product(range(columns), range(rows)):
        last = column == columns - 1 and row >= rows - 2
        noise = 0.3 * (factor if last else 1.0) * math.exp(spread * rng.normal())
        knns = (50 + rng.normal(0, noise, 2)) / 100
        cells.append(cell(str(row), knns.tolist(), column=str(column)))
    return RunTable("knn", cells)


@pytest.mark.parametrize(
    ("columns", "rows", "spread", "factor", "least"),
    [
        (3, 2, 0.0, 1.0, 0.95),
        (3, 2, 1.0, 1.0, 0.94),
        (1, 3, 1.0, 1.0, 0.91),
        (2, 2, 1.0, 1.0, 0.91),
        (3, 2, 0.0, 3.0, 0.87),
        (3, 2, 0.0, 10.0, 0.82),
    ],
)
def test_intervals_hold_if_noise_differs_and_nearly_if_a_pair_is_the_noisiest(
    columns, rows, spread, factor, least
) -> None:
    rng, hits, tables = np.random.default_rng(1), 0, 1500
    for _ in range(tables):
        table = table_of_noise(rng, columns, rows, spread, factor)
        *_, base, last = table.cells
        low, high = above(table, "equal", last, base).interval
        hits += low <= 0 <= high
    assert hits / tables > least


def test_a_pair_alone_has_the_noise_of_its_own_seeds() -> None:
    rng = np.random.default_rng(1)
    alone = table_of_noise(rng, 1, 2, 0.0, 1.0)  # the pair is all there is
    base, other = alone.cells
    points, spread = difference(alone, other, base)
    assert spread == (pytest.approx(statistics.stdev(points)), 1)
    lost = [replace(c, runs=[replace(r, norm=None) for r in c.runs]) for c in alone.cells]
    broken = RunTable("knn", lost)  # no cell counts
    points, spread = difference(broken, lost[1], lost[0])
    assert spread == (pytest.approx(statistics.stdev(points)), 1)


def test_networks_at_chance_are_left_out_of_the_pooled_spread() -> None:
    table = table_of_noise(np.random.default_rng(1), 2, 3, 0.0, 1.0)
    before = pooled_spread(table, "simclr", "knn")
    table.cells.append(cell("chance", [0.1, 0.1], column="0"))
    assert pooled_spread(table, "simclr", "knn") == before


def test_an_interval_grows_smoothly_with_the_noise_of_other_cells() -> None:
    base, last = cell("0", [0.500, 0.501], column="2"), cell("1", [0.506, 0.502], column="2")
    widths = []
    for factor in np.linspace(0.05, 3, 60):
        off = factor * 0.003
        others = [
            cell(row, [0.5 - sign * off, 0.5 + sign * off], column=column)
            for column in "01"
            for row, sign in (("0", -1), ("1", 1))
        ]
        table = RunTable("knn", [*others, base, last])
        low, high = above(table, "equal", last, base).interval
        widths.append(high - low)
    assert widths == sorted(widths)
    assert all(wider < 1.1 * width for width, wider in pairwise(widths))


def test_a_share_has_fiellers_interval() -> None:
    rng, hits, tables = np.random.default_rng(2), 0, 500
    means = {"base": 50.0, "part": 54.0, "whole": 60.0, "other": 55.0, "last": 51.0}
    for _ in range(tables):
        knns = {row: (mean + rng.normal(0, 1, 3)) / 100 for row, mean in means.items()}
        table = table_of(**{row: (None, knn.tolist()) for row, knn in knns.items()})
        base, part, whole, *_ = table.cells
        claim = share(table, "half or more", part, whole, base, (0.5, math.inf))
        spread = max(difference(table, one, base)[1] for one in (part, whole))
        for s in filter(math.isfinite, claim.interval):  # what is left is just significant
            left = 100 * (knns["part"] - s * knns["whole"] - (1 - s) * knns["base"]).mean()
            variance = spread.sd**2 / 2 * (1 + s**2 + (1 - s) ** 2) / 3
            assert abs(left) == pytest.approx(t_quantile(spread.df) * math.sqrt(variance))
        hits += claim.interval[0] <= 0.4 <= claim.interval[1]
    assert hits / tables >= 0.95
    alike = table_of(base=(None, [0.5, 0.52]), part=(None, [0.6, 0.7]), whole=(None, [0.51, 0.5]))
    base, part, whole = alike.cells
    claim = share(alike, "of nothing", part, whole, base, (0.5, math.inf))
    assert claim.interval == (-math.inf, math.inf)


def test_a_gain_beyond_another_methods_has_the_noise_of_both() -> None:
    table = table_of(
        a=(None, [0.50, 0.51]), b=(None, [0.60, 0.63]), c=(None, [0.3, 0.32]), d=(None, [0.4, 0.41])
    )
    a, b = table.cells[:2]
    c, d = (replace(one, values={"method": "simsiam"}) for one in table.cells[2:])
    table = RunTable("knn", [a, b, c, d])
    claim = gains_more(table, "more", (b, a), (d, c), paper="more")
    spreads = [difference(table, *pair)[1] for pair in ((b, a), (d, c))]
    assert claim.value == pytest.approx(11 - 9.5)
    noise = math.sqrt(sum(one.sd**2 for one in spreads) / 2)
    df = min(one.df for one in spreads)
    assert claim.interval[1] - claim.value == pytest.approx(t_quantile(df) * noise)
