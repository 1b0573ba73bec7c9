"""The parts of a page on a network's norms, from what `evaluate` stored."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from normscope.report.figures import new_figure, style
from normscope.report.html import Picture, Section, Table
from normscope.report.norm_figures import (
    KNOWN,
    against_norm,
    bars,
    gallery,
    reliability_curve,
    risk_coverage_curve,
    violins,
)

Stored = Mapping[str, Any]
_ROWS = 20  # classes in one figure of the gallery: it fits on a printed page

# block of `confidence` -> what the axis says, what the caption says
_MEASURES = {
    "knn": ("kNN accuracy", "Whether the kNN classifies a test image right"),
    "consensus": ("human agreement", "Whether people's label of a training image is the true one"),
    "entropy": ("human entropy, nats", "How much people disagree on a test image"),
}
# column of the novelty table -> its heading, and whether more is better
_NOVELTY = {
    "auroc": ("AUROC", True),
    "aupr_in": ("AUPR in", True),
    "aupr_out": ("AUPR out", True),
    "fpr95_id_kept": ("FPR95, known kept", False),
    "fpr95_ood_caught": ("FPR95, new caught", False),
}


def norms_in_words(found: Stored) -> str:
    """In brief: how far norms fall on new images, and if they separate right from wrong."""
    new = {name: split["mean"] for name, split in found["splits"].items() if name not in KNOWN}
    text = ""
    if new:
        falls = ", ".join(f"{short(mean)} on {name}" for name, mean in new.items())
        text += f" Mean norm on new images, relative to training images: {falls}."
    auroc = found["confidence"].get("knn", {}).get("auroc")
    if auroc is not None:
        text += f" The norm separates right from wrong answers with AUROC {auroc:.2f}."
    return text


def norm_sections(found: Stored) -> list[Section]:
    """Norms by split, against confidence, as novelty scores, and calibrated."""
    parts = [_splits_section(found)]
    if found["confidence"]:  # images without classes have none
        parts.append(_confidence_section(found))
    if found["novelty"]:
        parts.append(_novelty_section(found["novelty"]))
    if found["calibration"] is not None:  # too few images
        parts.append(_calibration_section(found["calibration"]))
    return parts


def layers_section(found: Stored) -> Section:
    """Accuracy and norms of each layer."""
    headings = ("layer", "kNN", "kNN, top 5", "linear probe", "norm, train", "norm, test")
    rows = []
    for name, layer in found["layers"].items():
        shares = [short(layer[key], ".1%") for key in ("knn", "knn_top5", "probe")]
        norms = [
            f"{short(layer[split]['norm_mean'], '.3g')} ± {short(layer[split]['norm_std'], '.2g')}"
            for split in KNOWN
        ]
        rows.append([name, *shares, *norms])
    text = f"After epoch {found['epoch']}, on the test images; norms with their standard deviation."
    return Section("Layers", [text], Table(headings, rows, numeric=range(1, len(headings))))


def gallery_section(arrays: Mapping[str, np.ndarray]) -> Section:
    """The images of highest and lowest norm, some classes to a figure.

    Args:
        arrays: what gallery.npz holds.
    """
    highest, lowest = arrays["highest"], arrays["lowest"]
    names = [str(name) for name in arrays["classes"]]
    pictures = []
    for start in range(0, len(names), _ROWS):
        rows = slice(start, start + _ROWS)
        some = names[rows]
        caption = "Ten images of highest and of lowest norm"
        caption += f", classes {some[0]} to {some[-1]}." if len(names) > 1 else "."
        figure = gallery(highest[rows], lowest[rows], some)
        pictures.append(Picture.of(figure, caption))
    right = {end: float(arrays[f"{end}_correct"].mean()) for end in ("highest", "lowest")}
    text = "Test images of each class, the most extreme first."
    if not math.isnan(right["highest"]):
        text += (
            f" The kNN classifies {right['highest']:.0%} of those of highest norm right, "
            f"{right['lowest']:.0%} of those of lowest."
        )
    return Section("Images of highest and lowest norm", [text], figures=pictures)


def splits_pictures(splits: Stored) -> list[Picture]:
    """Violins and bars of the norms of every split."""
    means = ", ".join(f"{name} {short(split['mean'])}" for name, split in splits.items())
    return [
        picture(
            lambda axes: violins(axes, splits),
            f"Distribution of norms over the mean of the training images. Means: {means}. "
            "Blue is what the network was trained for, orange is new to it.",
        ),
        picture(lambda axes: bars(axes, splits), "The means alone."),
    ]


def confidence_pictures(confidence: Stored) -> list[Picture]:
    """Each measure of confidence against the norm."""
    pictures = []
    for name, (axis, caption) in _MEASURES.items():
        if name not in confidence:
            continue
        block = confidence[name]
        pictures.append(
            picture(
                lambda axes, block=block, axis=axis: against_norm(axes, block, axis),
                f"{caption}, by norm. Larger markers: more images. Bars: 95 % intervals.",
            )
        )
    return pictures


def picture(draw: Callable[[Axes], None], caption: str) -> Picture:
    """One panel of half a page's width."""
    with style():
        figure: Figure = new_figure(4.6, 3.5)
        draw(figure.subplots())
    return Picture.of(figure, caption)


