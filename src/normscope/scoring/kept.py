"""The rows that scores leave, and a file of their embeddings."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from normscope._checks import invalid
from normscope.scoring.blocks import Block, Source
from normscope.scoring.writers import Columns, written

# what `write_kept` writes: embeddings in .csv are columns e0, e1; writers take status as codes
_TAKEN = re.compile("id|status|embedding|e[0-9]+")


def kept_rows(
    scores: np.ndarray, *, share: float | None = None, threshold: float | None = None
) -> np.ndarray:
    """Which rows are kept, bools, (n,); rows without a score never are.

    Args:
        scores: (n,), NaN where there is none.
        share: of the rows that have a score, those of highest score; of equal ones the first.
        threshold: the lowest score that is kept.

    >>> kept_rows(np.array([0.2, np.nan, 0.9, 0.5]), share=2 / 3)
    array([False, False,  True,  True])
    """
    check_kept(share=share, threshold=threshold)
    scored = int((~np.isnan(scores)).sum())
    if not scored:
        raise invalid("rows", "at least one with a score", 0, "There is nothing to keep.")
    if share is None:
        kept = scores >= threshold
    else:
        order = np.argsort(-scores, kind="stable")  # NaN comes last
        kept = np.zeros(len(scores), bool)
        kept[order[: max(1, round(share * scored))]] = True
    if not kept.any():
        got = f"{threshold} where the highest is {np.nanmax(scores):.4g}"
        raise invalid("threshold", "a score that some row reaches", got, "Lower it.")
    return kept


def check_kept(
    *, share: float | None = None, threshold: float | None = None, covariates: Sequence[str] = ()
) -> None:
    """Refuse what names no rows, or covariates that would replace other columns of kept rows.

    Args:
        share: of the rows, as `kept_rows` takes it.
        threshold: of the score, as `kept_rows` takes it.
        covariates: that `write_kept` writes.
    """
    if (share is None) == (threshold is None):
        got = "none" if share is None else "both"
        raise invalid("keep", "one of a share and a threshold", got, "Give one of them.")
    if share is not None and not 0 < share <= 1:
        raise invalid("keep", "a share above 0, at most 1", share, "0.95 leaves out 5 %.")
    if threshold is not None and math.isnan(threshold):
        raise invalid("threshold", "a number", threshold, "Scores are from 0 to 1.")
    for name in covariates:
        if _TAKEN.fullmatch(name):
            constraint = "named otherwise than kept rows' other columns"
            raise invalid("covariate", constraint, name, "Rename the column.")


def write_kept(source: Source, kept: np.ndarray, out: Path) -> None:
    """Write id, embedding and covariates of kept rows to a file that can be scored in turn.

    Reads the source again.

    Args:
        source: of all rows.
        kept: bools, (rows,).
        out: ends in .parquet, .arrow, .npz, .csv or .jsonl.
    """
    start = 0
    with written(out) as writer:
        for block in source.blocks():
            check_kept(share=1, covariates=[*block.covariates])
            rows = np.flatnonzero(kept[start : start + len(block)])
            if len(rows):
                writer.write(_columns(block, rows, start))
            start += len(block)


def _columns(block: Block, rows: np.ndarray, start: int) -> Columns:
    z = block.z[rows]
    return {
        "id": rows + start if block.ids is None else block.ids[rows],
        "embedding": z.astype(z.dtype.newbyteorder("="), copy=False),
        **{name: column[rows] for name, column in block.covariates.items()},
    }


def texts_at(source: Source, places: set[int]) -> dict[int, str]:
    """The texts of the rows with these numbers; the source is read again, up to the last."""
    found: dict[int, str] = {}
    start = 0
    for block in source.blocks():
        if len(found) == len(places):
            break
        here = [i for i in places if start <= i < start + len(block)]
        if block.texts is not None:
            found |= {i: str(block.texts[i - start]) for i in here}
        start += len(block)
    return found
