"""The page of a scored file: its norms among the reference's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes

from normscope._environment import versions
from normscope.report.figures import BLUE, GREY, ORANGE
from normscope.report.html import Page, Section, Table
from normscope.report.norm_sections import picture

Ends = Sequence[tuple[object, float, float, float]]  # id, norm, score, novelty


@dataclass(frozen=True, kw_only=True)
class ScoredFile:
    """What is known of a file once it is scored.

    Attributes:
        name: of the file.
        reference: what it was compared with.
        told: what the command told: the rows and their mean norm, then what to mind.
        edges: of the norms' bars, (b + 1,); empty if no row has a score.
        shares: of the file's rows, (b,).
        reference_shares: of the reference's, (b,); None if they are compared given covariates.
        scores: rows by score, in equal steps from 0 to 1.
        statuses: what a row is -> rows, those with a score among them.
        explained: covariate -> the share of the variance of the log norm that it explains.
        highest: rows of largest norm, the largest first.
        lowest: rows of smallest norm, the smallest first.
    """

    name: str
    reference: str
    told: Sequence[str]
    edges: np.ndarray
    shares: np.ndarray
    reference_shares: np.ndarray | None
    scores: np.ndarray
    statuses: Mapping[str, int]
    explained: Mapping[str, float]
    highest: Ends
    lowest: Ends


def score_page(found: ScoredFile) -> Page:
    """Norms and scores of a file, what to mind, and the rows at both ends."""
    lead, *warnings = found.told
    sections = [_rows_section(found, warnings)]
    if len(found.edges):
        sections.append(_norms_section(found))
    if found.explained:
        sections.append(_covariates_section(found.explained))
    if found.highest:
        sections += [
            _ends_section("Rows of largest norm", found.highest),
            _ends_section("Rows of smallest norm", found.lowest),
        ]
    made = f"normscope {versions()['normscope']}. Reference: {found.reference}."
    return Page(f"Norms of {found.name}", lead, sections, made)


def _rows_section(found: ScoredFile, warnings: Sequence[str]) -> Section:
    total = sum(found.statuses.values())
    rows = [[what, f"{n:,}", f"{100 * n / total:.3g}%"] for what, n in found.statuses.items()]
    table = Table(("status", "rows", "share"), rows, numeric=(1, 2))
    return Section("Rows", warnings, table)


def _norms_section(found: ScoredFile) -> Section:
    given = found.reference_shares is None
    beside = ", whose place is judged given covariates" if given else " and of the reference"
    return Section(
        "Norms and scores",
        figures=[
            picture(
                lambda axes: _draw_norms(axes, found),
                f"Norms of the file{beside}; the outermost 0.05 % of either end are left out.",
            ),
            picture(
                lambda axes: _draw_scores(axes, found.scores),
                "Scores: the share of the reference, given covariates if any, with a smaller "
                "norm. Rows like the reference's keep to the dashed line.",
            ),
        ],
    )


def _draw_norms(axes: Axes, found: ScoredFile) -> None:
    axes.stairs(found.shares, found.edges, color=BLUE, fill=True, alpha=0.55, label="file")
    if found.reference_shares is not None:
        axes.stairs(
            found.reference_shares, found.edges, color=ORANGE, linewidth=1.6, label="reference"
        )
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


def _ends_section(title: str, ends: Ends) -> Section:
    rows = [
        [str(name), f"{norm:.5g}", f"{score:.4f}", f"{novelty:.2f}"]
        for name, norm, score, novelty in ends
    ]
    headings = ("id", "norm", "score", "novelty, bits")
    return Section(title, table=Table(headings, rows, numeric=(1, 2, 3)))
