"""The page of a scored file: its norms among the reference's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes

from normscope._environment import versions
from normscope.report.figures import BLUE, GREY, ORANGE
from normscope.report.html import Page, Section, Table
from normscope.report.norm_sections import picture
from normscope.scoring import FittedReference, Histogram, Row, Summary


def score_page(
    file: str,
    reference: str,
    fitted: FittedReference,
    summary: Summary,
    *,
    lines: Sequence[str],
    meanings: Mapping[str, str],
) -> Page:
    """Norms and scores of a file, caveats, and the rows at both ends.

    Args:
        file: its name.
        reference: the name of what it was compared with.
        fitted: the fitted reference.
        summary: of the file's scores.
        lines: the command's output: the rows and their mean norm, then warnings.
        meanings: of a row's status, in words.
    """
    lead, *warnings = lines
    sections = [_rows_section(summary, warnings, meanings)]
    if summary.norms is not None:
        sections.append(_norms_section(summary.norms, summary.scores))
    if fitted.confidence.explained:
        sections.append(_covariates_section(fitted.confidence.explained))
    if summary.highest:
        sections += [
            _ends_section("Rows of largest norm", summary.highest),
            _ends_section("Rows of smallest norm", summary.lowest),
        ]
    made = f"normscope {versions()['normscope']}. Reference: {reference}."
    return Page(f"Norms of {file}", lead, sections, made)


def _rows_section(
    summary: Summary, warnings: Sequence[str], meanings: Mapping[str, str]
) -> Section:
    scored = summary.rows - sum(summary.statuses.values())
    counts = {"scored": scored, **{meanings[s]: n for s, n in summary.statuses.items()}}
    rows = [[what, f"{n:,}", f"{100 * n / summary.rows:.3g}%"] for what, n in counts.items()]
    table = Table(("status", "rows", "share"), rows, numeric=(1, 2))
    return Section("Rows", warnings, table)


def _norms_section(norms: Histogram, scores: np.ndarray) -> Section:
    given = norms.reference is None
    beside = ", compared given covariates" if given else " and of the reference"
    return Section(
        "Norms and scores",
        figures=[
            picture(
                lambda axes: _draw_norms(axes, norms),
                f"Norms of the file{beside}; the outermost 0.05 % of either end are left out.",
            ),
            picture(
                lambda axes: _draw_scores(axes, scores),
                "Scores: the share of the reference, given covariates if any, with a smaller "
                "norm. Rows like the reference's follow the dashed line.",
            ),
        ],
    )


def _draw_norms(axes: Axes, norms: Histogram) -> None:
    axes.stairs(norms.shares, norms.edges, color=BLUE, fill=True, alpha=0.55, label="file")
    if norms.reference is not None:
        look = {"color": ORANGE, "linewidth": 1.6, "label": "reference"}
        axes.stairs(norms.reference, norms.edges, **look)
    axes.set(xlabel="norm", ylabel="share of rows")
    axes.legend()


def _draw_scores(axes: Axes, scores: np.ndarray) -> None:
    edges = np.linspace(0, 1, len(scores) + 1)
    axes.stairs(scores / scores.sum(), edges, color=BLUE, fill=True, alpha=0.55)
    axes.axhline(1 / len(scores), color=GREY, linestyle="--", linewidth=1)
    axes.set(xlabel="score", ylabel="share of rows", xlim=(0, 1))


def _covariates_section(explained: Mapping[str, float]) -> Section:
    rows = [[name, f"{share:.1%}"] for name, share in explained.items()]
    text = "How much of the variance of the log norm each explains in the reference."
    return Section("Covariates", [text], Table(("covariate", "explained"), rows, numeric=(1,)))


def _ends_section(title: str, ends: Sequence[Row]) -> Section:
    rows = [[str(r.id), f"{r.norm:.5g}", f"{r.score:.4f}", f"{r.novelty:.2f}"] for r in ends]
    headings = ["id", "norm", "score", "novelty, bits"]
    if any(row.text is not None for row in ends):
        headings.append("text")
        rows = [[*row, r.text or ""] for row, r in zip(rows, ends, strict=True)]
    return Section(title, table=Table(headings, rows, numeric=(1, 2, 3)))