def _splits_section(found: Stored) -> Section:
    text = (
        f"Norms where the loss acts ({found['layer']}). Common images receive long embeddings; "
        "the farther an image is from the training data, the shorter its embedding is expected "
        "to be."
    )
    return Section(
        "Norms of known and new images", [text], figures=splits_pictures(found["splits"])
    )


def _confidence_section(found: Stored) -> Section:
    headings = ("measure", "AUROC", "Spearman", "Kendall", "trend z", "p", "steps that rise")
    rows = []
    for name, block in found["confidence"].items():
        trend = block["trend"]
        rows.append(
            [
                _MEASURES[name][0],
                *(short(block[key]) for key in ("auroc", "spearman", "kendall")),
                short(trend["statistic"], ".1f"),
                short(trend["p_value"], ".2g"),
                short(trend["rising"], ".0%"),
            ]
        )
    text = (
        "Norms are divided by the largest and put into twenty buckets, of which those with more "
        "than 50 images are shown. The trend is tested over the buckets (Cochran and Armitage)."
    )
    return Section(
        "Norm as confidence",
        [text],
        Table(headings, rows, numeric=range(1, len(headings))),
        confidence_pictures(found["confidence"]),
    )


def _novelty_section(novelty: Stored) -> Section:
    headings = ("new images", "layer", "score", *(title for title, _ in _NOVELTY.values()))
    rows, marks = [], {}
    for name, layers in novelty.items():
        flat = [
            (layer, score, m) for layer, scores in layers.items() for score, m in scores.items()
        ]
        for column, (key, (_, more)) in enumerate(_NOVELTY.items(), start=3):
            values = [m[key] for *_, m in flat]
            best = (max if more else min)(values)
            marks |= {
                (len(rows) + i, column): "best" for i, value in enumerate(values) if value == best
            }
        for layer, score, metrics in flat:
            low, high = metrics["intervals"]["auroc"]
            cells = [f"{metrics[key]:.3f}" for key in _NOVELTY]
            cells[0] += f" [{low:.3f}, {high:.3f}]"
            rows.append([name, layer, score.replace("_", " "), *cells])
    text = (
        "How well each score separates test images from new ones; the best of each set is bold. "
        "AUROC with its 95 % interval. FPR95, known kept: the share of new images accepted where "
        "95 % of the known ones are. FPR95, new caught: the share of known images flagged where "
        "95 % of the new ones are. Lower is better in both."
    )
    table = Table(headings, rows, numeric=range(3, len(headings)), marks=marks)
    return Section("Novelty", [text], table)


def _calibration_section(calibration: Stored) -> Section:
    text = (
        "The norm's rank among the training images, made a probability on half of the test images "
        "and evaluated on the other half."
    )
    pictures = [
        picture(
            lambda axes: risk_coverage_curve(axes, calibration),
            "Error rate if only the images of largest norm are answered; lower is better.",
        ),
        picture(
            lambda axes: reliability_curve(axes, calibration),
            "How often the kNN is right at each probability that the norm states.",
        ),
    ]
    return Section("Answering only when confident", [text], figures=pictures)


def short(value: float | None, form: str = ".2f") -> str:
    """A number for a table; a dash where there is none."""
    return "-" if value is None or math.isnan(value) else format(value, form)
