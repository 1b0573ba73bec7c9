"""Figures on the norms of a run, from the numbers that `evaluate` stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from normscope.report.figures import BLUE, GREY, ORANGE, new_figure, style

KNOWN = ("train", "test")  # splits of the data that the network was trained on
_LARGEST = 160.0  # area of a marker, in points squared, for the largest count
_SMALLEST = 12.0
_SIDE = 64  # pixels of an image in the gallery, at most: pages should stay small
_INK = "black"

Stored = Mapping[str, Any]


def violins(axes: Axes, splits: Stored) -> None:
    """The distribution of each split's norms over the training mean (Figure "in_out_violin").

    Args:
        axes: to draw in.
        splits: as `engine.evaluate_norms.splits` gives them: equal steps of rank are kept, which
            the density is estimated from.
    """
    for at, (name, found) in enumerate(splits.items()):
        norms = _numbers(found["quantiles"])
        if np.isfinite(norms).all():
            # Scott's width for as many as there were, not for as many as were kept
            width = found["n"] ** -0.2
            options: dict[str, Any] = {"showextrema": False, "bw_method": width}
            drawn = axes.violinplot([norms], [at], widths=0.85, **options)
            for body in drawn["bodies"]:  # pyright: ignore[reportGeneralTypeIssues]
                body.set(facecolor=_color(name), edgecolor=_color(name), alpha=0.55)
        mean = _number(found["mean"])
        axes.hlines(mean, at - 0.2, at + 0.2, color=_INK, linewidth=2)
        label = axes.annotate(f"{mean:.2f}", (at, mean), (0, 4), textcoords="offset points")
        label.set(ha="center", va="bottom", bbox={"color": "white", "alpha": 0.6, "pad": 0.8})
    _finish_splits(axes, splits)
    axes.set_ylim(0, 1.08 * axes.get_ylim()[1])  # room for the label of a narrow violin


def bars(axes: Axes, splits: Stored) -> None:
    """The mean norm of each split over the training mean (Figure "in_out_distribution_norms").

    Args:
        axes: to draw in.
        splits: as `engine.evaluate_norms.splits` gives them.
    """
    means = [_number(found["mean"]) for found in splits.values()]
    colors = [_color(name) for name in splits]
    drawn = axes.bar(range(len(means)), means, width=0.7, color=colors, alpha=0.8)
    axes.bar_label(drawn, fmt="{:.2f}", padding=2)
    _finish_splits(axes, splits)
    axes.margins(y=0.12)


def against_norm(
    axes: Axes, found: Stored, quantity: str, *, name: str | None = None, color: str = BLUE
) -> None:
    """A measure of confidence by buckets of the norm (Figure "norm_as_confidence").

    Markers grow with the rows of a bucket; bars are 95 % intervals. The legend has the trend of the
    buckets (Cochran and Armitage's test), and AUROC and rank correlation over rows.

    Args:
        axes: to draw in.
        found: as `engine.evaluate_norms.against` gives it.
        quantity: what was averaged, for the axis.
        name: of this curve among several, for the legend.
        color: its own.
    """
    buckets = {name: _numbers(values) for name, values in found["buckets"].items()}
    x, y = buckets["centres"], buckets["accuracy"]
    axes.set(xlabel="norm / largest norm", ylabel=quantity, xlim=(0, 1))
    if not len(x):
        axes.text(0.5, 0.5, "no bucket has more than 50 images", ha="center", va="center")
        axes.set_yticks([])
        return
    ends = [y - buckets["low"], buckets["high"] - y]
    axes.errorbar(x, y, np.maximum(ends, 0), color=color, capsize=2.5, linewidth=1.2)
    label = _told(found) if name is None else name
    axes.scatter(x, y, _areas(buckets["counts"]), color=color, zorder=3, label=label)
    # numbers alone have no marker: it would look like one more bucket
    axes.legend(loc="best", handlelength=1 if name else 0, markerscale=1 if name else 0)
    axes.margins(y=0.15)


def risk_coverage_curve(axes: Axes, calibration: Stored) -> None:
    """The share of wrong answers among the surest images, beside the worst and best orders.

    Args:
        axes: to draw in.
        calibration: as `engine.evaluate_norms.calibration` gives it; the area under each curve
            stands in the legend.
    """
    coverage, risk = _numbers(calibration["coverage"]), _numbers(calibration["risk"])
    random, oracle = _number(calibration["random_aurc"]), _number(calibration["oracle_aurc"])
    ours = f"by norm, AURC {_number(calibration['aurc']):.3f}"
    axes.plot(coverage, risk, color=BLUE, label=ours)
    axes.axhline(random, color=GREY, linestyle="--", label=f"at random, {random:.3f}")
    # all right rows first: no risk until they are used up
    best = np.maximum(0, 1 - (1 - random) / coverage)
    axes.plot(coverage, best, color=ORANGE, linestyle=":", label=f"oracle, {oracle:.3f}")
    axes.set(xlabel="share of images answered", ylabel="share of these wrong", xlim=(0, 1))
    axes.set_ylim(0, 1.45 * max(axes.get_ylim()[1], 1e-3))  # the legend stands above the curves
    axes.legend(loc="upper left")


def reliability_curve(axes: Axes, calibration: Stored) -> None:
    """How often the network is right at each stated probability.

    Args:
        axes: to draw in.
        calibration: as `engine.evaluate_norms.calibration` gives it.
    """
    bins = {name: _numbers(values) for name, values in calibration["reliability"].items()}
    x, y = bins["confidence"], bins["accuracy"]
    low = max(0.0, float(min(x.min(), y.min())) - 0.06)
    label = f"{calibration['method']} calibration, ECE {_number(calibration['ece']):.3f}"
    if calibration.get("flat"):  # its error is that of one number
        label += " (flat)"
    axes.plot([low, 1], [low, 1], color=GREY, linestyle="--", label="calibrated")
    axes.plot(x, y, color=BLUE, linewidth=1.2)
    axes.scatter(x, y, _areas(bins["count"]), color=BLUE, zorder=3, label=label)
    axes.set(xlabel="stated probability", ylabel="share right", xlim=(low, 1.01), ylim=(low, 1.03))
    axes.legend(loc="upper left", handlelength=1)


def gallery(highest: np.ndarray, lowest: np.ndarray, classes: Sequence[str]) -> Figure:
    """Each class's images of highest norm beside those of lowest (Figure "cifar_norms").

    Args:
        highest: pixels, (classes, k, h, w, 3), uint8, the most extreme first.
        lowest: the same.
        classes: their names.
    """
    rows, columns = highest.shape[:2]
    side = 9.0 / (2 * columns + 1)  # inches that an image has
    with style():
        figure = new_figure(10, side * rows + 0.5)
        panels = figure.subplots(1, 2)
        for axes, pixels, title in (
            (panels[0], highest, "highest norm"),
            (panels[1], lowest, "lowest norm"),
        ):
            mosaic = _mosaic(pixels)
            # not resampled, so that the viewer keeps each pixel a square
            axes.imshow(mosaic, interpolation="none")
            axes.set_title(title)
            axes.grid(False)
            axes.set_xticks([])
            axes.spines[:].set_visible(False)
            step = mosaic.shape[0] / rows
            names = [name.replace("$", r"\$") for name in classes]  # a formula begins with it
            axes.set_yticks((np.arange(rows) + 0.5) * step - 0.5, names)
            axes.tick_params(length=0)
        panels[1].set_yticks([])
    return figure


def _mosaic(pixels: np.ndarray) -> np.ndarray:
    """Rows of images as one, with a white gap below and right of each, uint8 (h, w, 3)."""
    every = -(-max(pixels.shape[2:4]) // _SIDE)
    small = pixels[:, :, ::every, ::every]
    gap = max(1, small.shape[3] // 8)
    edges = ((0, 0), (0, 0), (0, gap), (0, gap), (0, 0))
    framed = np.pad(small, edges, constant_values=255)  # classes k h w 3
    n, k, h, w, c = framed.shape
    return framed.transpose(0, 2, 1, 3, 4).reshape(n * h, k * w, c)


def _finish_splits(axes: Axes, splits: Stored) -> None:
    axes.axhline(1, color=GREY, linestyle="--", linewidth=1, zorder=0)
    many = sum(map(len, splits)) > 24  # letters that stand side by side
    turned: dict[str, Any] = {"rotation": 30, "ha": "right"} if many else {}
    axes.set_xticks(range(len(splits)), list(splits), **turned)
    axes.set_ylabel("norm / mean of training images")
    axes.grid(False, axis="x")


def _told(found: Stored) -> str:
    """The statistics of a measure against the norm, for the legend."""
    auroc, trend = found["auroc"], found["trend"]
    lines = [] if auroc is None else [f"AUROC {auroc:.2f}"]
    if found["spearman"] is not None:
        lines.append(f"Spearman {found['spearman']:+.2f}")
    if trend["statistic"] is not None:
        lines.append(f"trend z = {trend['statistic']:+.1f}, {trend['rising']:.0%} of steps rise")
    return "\n".join(lines)


def _areas(counts: np.ndarray) -> np.ndarray:
    """Sizes of markers, in proportion to counts but never too small to be seen."""
    return np.maximum(_LARGEST * counts / counts.max(), _SMALLEST)


def _color(split: str) -> str:
    return BLUE if split in KNOWN else ORANGE


def _numbers(values: Any) -> np.ndarray:
    return np.asarray(values, float)  # null, which stands for what is no number, becomes NaN


def _number(value: float | None) -> float:
    return float("nan") if value is None else float(value)
