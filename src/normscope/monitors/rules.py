"""Signs that a training goes wrong, each with the remedy that its cause asks for.

The thresholds come from derivations, from stored runs on CIFAR, and from seven methods at rates
from .01 to 100 on digits (tests/monitors/trainings.py with seed 0). The tests' table has others.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from normscope.monitors.course import KEPT, Course

# Momentum .9 makes some ten steps alike, so at this angle the weights walk a radian at random in a
# million steps, and even straight ahead in 3,300. Trainings that learned peaked at .003 to .1.
SLOW = 3e-4
# What a remedy aims at: on digits the best of ten rates of SimCLR, SimSiam and BYOL peaked at .005
# to .008 (benchmarks/rates.py).
GOOD_ANGLE = 0.007
# Below this float32 weights hardly change: an angle says no more than that.
UNRESOLVED = 1e-8
# Trainings that collapsed for want of a stop-gradient or negatives peaked at .01 to .027.
BRISK = 0.05
# A right angle in fifteen steps. Of the trainings that learned one passed it, at one log point;
# weights that decay had shrunk stayed above, at .15 to .3.
WILD = 0.1
# Steps at right angles to w lengthen it: |w|^4 grows by 2 a^2 |w_0|^4 per step at a first angle a,
# and ten times as fast with momentum. So 40,000 steps at .1 come to a factor of 9 in |w|.
GROWN = 10.0
# Trainings that learned grew to 5 times at most, or kept a rank of 7 and more.
GROWN_WITH_LOW_RANK = 3.0
# Between this and its inverse weights are about as they were.
SHRUNK = 0.7
# An initialisation has rows of norm .15 to 1.5 (the root mean square over a layer's).
UNDERSIZED, OVERSIZED = 0.1, 8.0
# Rows within some two degrees of one direction: the per-channel deviation that SimSiam watches
# (Chen & He 2021, Figure 2) is then 3 % of that of evenly spread embeddings.
COLLAPSED = 1 - 1e-3
# BYOL passes .98 early and recovers; SimSiam without its stop-gradient stays at .996.
TOGETHER, APART = 0.99, 0.97
# RankMe of a batch on a line is 1, of one spread evenly over two axes 2.
LINE = 1.5
# Stored runs that ended with a rank up to 3.1 had lost a third of their accuracy or more; those
# that learned ended with 4 and more, and passed lower ranks only while these rose.
FEW, ENOUGH = 3.5, 5.0
# Three orders of magnitude beyond the norms of 3 to 40 that training ends with.
SMALLEST_NORM, LARGEST_NORM, LARGEST_CHANGE = 1e-3, 1e4, 1e3

UNSTOPPED = "Stop the gradient on one side of the loss, or add a term that pushes rows apart."


class Sign(NamedTuple):
    """One condition: whether it holds, whether it has clearly ended, and its line."""

    kind: str
    holds: bool
    ended: bool
    line: str


def signs(record: Mapping[str, Any], course: Course, *, power: float) -> Iterator[Sign]:
    """All conditions that a record can decide, the graver first.

    Args:
        record: the quantities of one observation.
        course: the training so far, this observation among it.
        power: GradScale's.
    """
    yield from _not_finite(record)
    yield from _collapsed(record, course, power)
    yield from _too_fast(record, course, power)
    yield from _few_directions(record, course, power)
    yield from _too_slow(record, course)
    yield from _norm_gone(record, course, power)


def _not_finite(record: Mapping[str, Any]) -> Iterator[Sign]:
    advice = "Lower the lr, clip gradients, or leave float16 for bfloat16."
    if "nonfinite" in record:
        share = record["nonfinite"]
        line = f"{100 * share:.3g}% of the embeddings are NaN or infinite. {advice}"
        yield Sign("embedding", share > 0, share == 0, line)
    if "growth_predicted" in record:
        broken = not math.isfinite(record["growth_predicted"]) and not record.get("nonfinite")
        line = f"the gradient in the embeddings is NaN or infinite. {advice}"
        yield Sign("gradient", broken, not broken, line)


def _collapsed(record: Mapping[str, Any], course: Course, power: float) -> Iterator[Sign]:
    cosine = record.get("mean_cosine", math.nan)
    if math.isnan(cosine):
        return
    why = _cause(course, power) or _too_brisk(course, BRISK) or UNSTOPPED
    if course.first_size < UNDERSIZED:
        why = f"The initial weights are small, with rows of norm {course.first_size:.2g}: biases "
        why += "or a norm's eps outweigh them. Cut them by less."
    line = f"embeddings collapse to one direction, their mean cosine is {cosine:.5f}. {why}"
    holds = cosine > COLLAPSED or course.together >= 3
    yield Sign("collapse", holds, cosine < APART, line)


def _too_fast(record: Mapping[str, Any], course: Course, power: float) -> Iterator[Sign]:
    if not course.angles:
        return
    rank = course.ranks[-1] if course.ranks else math.nan
    low = rank < min(ENOUGH, record.get("rank_limit", 0) / 4)
    grown = course.growth > GROWN or (course.growth > GROWN_WITH_LOW_RANK and low)
    if grown:
        what = f"the first steps were too large: weights grew to {course.growth:.3g} times"
        line = f"{what} their length. {_cause(course, power)}"
    else:
        line = f"layers turn by {course.angle:.2g} rad per step and forget. {_cause(course, power)}"
    settled = course.growth < GROWN / 2 and not low and course.angle < WILD / 2
    yield Sign("fast", grown or course.wild >= 2, settled, line)


def _few_directions(record: Mapping[str, Any], course: Course, power: float) -> Iterator[Sign]:
    rank = record.get("rank", math.nan)
    if math.isnan(rank):
        return
    why = _cause(course, power) or _too_brisk(course, 2 * GOOD_ANGLE)
    why = why or "Lower the lr, or stop the gradient on one side of the loss."
    line = f"embeddings lie near one line, their RankMe is {rank:.2f}. {why}"
    holds = rank < LINE
    if not holds:
        kept = course.ranks
        rises = len(kept) < KEPT or rank > 1.05 * kept[0]
        few = max(kept) < min(FEW, record.get("rank_limit", 0) / 4)
        holds = few and not rises and not course.rising
        line = f"embeddings keep to some {rank:.2g} directions, by RankMe, and no more. {why}"
    yield Sign("line", holds, rank > ENOUGH, line)


def _too_slow(record: Mapping[str, Any], course: Course) -> Iterator[Sign]:  # noqa: ARG001
    slow = course.top_angle < SLOW and course.reach < 0.3
    times = GOOD_ANGLE / max(course.top_angle, 1e-9)
    what = f"layers turn by {course.top_angle:.1g} rad per step at most: this hardly trains them."
    if course.first_size > OVERSIZED:
        size = f"The initial weights are large, with rows of norm {course.first_size:.3g}: "
        advice = f"{size}cut them by {nice(course.first_size)} (cut_init_)."
    elif course.top_angle < UNRESOLVED:
        advice = "Raise the lr by orders of magnitude."
    else:
        cut = f"under SGD cut the initial weights by {nice(times**0.5)} (cut_init_)"
        advice = f"Raise the lr {nice(times)} times, or {cut}."
    judged = course.angles >= 3 and not course.rising
    yield Sign("slow", slow and judged, not slow, f"{what} {advice}")


def _norm_gone(record: Mapping[str, Any], course: Course, power: float) -> Iterator[Sign]:
    norm, first = record.get("norm_mean", math.nan), course.first_norm
    if not math.isfinite(norm):
        return
    since = f"the mean norm is {norm:.3g}, and was {first:.3g} at first."
    # norms that start far off are judged by their change alone
    least = max(min(SMALLEST_NORM, first / 100), first / LARGEST_CHANGE)
    advice = "Lower the weight decay, or cut the weights by less."
    yield Sign("vanishing", norm <= least, norm > 3 * least, f"{since} {advice}")
    # a first norm of zero says nothing about the scale
    most = min(max(LARGEST_NORM, 100 * first), first * LARGEST_CHANGE or LARGEST_NORM)
    advice = "Lower the lr, or add weight decay."
    if power > 0:
        advice = (
            'GradScale removes what keeps norms from growing: lower the lr, or take of="share".'
        )
    yield Sign("exploding", norm > most, norm < most / 3, f"{since} {advice}")


def _cause(course: Course, power: float) -> str:
    """The remedy, if the weights show why; else nothing."""
    if course.growth > GROWN_WITH_LOW_RANK:
        share = ' GradScale removes the brake: take of="share".' if power > 0 else ""
        least = nice(min(course.growth, 100.0))
        return f"Start again with the lr divided by at least {least}; range_test says more.{share}"
    if course.growth < SHRUNK:
        return "Weight decay has shrunk the weights, which turn the faster: lower it."
    if course.wild:
        return f"Divide the lr by {nice(course.angle / GOOD_ANGLE)}."
    return ""


def _too_brisk(course: Course, angle: float) -> str:
    """The remedy, if layers have turned by more than an angle per step; else nothing."""
    if course.top_angle <= angle:
        return ""
    return f"Layers turned by up to {course.top_angle:.2g} rad per step: divide the lr by " + (
        f"{nice(course.top_angle / GOOD_ANGLE)}."
    )


def nice(x: float) -> str:
    """A factor in one or two digits.

    >>> nice(1.26), nice(23.4), nice(1234.0)
    ('1.3', '20', '1,000')
    """
    return f"{x:.2g}" if x < 10 else f"{float(f'{x:.1g}'):,.0f}"
