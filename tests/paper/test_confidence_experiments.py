"""Section 5's experiments take the right numbers, and their claims can come out each way."""

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from normscope import data
from normscope.engine import RunFolder, RunSpec, made_with
from normscope_paper.figures import cifar_norms, in_out_violin, norm_as_confidence
from normscope_paper.harness import Claim, Results, Sweep, sweep
from normscope_paper.harness.sweep import datasets_at, epochs_at, spec_at

SPREAD = (-0.01, 0.0, 0.01)  # what three seeds differ by


def verdicts(claims: list[Claim], words: str) -> list[str]:
    return [claim.verdict for claim in claims if words in claim.sentence]


@pytest.mark.parametrize(
    ("test", "new", "expected"),
    [
        (0.97, 0.6, ["reproduced", "reproduced"]),
        (0.97, 0.92, ["reproduced", "not reproduced"]),  # slightly smaller, not substantially
        (1.2, 0.6, ["not reproduced", "reproduced"]),
        (0.7, 0.65, ["not reproduced", "not reproduced"]),
    ],
)
def test_norms_on_new_images_can_come_out_each_way(test, new, expected) -> None:
    found = {
        "means": {"train": [1.0] * 3, "test": [test + s for s in SPREAD], "new": [new] * 3},
        "auroc": {"new": [0.99, 0.995, 1.0]},
    }
    claims = in_out_violin.check(Results("in_out_violin", "small", 3, 0, {"simclr on x": found}))
    assert verdicts(claims, "Held-out images have") == [expected[0]]
    assert verdicts(claims, "Images of another kind") == [expected[1]]
    assert verdicts(claims, "The norm tells") == ["reproduced"]  # an AUROC of one is no defect


def curve(sign: float, s: float) -> dict[str, Any]:
    centres = np.linspace(0.3, 0.9, 7)
    buckets = {"centres": centres.tolist(), "accuracy": (sign * centres).tolist()}
    numbers = {"spearman": 0.5 * sign + s, "auroc": 0.5 + 0.4 * sign + s}
    return norm_as_confidence._kept({"buckets": buckets, **numbers})


@pytest.mark.parametrize(
    ("sign", "rises", "falls"),
    [(1.0, "reproduced", "not reproduced"), (-1.0, "not reproduced", "reproduced")],
)
def test_confidence_against_the_norm_can_come_out_each_way(sign, rises, falls) -> None:
    every = {"simclr on x": [curve(sign, s) for s in SPREAD]}
    data = {"knn": every, "consensus": every, "entropy": every}
    claims = norm_as_confidence.check(Results("norm_as_confidence", "small", 3, 0, data))
    assert verdicts(claims, "accuracy rises") == [rises, rises]
    assert verdicts(claims, "label images of long embeddings right") == [rises, rises]
    assert verdicts(claims, "disagree less") == [falls, falls]
    assert verdicts(claims, "tells right from wrong") == [rises, rises]


def test_what_no_bucket_says_speaks_against_an_order_and_is_not_left_out() -> None:
    flat = {"buckets": {"centres": [0.1, 0.5, 0.9], "accuracy": [1.0, 1.0, 1.0]}}
    few = {"buckets": {"centres": [0.1, 0.9], "accuracy": [0.1, 1.0]}}
    for block in (flat, few):
        one = norm_as_confidence._kept({**block, "spearman": None, "auroc": None})
        assert one["monotone"] == 0
        data = {"knn": {"simclr on x": [one, one]}, "consensus": {}, "entropy": {}}
        claims = norm_as_confidence.check(Results("norm_as_confidence", "small", 2, 0, data))
        assert len(claims) == 3
        assert verdicts(claims, "in order") == ["not reproduced"]


@pytest.mark.parametrize(("higher", "verdict"), [(0.2, "reproduced"), (-0.2, "not reproduced")])
def test_the_gallery_can_come_out_each_way(higher: float, verdict: str) -> None:
    data = {
        "dataset": "cifar10",
        "correct": {"highest": [0.7 + higher + s for s in SPREAD], "lowest": [0.7] * 3},
        "entropy": {"highest": [0.5 - higher + s for s in SPREAD], "lowest": [0.5] * 3},
    }
    claims = cifar_norms.check(Results("cifar_norms", "small", 3, 0, data))
    assert [claim.verdict for claim in claims] == [verdict] * 2


