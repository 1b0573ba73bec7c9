"""How well a score separates in-distribution rows from others."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np

from normscope._checks import invalid
from normscope.evaluation.inputs import Values, column
from normscope.evaluation.ranks import auroc_of_counts, average_precision_of_counts


@dataclass(frozen=True)
class OodMetrics:
    """The usual measures, all from 0 to 1.

    Attributes:
        auroc: the chance that an in-distribution row scores above another; ties count one half.
        aupr_in: average precision with in-distribution rows as the positive ones.
        aupr_out: the same with out-of-distribution rows, by the score's negative.
        fpr95_id_kept: the share of out-of-distribution rows accepted where 95 % of the
            in-distribution ones are: of ODIN (Liang et al., 2018) and OpenOOD 1.0. Lower is better.
        fpr95_ood_caught: the share of in-distribution rows flagged where 95 % of the
            out-of-distribution ones are: of OpenOOD 1.5 and pytorch-ood. Lower is better.
    """

    auroc: float
    aupr_in: float
    aupr_out: float
    fpr95_id_kept: float
    fpr95_ood_caught: float


def ood_metrics(in_scores: Values, out_scores: Values) -> OodMetrics:
    r"""Measure a score that should be higher in distribution.

    For `fpr95_id_kept` a row is accepted if its score is at least t, the highest t that accepts
    95 % or more of the in-distribution rows. For `fpr95_ood_caught` it is flagged if its score is
    at most t, the lowest t that flags 95 % or more of the others. So rows tied with a threshold
    count against the score, and t is the score of a row. (OpenOOD 1.0 rounds the 95 % down and
    does not count rows tied with t.)

    Args:
        in_scores: of in-distribution rows, (n,).
        out_scores: of out-of-distribution rows, (m,).

    >>> ood_metrics(np.array([0.9, 0.8, 0.3]), np.array([0.5, 0.1])).fpr95_id_kept
    0.5
    """
    inside, outside, cells = _cells(in_scores, out_scores)
    return _measure(np.bincount(inside, minlength=cells), np.bincount(outside, minlength=cells))


def ood_intervals(
    in_scores: Values, out_scores: Values, *, draws: int = 200, seed: int = 0
) -> dict[str, tuple[float, float]]:
    """95 % intervals of each of `ood_metrics`: percentiles over bootstrap draws of both sets.

    Draws are counted at the distinct scores, so memory is that of one draw.

    Args:
        in_scores: of in-distribution rows, (n,).
        out_scores: of out-of-distribution rows, (m,).
        draws: at least 2; the usual is 200 or more.
        seed: of the draws.

    >>> ood_intervals(np.array([3.0, 4.0]), np.array([1.0, 2.0]))["auroc"]
    (1.0, 1.0)
    """
    if not isinstance(draws, int) or isinstance(draws, bool) or draws < 2:
        raise invalid("draws", "an integer of at least 2", draws, "The default is 200.")
    inside, outside, cells = _cells(in_scores, out_scores)
    rng = np.random.default_rng(seed)
    drawn = []
    for _ in range(draws):
        some_in, some_out = (
            np.bincount(cell[rng.integers(len(cell), size=len(cell))], minlength=cells)
            for cell in (inside, outside)
        )
        drawn.append(list(asdict(_measure(some_in, some_out)).values()))
    ends = np.quantile(np.array(drawn), [0.025, 0.975], axis=0).T.tolist()
    names = OodMetrics.__dataclass_fields__
    return {name: (low, high) for name, (low, high) in zip(names, ends, strict=True)}


def _cells(in_scores: Values, out_scores: Values) -> tuple[np.ndarray, np.ndarray, int]:
    """The index of each row's score among all distinct ones, for both sets, and their number.

    The metrics depend only on the order of the scores.
    """
    inside, outside = column("in_scores", in_scores), column("out_scores", out_scores)
    distinct, cell = np.unique(np.concatenate([inside, outside]), return_inverse=True)
    return cell[: len(inside)], cell[len(inside) :], len(distinct)


def _measure(inside: np.ndarray, outside: np.ndarray) -> OodMetrics:
    """From the number of rows of each set at each distinct score, ascending."""
    return OodMetrics(
        auroc=auroc_of_counts(inside, outside),
        aupr_in=average_precision_of_counts(inside, outside),
        aupr_out=average_precision_of_counts(outside[::-1], inside[::-1]),
        fpr95_id_kept=_fpr95(inside[::-1], outside[::-1]),
        fpr95_ood_caught=_fpr95(outside, inside),
    )


def _fpr95(wanted: np.ndarray, other: np.ndarray) -> float:
    """The share of the other rows up to the first score that reaches 95 % of the wanted ones."""
    reached = np.cumsum(wanted)
    first = int(np.argmax(20 * reached >= 19 * reached[-1]))  # in whole numbers: no rounding
    return float(other[: first + 1].sum() / other.sum())
