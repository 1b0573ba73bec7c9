"""What is drawn is what was stored: positions, counts and words, from real agreements."""

import json
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.colors import to_hex

from normscope.engine import evaluate_norms
from normscope.report.figures import BLUE, ORANGE, new_figure
from normscope.report.norm_figures import (
    against_norm,
    bars,
    gallery,
    reliability_curve,
    risk_coverage_curve,
    violins,
)

RANDOM = np.random.default_rng(0)
NORMS = {"train": RANDOM.gamma(9, 1, 3000), "test": RANDOM.gamma(9, 1, 2000)}
NORMS["cifar100"] = RANDOM.gamma(9, 0.7, 2000)
RIGHT = (RANDOM.random(2000) < NORMS["test"] / NORMS["test"].max()).astype(float)


def stored(found: Any) -> Any:
    return json.loads(json.dumps(found))


def axes() -> Axes:
    return new_figure(4, 3).subplots()


def words(drawn: Axes) -> str:
    legend = drawn.get_legend()
    return "" if legend is None else "\n".join(t.get_text() for t in legend.get_texts())


def test_violins_mark_each_mean_and_tell_new_images_by_colour() -> None:
    splits = stored(evaluate_norms.splits(NORMS))
    drawn = axes()
    violins(drawn, splits)
    means = [f"{found['mean']:.2f}" for found in splits.values()]
    assert [text.get_text() for text in drawn.texts] == means
    assert drawn.texts[0].get_text() == "1.00"
    bodies = [c for c in drawn.collections if len(c.get_facecolor())]
    assert [to_hex(c.get_facecolor()[0]) for c in bodies] == [BLUE, BLUE, ORANGE]
    reach = [c.get_paths()[0].vertices[:, 1] for c in bodies]
    for found, heights in zip(splits.values(), reach, strict=True):
        assert heights.min() == pytest.approx(found["quantiles"][0])
        assert heights.max() == pytest.approx(found["quantiles"][-1])
    assert [line.get_linestyle() for line in drawn.lines if set(line.get_ydata()) == {1}] == ["--"]


def test_violins_survive_norms_that_are_no_numbers() -> None:
    drawn = axes()
    lost = {"mean": None, "n": 9, "quantiles": [None] * 201}
    violins(drawn, {"train": {"mean": 1.0, "n": 9, "quantiles": [1.0] * 201}, "test": lost})
    assert len(drawn.texts) == 2


def test_bars_are_as_high_as_the_means() -> None:
    splits = stored(evaluate_norms.splits(NORMS))
    drawn = axes()
    bars(drawn, splits)
    assert [p.get_height() for p in drawn.patches] == [s["mean"] for s in splits.values()]
    assert drawn.patches[0].get_height() == 1


@pytest.mark.parametrize("measure", ["consensus", "entropy"])
def test_against_norm_shows_each_bucket_with_its_interval(measure: str) -> None:
    values = RIGHT if measure == "consensus" else 1 / NORMS["test"]
    found = stored(evaluate_norms.against(NORMS["test"], values))
    drawn = axes()
    against_norm(drawn, found, "human labels")
    markers = next(c for c in drawn.collections if isinstance(c, PathCollection))
    buckets = found["buckets"]
    np.testing.assert_allclose(
        markers.get_offsets(), np.stack([buckets["centres"], buckets["accuracy"]], 1)
    )
    assert np.argmax(markers.get_sizes()) == np.argmax(buckets["counts"])
    ends = next(c for c in drawn.collections if isinstance(c, LineCollection)).get_segments()
    np.testing.assert_allclose([e[:, 1].min() for e in ends], buckets["low"], rtol=1e-9)
    np.testing.assert_allclose([e[:, 1].max() for e in ends], buckets["high"], rtol=1e-9)
    told = words(drawn)
    assert ("AUROC" in told) == (measure == "consensus")
    assert f"trend z = {found['trend']['statistic']:+.1f}" in told
    assert f"Spearman {found['spearman']:+.2f}" in told


def test_against_norm_says_if_no_bucket_is_full_enough() -> None:
    found = stored(evaluate_norms.against(np.linspace(1, 2, 60), np.arange(60) % 2))
    assert found["buckets"]["counts"] == []
    drawn = axes()
    against_norm(drawn, found, "kNN accuracy")
    assert "no bucket" in drawn.texts[0].get_text()


def test_curves_of_calibration_show_what_was_stored() -> None:
    z = torch.from_numpy(NORMS["test"])[:, None] * torch.eye(3, dtype=torch.float64)[:1]
    found = stored(evaluate_norms.calibration(z, z, RIGHT))
    drawn = axes()
    risk_coverage_curve(drawn, found)
    assert drawn.lines[0].get_ydata().tolist() == found["risk"]
    for key in ("aurc", "random_aurc", "oracle_aurc"):
        assert f"{found[key]:.3f}" in words(drawn)
    best = drawn.lines[2].get_ydata()
    assert best[-1] == pytest.approx(found["risk"][-1])
    assert np.mean(best) == pytest.approx(found["oracle_aurc"], abs=0.01)
    drawn = axes()
    reliability_curve(drawn, found)
    assert f"ECE {found['ece']:.3f}" in words(drawn)
    assert drawn.lines[1].get_xdata().tolist() == found["reliability"]["confidence"]
    for flat in (False, True):
        drawn = axes()
        reliability_curve(drawn, {**found, "flat": flat})
        assert ("(flat)" in words(drawn)) == flat


@pytest.mark.parametrize(("side", "shown"), [(8, 8), (32, 32), (128, 64)])
def test_gallery_keeps_pixels_as_they_are(side: int, shown: int) -> None:
    pixels = RANDOM.integers(0, 256, (2, 3, 10, side, side, 3), dtype=np.uint8)
    figure = gallery(pixels[0], pixels[1], ["cat", "dog", "eel"])
    left, right = figure.axes
    for panel, given in ((left, pixels[0]), (right, pixels[1])):
        image = panel.images[0]
        assert image.get_interpolation() == "none"
        mosaic = np.asarray(image.get_array())
        every = side // shown
        np.testing.assert_array_equal(mosaic[:shown, :shown], given[0, 0, ::every, ::every])
        below = mosaic.shape[0] // 3
        np.testing.assert_array_equal(
            mosaic[below : below + shown, :shown], given[1, 0, ::every, ::every]
        )
    assert [label.get_text() for label in left.get_yticklabels()] == ["cat", "dog", "eel"]
    assert right.get_yticklabels() == []
