"""Tables of runs: what is kept of a run, and how a table is shown."""

import pytest
from tests.paper.harness.tables import table_of  # pyright: ignore[reportMissingImports]

from normscope.engine import RunSpec
from normscope_paper.harness import Results, StoredRun
from normscope_paper.harness.cell_tables import plot_cells, plot_courses, tables_markdown
from normscope_paper.harness.cells import RunTable, TrainedCell, TrainedRun, highest_rate
from normscope_paper.harness.results import Made

MADE = Made(device="", hardware="", versions={}, data_checksum="", seconds=1.0)


def stored(table: RunTable) -> Results:
    return Results("accuracies", "smoke", 2, 0, table.to_json())


def test_a_table_survives_json() -> None:
    table = table_of(default=(40.0, [0.5, 0.0]), cut=(None, [0.1, 0.1]))
    table.cells[0].runs[0].more["rate"] = 0.25
    again = RunTable.of(stored(table))
    assert again == table
    assert again["default", "digits", "text"].runs[0]["rate"] == 0.25
    assert again.get("default", "cifar10") is None


def test_table_sets_the_papers_cell_beside_ours() -> None:
    results = stored(table_of(default=(40.0, [0.5, 0.6]), cut=(None, [0.1, 0.1])))
    text, norms = tables_markdown(results, {"norm": {("cut", "digits"): 2.1}})
    assert "| default | 55.0 [50.0, 60.0] (paper: 40) |" in text
    assert "| cut | 10.0 [10.0, 10.0] |" in text
    assert norms.splitlines() == [
        "| embedding norm | digits |",
        "|---|---|",
        "| default | 9 [9, 9] |",
        "| cut | 9 [9, 9] (paper: 2.1) |",
    ]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, 0.3),
        ({"accumulate": 4, "accumulation": "sum"}, 1.2),
        ({"grad_scale": 1.0}, 0.8),
        ({"grad_scale": 1.0, "grad_scale_of": "mean"}, 0.8),
        ({"grad_scale": 1.0, "grad_scale_of": "share"}, 0.3),
    ],
)
def test_the_highest_rate_counts_what_multiplies_gradients(values, expected) -> None:
    seen = ((0.1, 1.0), (0.3, 2.0), (None, 3.0), (0.2, 4.0), (0.9, None))
    points = [
        {"kind": "step", "lr_over_weight_squared": rate, "norm_mean": norm} for rate, norm in seen
    ]
    run = StoredRun(RunSpec(**values), 0.5, 1.0, MADE, points)
    assert highest_rate(run) == {"rate": pytest.approx(expected)}
    assert highest_rate(StoredRun(RunSpec(), 0.5, 1.0, MADE, [])) == {"rate": None}


def test_table_counts_networks_that_broke() -> None:
    knns = {"some": [0.5, 0.0], "all": [0.0, 0.0], "none": [0.5, 0.4]}
    results = stored(table_of(**{row: (40.0, knn) for row, knn in knns.items()}))
    (text,) = tables_markdown(results, {})
    assert "| some | 25.0 [0.0, 50.0], 1 of 2 broke (paper: 40) |" in text
    assert "| all | broke (paper: 40) |" in text
    _, norms = tables_markdown(results, {"norm": {}})
    assert "| some | 9, 1 of 2 broke |" in norms
    assert "| all | broke |" in norms
    words = [note.get_text().strip() for note in plot_cells(results).axes[0].texts]
    assert words == ["broke", "broke"]


def test_norms_that_vanish_do_not_flatten_the_others() -> None:
    def drawn(last: float) -> tuple[float, float]:
        run = TrainedRun(epochs=[1, 2, 4], norms=[10.0, None, last], knns=[0.1, 0.2, 0.3])
        cells = [
            TrainedCell(row, column, {}, runs=[run])
            for row in ("default", "cut 9")
            for column in ("SimCLR", "SimSiam")
        ]
        figure = plot_courses(stored(RunTable("knn", cells)))
        assert [len(ax.lines) for ax in figure.axes] == [2] * 4
        return figure.axes[1].get_ylim()  # shared by both methods

    low, high = drawn(last=1e-24)
    assert (low, high) == pytest.approx((1e-5, 20.0))
    low, high = drawn(last=0.1)
    assert low < 0.1 < 10.0 < high
