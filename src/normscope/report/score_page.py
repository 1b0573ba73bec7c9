"""The page of a scored file: the verdict, its rows at both ends, its norms and scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

from normscope._environment import versions
from normscope.report.figures import BLUE, GREY, ORANGE
from normscope.report.html import Page, Section, Table, Thumbnail
from normscope.report.norm_sections import picture
from normscope.report.thumbnails import thumbnail
from normscope.scoring import FittedReference, Histogram, Row, Summary

_AUROC = (
    "Numbers behind a part are its AUROC and 95 % interval: 1 separates all rows, .5 is chance."
)


def score_page(
    file: str,
    reference: str,
    fitted: FittedReference,
    summary: Summary,
    *,
    lines: Sequence[str],
    meanings: Mapping[str, str],
    pictures: Mapping[int, Path] | None = None,
) -> Page:
    """The verdict, the rows at both ends by what is delivered, norms and scores, caveats.

    Args:
        file: its name.
        reference: the name of what it was compared with.
        fitted: the fitted reference.
        summary: of the file's scores.
        lines: the command's output: the rows and their mean norm, then caveats.
        meanings: of a row's status, in words.
        pictures: a row's number -> its image.
    """
    lead, *caveats = lines
    verdict = [*fitted.verdict, *caveats]
    if any(line.startswith("- ") for line in verdict):
        verdict.append(_AUROC)
    sections = [Section("Verdict", verdict)]
    if summary.highest:
        sections += [
            _ends_section("least", summary.lowest, summary.delivers, pictures),
            _ends_section("most", summary.highest, summary.delivers, pictures),
        ]
    sections.append(_rows_section(summary, meanings))
    if summary.norms is not None:
        sections.append(_norms_section(summary.norms, summary, by_norm=fitted.suffix == ".npz"))
    explained = getattr(fitted.confidence, "explained", None)
    if isinstance(explained, Mapping) and explained:
        sections.append(_covariates_section(explained))
    made = f"normscope {versions()['normscope']}. Reference: {reference}."
    return Page(f"Scores of {file}", lead, sections, made)


def _rows_section(summary: Summary, meanings: Mapping[str, str]) -> Section:
    named = {meanings[status]: n for status, n in summary.statuses.items()}
    scored = summary.scored - summary.statuses.get("outside", 0)
    counts = {"scored": scored, **named}
    rows = [[what, f"{n:,}", f"{100 * n / summary.rows:.3g}%"] for what, n in counts.items()]
    return Section("Rows", table=Table(("status", "rows", "share"), rows, numeric=(1, 2)))


def _norms_section(norms: Histogram, summary: Summary, *, by_norm: bool) -> Section:
    given = norms.reference is None
    beside = ", compared given covariates" if given else " and of the reference"
    share = "with a smaller norm" if by_norm else "that look newer"
    figures = [
        picture(
            lambda axes: _draw_shares(axes, summary.scores, "score", even=True),
            f"Scores: the share of the reference, given covariates if any, {share}. Rows like "
            "the reference's follow the dashed line.",
        ),
    ]
    if summary.confidences is not None:
        sure = summary.confidences
        figures.append(
            picture(
                lambda axes: _draw_shares(axes, sure, "confidence", even=False),
                "Confidence: the probability that the neighbours' vote is right.",
            )
        )
    figures.append(
        picture(
            lambda axes: _draw_norms(axes, norms),
            f"Norms of the file{beside}; the outermost 0.05 % of either end are left out.",
        )
    )
    return Section("Scores and norms", figures=figures)


def _draw_norms(axes: Axes, norms: Histogram) -> None:
    axes.stairs(norms.shares, norms.edges, color=BLUE, fill=True, alpha=0.55, label="file")
    if norms.reference is not None:
        look = {"color": ORANGE, "linewidth": 1.6, "label": "reference"}
        axes.stairs(norms.reference, norms.edges, **look)
    axes.set(xlabel="norm", ylabel="share of rows")
    axes.legend()


def _draw_shares(axes: Axes, counts: np.ndarray, name: str, *, even: bool) -> None:
    edges = np.linspace(0, 1, len(counts) + 1)
    axes.stairs(counts / counts.sum(), edges, color=BLUE, fill=True, alpha=0.55)
    if even:
        axes.axhline(1 / len(counts), color=GREY, linestyle="--", linewidth=1)
    axes.set(xlabel=name, ylabel="share of rows", xlim=(0, 1))


def _covariates_section(explained: Mapping[str, float]) -> Section:
    rows = [[name, f"{share:.1%}"] for name, share in explained.items()]
    text = "How much of the variance of the log norm each explains in the reference."
    return Section("Covariates", [text], Table(("covariate", "explained"), rows, numeric=(1,)))


def _ends_section(
    which: str, ends: Sequence[Row], delivers: str, pictures: Mapping[int, Path] | None
) -> Section:
    columns = {"score": [f"{row.score:.4f}" for row in ends]}
    if delivers == "confidence":
        columns = {delivers: [f"{row.confidence or 0:.4f}" for row in ends], **columns}
    columns["novelty, bits"] = [f"{row.novelty:.2f}" for row in ends]
    columns["norm"] = [f"{row.norm:.5g}" for row in ends]
    numeric = set(columns)
    columns = {"id": [str(row.id) for row in ends], **columns}
    if any(row.text is not None for row in ends):  # where a narrow screen shows it
        ahead = ("id", delivers)
        first = {name: columns.pop(name) for name in ahead}
        columns = {**first, "text": [row.text or "" for row in ends], **columns}
    places = [i for i, name in enumerate(columns) if name in numeric]
    table = Table([*columns], [*zip(*columns.values(), strict=True)], numeric=places)
    small = () if pictures is None else _thumbnails(ends, delivers, pictures)
    text = f"By {delivers}, {'lowest' if which == 'least' else 'highest'} first."
    return Section(f"Rows to trust {which}", [text], table, thumbnails=small)


def _thumbnails(
    ends: Sequence[Row], delivers: str, pictures: Mapping[int, Path]
) -> list[Thumbnail]:
    found = []
    for row in ends:
        path = pictures.get(row.place)
        value = row.confidence if delivers == "confidence" else row.score
        caption = f"{row.id}: {delivers} {value:.3f}"
        found.append(Thumbnail(None if path is None else thumbnail(path), caption))
    return found
