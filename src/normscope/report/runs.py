"""Figures and tables of training runs, from what they logged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from normscope.engine import RunResult
from normscope.report.figures import BLUE, GREEN, GREY, ORANGE, PINK, SKY, new_figure, style
from normscope.report.html import Table

# one look a run, told apart without colour too
_LOOKS = [
    {"color": GREY, "linestyle": "-"},
    {"color": BLUE, "linestyle": "--"},
    {"color": GREEN, "linestyle": "-."},
    {"color": ORANGE, "linestyle": ":"},
    {"color": PINK, "linestyle": (0, (5, 1))},
    {"color": SKY, "linestyle": (0, (1, 1))},
]


def curves(runs: Mapping[str, RunResult]) -> Figure:
    """Mean norm, kNN accuracy and effective learning rate of several runs over their epochs."""
    with style():
        figure = new_figure(10.5, 3.4)
        norm_axes, knn_axes, rate_axes = figure.subplots(1, 3)
        for (name, run), look in zip(runs.items(), _cycled(len(runs)), strict=True):
            steps = run.metrics("step")
            per_epoch = run.steps / run.spec.epochs
            epochs = [r["step"] / per_epoch for r in steps]
            norm_axes.plot(epochs, [r["norm_mean"] for r in steps], label=name, **look)
            rate_axes.plot(epochs, [r["lr_over_norm"] for r in steps], **look)
            at, accuracies = run.history("knn")
            knn_axes.plot(at, [100 * a for a in accuracies], marker="o", markersize=4, **look)
        _label(norm_axes, "Mean embedding norm", "$|z|$ at the loss")
        _label(knn_axes, "kNN on held-out images", "accuracy, %")
        _label(rate_axes, "Effective learning rate", "learning rate / mean norm")
        norm_axes.set_yscale("log")
        knn_axes.set_xscale("log", base=2)
        figure.legend(loc="outside lower center", ncols=min(len(runs), 5))
    return figure


def _cycled(n: int) -> Sequence[dict[str, Any]]:
    return [_LOOKS[i % len(_LOOKS)] for i in range(n)]


def _label(axes: Axes, title: str, quantity: str) -> None:
    axes.set(title=title, xlabel="epoch", ylabel=quantity)


def summary_table(runs: Mapping[str, RunResult]) -> Table:
    """Where each run's norms began and ended, and what it came to."""
    headings = ("run", "norm, first", "norm, last", "loss, first", "loss, last", "kNN", "seconds")
    rows = []
    for name, run in runs.items():
        steps = run.metrics("step")
        losses = run.history("loss")[1]
        row = [f"{steps[0]['norm_mean']:.2f}", f"{steps[-1]['norm_mean']:.2f}"]
        row += [f"{losses[0]:.3f}", f"{losses[-1]:.3f}", f"{run.knn:.1%}", f"{run.seconds:.0f}"]
        rows.append([name, *row])
    return Table(headings, rows, numeric=range(1, len(headings)))
