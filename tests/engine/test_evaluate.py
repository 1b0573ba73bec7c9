"""What a run is worth, against features taken by hand from its checkpoint."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from normscope import data
from normscope.data import ImageArrays, Resident, Split, source
from normscope.data.folders import read_folder
from normscope.engine import RunFolder, RunSpec, evaluate, evaluate_norms, train
from normscope.engine.compose import build
from normscope.engine.evaluate import knn_and_norm
from normscope.evaluation import knn, linear_probe
from normscope.methods import Method

K = 15
LAYERS = ["backbone", "projector", "predictor"]


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> ImageArrays:
    """A few hundred digits, as an .npz file's dataset."""
    every = data.load("digits")
    path = tmp_path_factory.mktemp("data") / "some.npz"
    np.savez(
        path,
        train_images=np.asarray(every.train.images)[:320],
        train_labels=every.train.labels[:320],
        test_images=np.asarray(every.test.images),
        test_labels=every.test.labels,
    )
    return data.load(f"npz:{path}")


@pytest.fixture(scope="module")
def run(digits: ImageArrays, tmp_path_factory: pytest.TempPathFactory) -> Path:
    spec = RunSpec(
        method="simsiam",
        data=digits.name,
        net="resnet10_narrow",
        augmentation="digits",
        epochs=3,
        batch=64,
        lr=0.5,
        knn_k=K,
        precision="bf16",
        options={"dimension": 32},
    )
    folder = tmp_path_factory.mktemp("run") / "run"
    train(spec, folder=folder, device="cpu", quiet=True)
    return folder


def trained(run: Path) -> Method:
    spec = RunFolder(run).spec()
    method = build(spec, side=8)
    method.load_state_dict(torch.load(run / "checkpoint.pt", weights_only=True)["method"])
    return method


@torch.no_grad()
def by_hand(method: Any, split: Split, *, training: bool = False) -> dict[str, Tensor]:
    """Each layer for all images at once."""
    method.train(training)
    h = method.backbone(torch.from_numpy(np.array(split.images)).float() / 255)
    z = method.projector(h)
    return {"backbone": h, "projector": z, "predictor": method.predictor(z)}


def accuracy(bank: Tensor, queries: Tensor, digits: ImageArrays, k: int = K) -> float:
    labels, truth = (torch.from_numpy(np.array(s.labels)) for s in (digits.train, digits.test))
    return knn(bank, labels, queries, k=k).accuracy(truth)


def splits(digits: ImageArrays) -> tuple[Resident, Resident]:
    cpu = torch.device("cpu")
    return Resident(digits.train, cpu), Resident(digits.test, cpu)


def test_knn_is_of_the_backbone_in_evaluation_mode(digits: ImageArrays, run: Path) -> None:
    method = trained(run).train()
    before = {name: value.clone() for name, value in method.state_dict().items()}
    found = knn_and_norm(method, *splits(digits), k=K)
    assert method.training  # as it was
    torch.testing.assert_close(method.state_dict(), before, rtol=0, atol=0)

    bank, queries = by_hand(method, digits.train), by_hand(method, digits.test)
    right = accuracy(bank["backbone"], queries["backbone"], digits)
    assert found["knn"] == right
    norms = queries["predictor"].norm(dim=1)
    assert found["norm_test"] == pytest.approx(float(norms.mean()), rel=1e-5)
    # what it would be by mistake is another number, so the equality above says something
    wrong = {name: accuracy(bank[name], queries[name], digits) for name in LAYERS[1:]}
    wrong["other k"] = accuracy(bank["backbone"], queries["backbone"], digits, k=1)
    method = trained(run)
    statistics = [by_hand(method, s, training=True) for s in (digits.train, digits.test)]
    wrong["training"] = accuracy(*(layers["backbone"] for layers in statistics), digits)
    assert right not in wrong.values(), wrong
    assert not math.isclose(
        norms.mean(), statistics[1]["predictor"].norm(dim=1).mean(), rel_tol=1e-3
    )


def test_knn_of_a_network_that_diverged_is_nan(digits: ImageArrays, run: Path) -> None:
    method: Any = trained(run)
    torch.nn.init.constant_(method.backbone.conv1.weight, math.nan)
    assert math.isnan(knn_and_norm(method, *splits(digits), k=K)["knn"])


def test_the_last_epoch_tells_what_evaluate_finds(run: Path, evaluated: dict[str, Any]) -> None:
    last = [r for r in RunFolder(run).read_metrics() if r["kind"] == "epoch"][-1]
    assert last["knn"] == evaluated["layers"]["backbone"]["knn"]
    assert last["norm_test"] == pytest.approx(evaluated["layers"]["predictor"]["test"]["norm_mean"])


@pytest.fixture(scope="module")
def evaluated(run: Path) -> dict[str, Any]:
    return evaluate(run)