def evaluation(spec: RunSpec) -> dict[str, Any]:
    """Numbers that tell seeds, methods and layers apart."""
    value = 0.1 * (spec.seed + 1) + (0.05 if spec.method == "simsiam" else 0.0)
    split = {"mean": value, "n": 9, "quantiles": [0.0, value]}
    auroc = {layer: {"norm": {"auroc": x}} for layer, x in (("backbone", 0.0), ("last", value))}
    block = {"buckets": {"centres": [], "accuracy": []}, "auroc": value, "spearman": value}
    return {
        "layer": "last",
        "splits": {"train": split, "test": split, "new": split},
        "novelty": {"new": auroc},
        "confidence": {"knn": block},
    }


class Evaluated(Sweep):
    """A sweep whose runs are all evaluated."""

    def require(self, datasets: Iterable[str]) -> None:
        """All are there."""

    def evaluation(self, spec: RunSpec) -> dict[str, Any]:
        return evaluation(spec)


def test_every_seed_and_method_is_read_where_the_loss_acts() -> None:
    found = in_out_violin.run("small", 1, 2, Evaluated()).data
    pairs = {f"{m} on {d}" for m in in_out_violin.METHODS for d in ("cifar10", "cifar100")}
    assert set(found) == pairs
    assert found["simclr on cifar10"]["means"]["new"] == pytest.approx([0.2, 0.3])
    assert found["simsiam on cifar100"]["auroc"]["new"] == pytest.approx([0.25, 0.35])
    curves = norm_as_confidence.run("small", 1, 2, Evaluated()).data["knn"]["simsiam on cifar10"]
    assert [one["auroc"] for one in curves] == pytest.approx([0.25, 0.35])


def test_scales_differ_in_data_net_and_epochs() -> None:
    assert datasets_at("smoke", "cifar10") == ("digits",)
    assert datasets_at("paper", "cifar10", "cifar100") == ("cifar10", "cifar100")
    small, paper = (spec_at(s, method="simclr", data="cifar10", seed=4) for s in ("small", "paper"))
    assert (small.net, small.epochs, small.seed) == ("resnet18", 30, 4)
    assert (paper.net, paper.epochs) == ("resnet50", 512)
    assert spec_at("small", data="cifar10", **epochs_at("small", small=7, paper=9)).epochs == 7
    assert (epochs_at("paper", paper=9), epochs_at("small", paper=9)) == ({"epochs": 9}, {})


def test_a_run_is_trained_and_judged_once_until_what_it_depends_on_changes(
    monkeypatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("NORMSCOPE_RUNS", str(tmp_path))
    spec = RunSpec(data="digits", epochs=1)
    ours = Sweep()
    first = ours.evaluation(spec)
    about = RunFolder(tmp_path / spec.name).made()
    assert ours.used[spec.name].hardware == about["hardware"]
    assert ours.used[spec.name].seconds > 0
    stored = tmp_path / spec.name / "evaluation.json"
    marked = json.loads(stored.read_text()) | {"layers": "as it was"}
    stored.write_text(json.dumps(marked))
    assert ours.evaluation(spec)["layers"] == "as it was"
    for damaged in ("{}", "[]", "half"):
        stored.write_text(damaged)
        assert ours.evaluation(spec)["layers"] == first["layers"]
    stored.write_text(json.dumps(marked))
    monkeypatch.setattr(sweep, "made_with", lambda _: {"normscope": "another"})
    assert ours.evaluation(spec)["layers"] == first["layers"]


@pytest.mark.parametrize(
    ("folder", "name"),
    [("cifar-100-binary", "cifar100"), ("mnist", "mnist"), ("fashion-mnist", "fashion-mnist")],
)
def test_an_evaluation_without_another_dataset_is_stale_once_that_is_there(
    tmp_path: Path, folder: str, name: str
) -> None:
    images = replace(data.load("digits"), name="cifar10")
    assert made_with("cifar10", tmp_path)["novel"] == []
    assert data.novel_to(images, tmp_path).keys() == {"digits", "noise", "textures"}
    (tmp_path / folder).mkdir()
    assert made_with("cifar10", tmp_path)["novel"] == [name]
    with pytest.raises(ValueError, match=folder):  # and not taken for missing
        data.novel_to(images, tmp_path)


@pytest.mark.parametrize("experiment", [in_out_violin, norm_as_confidence])
def test_missing_data_are_an_error_before_anything_is_trained(
    experiment, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setenv("NORMSCOPE_DATA", str(tmp_path))
    monkeypatch.setenv("NORMSCOPE_RUNS", str(tmp_path / "runs"))
    there = replace(data.DATASETS["cifar10"], load=lambda _: data.load("digits"))
    monkeypatch.setitem(data.DATASETS, "cifar10", there)
    with pytest.raises(ValueError, match="cifar-100-python"):
        experiment.run("small", 0, 2, Sweep())
    assert not (tmp_path / "runs").exists()
