"""Figures and tables of training runs, from what they logged."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from normscope._checks import invalid
from normscope.engine import RunFolder, RunResult
from normscope.report.figures import BLUE, GREEN, GREY, ORANGE, PINK, SKY, new_figure, style
from normscope.report.html import Table

# one look a run, distinguishable without colour too
_LOOKS = [
    {"color": GREY, "linestyle": "-"},
    {"color": BLUE, "linestyle": "--"},
    {"color": GREEN, "linestyle": "-."},
    {"color": ORANGE, "linestyle": ":"},
    {"color": PINK, "linestyle": (0, (5, 1))},
    {"color": SKY, "linestyle": (0, (1, 1))},
]


def check_logged(run: RunResult) -> None:
    """Refuse a run whose log is not as it was written."""
    try:
        for series in (_norms, rates, _losses, _accuracies):
            at, values = series(run)
            if not len(at) or not np.isrealobj(np.asarray([at, values], float)):
                raise ValueError
        [record["line"] for record in run.metrics("alarm") + run.metrics("withdrawn")]
        layers_table(run)
    except Exception:  # damaged files raise errors of any kind
        path, advice = RunFolder(run.folder).metrics, "Remove the folder and train again."
        raise invalid(str(path), "as train wrote it", "another, or half of it", advice) from None


def curves(runs: Mapping[str, RunResult]) -> dict[str, Figure]:
    """Quantities of several runs over their epochs, a figure each, by caption."""
    measured = {name: run for name, run in runs.items() if _angles(run)[0]}
    what = "angle that the median layer turns by in a step"
    turning = {what: _drawn(measured, _angles, "rad per step", yscale="log")} if measured else {}
    classified = {name: run for name, run in runs.items() if not math.isnan(run.knn)}
    accuracy = {}
    if classified:  # images without classes have no accuracy
        what = "kNN accuracy on held-out images"
        accuracy = {what: _drawn(classified, _accuracies, "accuracy, %", xscale="log")}
    return {
        "mean embedding norm": _drawn(runs, _norms, "$|z|$ at the loss", yscale="log"),
        **accuracy,
        "effective learning rate": _drawn(runs, rates, "learning rate / $|w|^2$", yscale="log"),
        "loss": _drawn(runs, _losses, "loss"),
    } | turning


Series = tuple[Sequence[float], Sequence[float]]


def _norms(run: RunResult) -> Series:
    return _of_steps(run, "norm_mean")


def rates(run: RunResult) -> Series:
    """The effective learning rate of the median scale-invariant weight; lr / |z| without one."""
    weights = "lr_over_weight_squared"
    logged = any(weights in record for record in run.metrics("step"))
    return _of_steps(run, weights if logged else "lr_over_norm")


def _angles(run: RunResult) -> Series:
    """Runs of earlier versions have none."""
    records = [r for r in run.metrics("step") if r.get("rad_per_step") is not None]
    per_epoch = run.steps / run.spec.epochs
    return [r["step"] / per_epoch for r in records], [r["rad_per_step"] for r in records]


def _losses(run: RunResult) -> Series:
    return run.history("loss")


def _accuracies(run: RunResult) -> Series:
    epochs, shares = run.history("knn")
    return epochs, [100 * share for share in shares]


def _of_steps(run: RunResult, key: str) -> Series:
    records = run.metrics("step")
    per_epoch = run.steps / run.spec.epochs
    values = [math.nan if r[key] is None else r[key] for r in records]  # null: not a number
    return [r["step"] / per_epoch for r in records], values


def _drawn(
    runs: Mapping[str, RunResult],
    series: Callable[[RunResult], Series],
    quantity: str,
    **scales: str,
) -> Figure:
    with style():
        figure = new_figure(4.6, 3.6)
        axes = figure.subplots()
        for (name, run), look in zip(runs.items(), _cycled(len(runs)), strict=True):
            at, values = series(run)
            few = len(at) < 12
            label = name.replace("$", r"\$").lstrip("_")  # which matplotlib would take otherwise
            axes.plot(at, values, label=label, marker="o" if few else "", markersize=4, **look)
        axes.set(xlabel="epoch", ylabel=quantity, **scales)
        if "xscale" in scales:  # measured at powers of two
            axes.set_xscale("log", base=2)
            axes.xaxis.set_major_formatter("{x:g}")
        if "yscale" in scales:  # 0.5 and 2 too, where their labels have room
            low, high = axes.get_ylim()
            subs = (1.0, 2.0, 5.0) if high < 1000 * low else (1.0,)
            axes.yaxis.set_major_locator(LogLocator(subs=subs))
            axes.yaxis.set_major_formatter("{x:g}")
            axes.yaxis.set_minor_formatter(NullFormatter())
        if len(runs) > 1:
            figure.legend(loc="outside upper center", ncols=2)
    return figure


def _cycled(n: int) -> Sequence[dict[str, Any]]:
    return [_LOOKS[i % len(_LOOKS)] for i in range(n)]


def summary_table(runs: Mapping[str, RunResult]) -> Table:
    """Each run's first and last norms and losses, and its result."""
    ends = ("norm, first", "norm, last", "loss, first", "loss, last", "highest effective rate")
    headings = ("run", *ends, "kNN", "seconds")
    rows = []
    for name, run in runs.items():
        norms, losses, highest = _norms(run)[1], run.history("loss")[1], max(rates(run)[1])
        row = [f"{norms[0]:.2f}", f"{norms[-1]:.2f}", f"{losses[0]:.3f}", f"{losses[-1]:.3f}"]
        rows.append(
            [
                name,
                *row,
                f"{highest:.2g}",
                "-" if math.isnan(run.knn) else f"{run.knn:.1%}",
                f"{run.seconds:.0f}",
            ]
        )
    return Table(headings, rows, numeric=range(1, len(headings)))


def layers_table(run: RunResult) -> Table | None:
    """How fast each layer turned, in the order of the network; None if that was not logged."""
    logged = run.metrics("layers")
    points = [r["rad_per_step_by_layer"] for r in run.metrics("step") if "rad_per_step" in r]
    if not logged or not points:
        return None
    rows = []
    for name, angles in zip(logged[0]["names"], zip(*points, strict=True), strict=True):
        known = [a for a in angles if a is not None]
        shown = [max(known), statistics.median(known)] if known else [math.nan] * 2
        rows.append([name, *(f"{angle:.2g}" for angle in shown)])
    return Table(("layer", "rad per step, highest", "median"), rows, numeric=(1, 2))