def test_evaluate_judges_every_layer(
    digits: ImageArrays, run: Path, evaluated: dict[str, Any]
) -> None:
    assert list(evaluated["layers"]) == LAYERS
    assert (evaluated["layer"], evaluated["epoch"]) == ("predictor", 3)
    method = trained(run)
    bank, queries = by_hand(method, digits.train), by_hand(method, digits.test)
    labels, truth = (torch.from_numpy(np.array(s.labels)) for s in (digits.train, digits.test))
    for name, found in evaluated["layers"].items():
        votes = knn(bank[name], labels, queries[name], k=K)
        assert found["knn"] == votes.accuracy(truth)
        assert found["knn_top5"] == votes.accuracy(truth, top=5) > found["knn"]
        probe = linear_probe(bank[name], labels, queries[name]).accuracy(truth)
        assert found["probe"] == pytest.approx(probe, abs=0.02)  # where it stops hangs on rounding
        for split, z in (("train", bank[name]), ("test", queries[name])):
            norms = z.norm(dim=1)
            assert found[split]["norm_mean"] == pytest.approx(float(norms.mean()), rel=1e-5)
            assert found[split]["norm_std"] == pytest.approx(float(norms.std()), rel=1e-4)


def test_evaluate_compares_norms_with_the_training_mean_where_the_loss_acts(
    digits: ImageArrays, run: Path, evaluated: dict[str, Any]
) -> None:
    method = trained(run)
    norms = {
        name: by_hand(method, split)["predictor"].norm(dim=1)
        for name, split in (("train", digits.train), ("test", digits.test))
    }
    assert evaluated["splits"].keys() == norms.keys()  # nothing is known to be new to these images
    assert evaluated["novelty"] == {}
    for name, values in norms.items():
        found, shares = evaluated["splits"][name], values / norms["train"].mean()
        assert found["n"] == len(values)
        assert found["mean"] == pytest.approx(float(shares.mean()), rel=1e-5)
        ends = [float(shares.min()), float(shares.median()), float(shares.max())]
        assert [found["quantiles"][i] for i in (0, 100, 200)] == pytest.approx(ends, rel=1e-2)


def test_evaluate_writes_what_it_returns_and_the_embeddings(
    digits: ImageArrays, run: Path, evaluated: dict[str, Any]
) -> None:
    assert json.loads((run / "evaluation.json").read_text()) == evaluated
    method = trained(run)
    with np.load(run / "embeddings.npz") as file:
        assert len(file.files) == 6
        for name, split in (("train", digits.train), ("test", digits.test)):
            expected = by_hand(method, split)
            pairs = {"embeddings": expected["predictor"], "features": expected["backbone"]}
            for key, value in pairs.items():
                stored = file[f"{name}_{key}"]
                assert stored.dtype == np.float32
                np.testing.assert_allclose(stored, value.numpy(), rtol=1e-4, atol=1e-5)
            np.testing.assert_array_equal(file[f"{name}_labels"], split.labels)


def test_gallery_shows_the_ends_of_each_class(
    digits: ImageArrays, run: Path, evaluated: dict[str, Any]
) -> None:
    del evaluated  # it wrote the file
    norms = by_hand(trained(run), digits.test)["predictor"].norm(dim=1).numpy()
    pixels = np.asarray(digits.test.images).transpose(0, 2, 3, 1)
    with np.load(run / "gallery.npz") as file:
        assert file["highest"].shape == file["lowest"].shape == (10, 10, 8, 8, 3)
        for c in range(10):
            rows = np.flatnonzero(digits.test.labels == c)
            np.testing.assert_array_equal(file["highest"][c, 0], pixels[rows[norms[rows].argmax()]])
            np.testing.assert_array_equal(file["lowest"][c, 0], pixels[rows[norms[rows].argmin()]])


def test_gallery_shows_images_in_files_as_the_network_sees_them(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for kind in ("train", "test"):
        for i, size in enumerate([(40, 36, 3), (50, 70, 3), (32, 32, 3), (33, 90, 3)]):
            place = tmp_path / kind / "ab"[i % 2] / f"{i}.png"
            place.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(rng.integers(256, size=size, dtype=np.uint8)).save(place)
    images = read_folder(tmp_path, "own", side=32, lazy=True)
    shown = evaluate_norms.gallery(images, np.array([1.0, 2.0, 3.0, 4.0]), np.ones(4, bool))
    assert shown["highest"].shape == shown["lowest"].shape == (2, 10, 32, 32, 3)
    [seen] = source(images.test, torch.device("cpu"), side=32, workers=0).evaluation_batches(4)
    every = shown["lowest"].reshape(-1, 32, 32, 3)
    for row, pixels in zip(shown["lowest_rows"].flat, every, strict=True):
        np.testing.assert_array_equal(pixels, seen[row].permute(1, 2, 0))


def test_what_cannot_be_said_of_few_images_is_null_in_json() -> None:
    norms, right = np.linspace(1, 2, 40), np.arange(40) % 2  # no bucket has more than 50
    found = json.loads(
        json.dumps(evaluate_norms.against(norms, right.astype(float)), allow_nan=False)
    )
    assert found["buckets"]["counts"] == []
    assert found["trend"] == {"statistic": None, "p_value": None, "rising": None}


def test_evaluate_refuses_a_folder_without_a_run(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="run must be the folder of a run"):
        evaluate(tmp_path)
