"""Signs in a record that training has gone wrong."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

# Rows within some two degrees of one direction: the per-channel deviation that SimSiam watches
# (Chen & He 2021, Figure 2) is then 3 % of that of evenly spread embeddings. Uniformity is near
# zero then and only then, so it has no threshold of its own.
_COLLAPSED_COSINE = 1 - 1e-3
# RankMe of a batch on a line is 1, of one spread evenly over two axes 2.
_COLLAPSED_RANK = 1.5
# Three orders of magnitude and more beyond the norms of 3 to 40 that training ends with.
_SMALLEST_NORM, _LARGEST_NORM = 1e-3, 1e4
_LARGEST_CHANGE = 1e3


def alarms_in(record: Mapping[str, Any], *, first_norm: float) -> dict[str, str | None]:
    """For each kind of alarm that the record can decide: its line, or None if all is well.

    Args:
        record: the quantities of one observation, and its `step`.
        first_norm: mean norm at the first observation.

    >>> alarms_in({"step": 7, "norm_mean": 2e4}, first_norm=9.0)["exploding"]
    'step 7: the mean norm is 2e+04, and was 9 at first. Lower the lr, or add weight decay.'
    """
    rules = (*_not_finite(record), *_collapsed(record), *_norm_gone(record, first_norm))
    return {
        kind: f"step {record['step']}: {line}" if rings else None for kind, rings, line in rules
    }


def _not_finite(record: Mapping[str, Any]) -> Iterator[tuple[str, bool, str]]:
    advice = "Lower the lr, clip gradients, or leave float16 for bfloat16."
    if "nonfinite" in record:
        share = record["nonfinite"]
        line = f"{100 * share:.3g}% of the embeddings are NaN or infinite. {advice}"
        yield "embedding", share > 0, line
    if "growth_predicted" in record:
        broken = not math.isfinite(record["growth_predicted"]) and not record.get("nonfinite")
        yield "gradient", broken, f"the gradient in the embeddings is NaN or infinite. {advice}"


def _collapsed(record: Mapping[str, Any]) -> Iterator[tuple[str, bool, str]]:
    cosine, rank = record.get("mean_cosine", math.nan), record.get("rank", math.nan)
    collapsed = cosine > _COLLAPSED_COSINE
    if not math.isnan(cosine):
        yield (
            "collapse",
            collapsed,
            f"embeddings collapse to one direction, their mean cosine is {cosine:.5f}. "
            "Does the loss push them apart, or stop the gradient on one side? Lower the lr.",
        )
    if not math.isnan(rank):
        yield (
            "line",
            rank < _COLLAPSED_RANK and not collapsed,  # one direction is a line too
            f"embeddings lie near one line, their RankMe is {rank:.2f}. "
            "Lower the lr or the weight decay.",
        )


def _norm_gone(record: Mapping[str, Any], first: float) -> Iterator[tuple[str, bool, str]]:
    norm = record.get("norm_mean", math.nan)
    if not math.isfinite(norm):
        return
    since = f"the mean norm is {norm:.3g}, and was {first:.3g} at first."
    vanishing = norm < max(_SMALLEST_NORM, first / _LARGEST_CHANGE)
    yield "vanishing", vanishing, f"{since} Lower the weight decay, or cut the weights by less."
    # a first norm of zero says nothing about the scale
    exploding = norm > min(_LARGEST_NORM, first * _LARGEST_CHANGE or _LARGEST_NORM)
    yield "exploding", exploding, f"{since} Lower the lr, or add weight decay."
