"""What is said of scores, in the terminal and on the page."""

from __future__ import annotations

from normscope.scoring import LEFT_OUT, FittedReference, Summary

MEANING = {
    **{status: f"{words}, no score" for status, words in LEFT_OUT.items()},
    "outside": "a covariate beyond the reference's range, judged as at its end",
}


def in_words(reference: FittedReference, summary: Summary) -> str:
    """The rows, their mean norm, and how many are unlike the reference."""
    of = "" if reference.norm_mean is None else f" ({reference.norm_mean:.4g} in the reference)"
    if reference.suffix == ".npz":
        low = "below the reference's 5 % quantile"
    else:
        low = "look new (score below .05), where 5 % of rows like the reference do"
    return f"{summary.rows:,} rows, mean norm {summary.norm_mean:.4g}{of}, {summary.low:.1%} {low}"


def caveats(reference: FittedReference, summary: Summary) -> list[str]:
    """Rows without a score, rows that the reference holds, then warnings."""
    counts = [
        *left_out("the reference", reference.left_out),
        *left_out("FILE", summary.statuses),
    ]
    return [*counts, *held(summary), *reference.warnings]


def held(summary: Summary) -> list[str]:
    """How many rows are in the reference too, and what that does to their scores."""
    lines = []
    if summary.own:
        rows = "row of FILE is" if summary.own == 1 else "rows of FILE are"
        lines.append(
            f"{summary.own:,} {rows} also in the reference: each was left out of it for its own "
            "score."
        )
    if summary.copies:
        rows = "row of FILE has" if summary.copies == 1 else "rows of FILE have"
        lines.append(
            f"Warning: {summary.copies:,} {rows} a row of the same direction in the reference. "
            "Copies look less new than they are: leave them out of one of the two."
        )
    return lines


def left_out(owner: str, counts: dict[str, int]) -> list[str]:
    """How many rows have each status, in words."""
    return [
        f"{n:,} {'row' if n == 1 else 'rows'} of {owner}: {MEANING[status]}"
        for status, n in counts.items()
    ]
