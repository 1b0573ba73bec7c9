"""Tables of runs that were never trained."""

from collections.abc import Iterable

from normscope_paper.harness.cells import RunTable, TrainedCell, TrainedRun


def table_of(**knns: tuple[float | None, list[float]]) -> RunTable:
    """One column with a row for each name: the paper's cell and each seed's kNN."""
    return RunTable("knn", [cell(row, knn, paper=paper) for row, (paper, knn) in knns.items()])


def cell(
    row: str,
    knns: Iterable[float],
    *,
    column: str = "digits",
    method: str = "simclr",
    paper: float | None = None,
) -> TrainedCell:
    runs = [TrainedRun(knn=knn, norm=9.0 if knn else None) for knn in knns]
    return TrainedCell(row, column, {"method": method}, paper, runs=runs)
