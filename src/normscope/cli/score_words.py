"""What is said of scores, in the terminal and on the page."""

from __future__ import annotations

from normscope.scoring import FittedReference, Summary

MEANING = {
    "nan": "NaN in the embedding, no score",
    "infinite": "infinity in the embedding, no score",
    "zero": "all zero, no score",
    "ragged": "of another length, no score",
    "null": "no embedding, no score",
    "covariate": "a covariate that is not finite, no score",
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
    """Rows without a score, then warnings."""
    counts = [
        *left_out("the reference", reference.left_out),
        *left_out("FILE", summary.statuses),
    ]
    return [*counts, *reference.warnings]


def left_out(owner: str, counts: dict[str, int]) -> list[str]:
    """How many rows have each status, in words."""
    return [
        f"{n:,} {'row' if n == 1 else 'rows'} of {owner}: {MEANING[status]}"
        for status, n in counts.items()
    ]
