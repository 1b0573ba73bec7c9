"""Training on a user's own folder: what is in it, what fits it, and what is said of it."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw

from normscope import data
from normscope.data.layouts import listing
from normscope.engine import RunFolder, RunResult, RunSpec, evaluate, train, write_hub_folder
from normscope.engine.own_images import OwnImages, fitted
from normscope.engine.pace import seconds_on_cpu
from normscope.report import run_page, runs_page

MODES = ("RGB", "L", "P", "RGBA", "LA", "1")


def draw(folder: Path, n: int) -> Path:
    """Drawings of odd sizes, modes and formats, with a file that is no image."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    for i in range(n):
        width, height = (int(side) for side in rng.integers(33, 60, 2))
        image = Image.new("RGB", (width, height), tuple(rng.integers(0, 256, 3).tolist()))
        shape = ImageDraw.Draw(image)
        (shape.ellipse if i % 2 else shape.rectangle)((5, 5, 5 + i % 20, 25), fill="white")
        suffix = ("png", "PNG", "webp")[i % 3]
        image.convert(MODES[i % len(MODES)]).save(folder / f"IMG {i:03}.{suffix}")
    (folder / "notes.txt").write_text("no image")
    return folder


@pytest.fixture(scope="module")
def flat(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return draw(tmp_path_factory.mktemp("own") / "photos", 30)


@pytest.fixture(scope="module")
def run(flat: Path) -> Path:
    spec = fitted({"data": f"folder:{flat}", "epochs": 2}, device="cpu").spec
    train(spec, folder=flat.parent / "run", device="cpu", quiet=True)
    return flat.parent / "run"


def test_a_flat_folder_is_split_the_same_way_each_time_and_has_no_classes(flat: Path) -> None:
    images = data.load(f"folder:{flat}")
    assert (len(images.train), len(images.test), images.classes) == (24, 6, ())
    assert not images.labelled
    found = listing(flat)
    assert sorted(found.train + found.test) == sorted(p.name for p in flat.glob("IMG*"))
    assert found.test == listing(flat).test
    assert data.load(f"folder:{flat}").checksum == images.checksum


def test_folders_of_classes_are_split_within_each_class(tmp_path: Path) -> None:
    for name, n in (("cat", 10), ("dog", 5), ("one", 1)):
        draw(tmp_path / name, n)
    (tmp_path / ".cache").mkdir()
    found = listing(tmp_path)
    assert found.classes == ("cat", "dog", "one")
    assert np.bincount(found.train_labels).tolist() == [8, 4, 1]
    assert np.bincount(found.test_labels).tolist() == [2, 1]
    assert all(name.startswith(found.classes[label]) for name, label in zip(
        found.train, found.train_labels, strict=True
    ))  # fmt: skip


def test_images_below_a_flat_folder_belong_to_it(tmp_path: Path) -> None:
    draw(tmp_path / "own", 4)
    draw(tmp_path / "own" / "2024" / "may", 6)
    found = listing(tmp_path / "own")
    assert len(found.train) + len(found.test) == 10
    assert found.classes == ()


def test_a_folder_without_enough_images_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="must be a folder of images, got 'none'"):
        listing(tmp_path)
    draw(tmp_path / "own", 1)
    with pytest.raises(ValueError, match="a folder of two images or more, got 1"):
        listing(tmp_path / "own")


def test_a_side_is_the_users_own_images_alone(flat: Path) -> None:
    assert data.load(f"folder:{flat}", side=16).train.images.shape == (24, 3, 16, 16)
    with pytest.raises(ValueError, match="side must be left out for digits, got 16"):
        data.load("digits", side=16)
    with pytest.raises(ValueError, match="side must be left out for digits, got 16"):
        RunSpec(side=16)
    spec = RunSpec(data=f"folder:{flat}", side=16, batch=8, knn_k=1)
    with pytest.raises(ValueError, match="images must be of the spec's side 16, got 32"):
        train(spec, images=data.load(f"folder:{flat}"), folder=flat.parent / "no", device="cpu")


def test_few_images_on_a_cpu_get_a_network_that_it_can_train(flat: Path) -> None:
    found = fitted({"data": f"folder:{flat}"}, device="cpu")
    spec = found.spec
    assert (spec.net, spec.side, spec.recipe) == ("resnet10_narrow", 32, "fast")
    assert (spec.batch, spec.epochs, spec.knn_k) == (4, 100, 4)
    assert "24 training and 6 test images on a CPU: net resnet10_narrow" in found.reasons[0]
    assert "There are no classes" in found.warnings[0]
    on_gpu = fitted({"data": f"folder:{flat}"}, device="cuda").spec
    assert (on_gpu.net, on_gpu.side) == ("resnet18", 32)


def test_what_is_given_stays(flat: Path) -> None:
    given = {"data": f"folder:{flat}", "net": "resnet18", "lr": 0.1, "batch": 6}
    spec = fitted(given, device="cpu").spec
    assert (spec.net, spec.side, spec.recipe, spec.lr, spec.batch) == (
        "resnet18",
        None,
        "text",
        0.1,
        6,
    )
    assert fitted({"data": "cifar10"}, device="cpu").spec == RunSpec(data="cifar10")


def test_few_test_images_come_with_their_uncertainty(tmp_path: Path) -> None:
    for name in ("cat", "dog"):
        draw(tmp_path / name, 5)
    (line,) = fitted({"data": f"folder:{tmp_path}"}, device="cpu").warnings
    assert "2 test images alone: chance moves it by up to 69 points" in line
    assert OwnImages.of(f"folder:{tmp_path}") == OwnImages(8, 2, 2, 32)


def test_the_estimate_grows_with_the_epochs_and_the_images(flat: Path) -> None:
    images = data.load(f"folder:{flat}")
    specs = [
        RunSpec(data=images.name, batch=4, knn_k=1, net="vit_micro", epochs=e) for e in (2, 50)
    ]
    short, long = (seconds_on_cpu(spec, images) for spec in specs)
    assert 0 < short < long


def test_a_run_without_classes_has_norms_and_no_accuracy(run: Path) -> None:
    assert np.isnan(RunResult.load(run).knn)
    found = evaluate(run)
    assert found["layers"]["projector"]["knn"] is None
    assert found["layers"]["projector"]["test"]["norm_mean"] > 0
    assert (found["confidence"], found["calibration"]) == ({}, None)
    assert json.loads((run / "evaluation.json").read_text()) == found


def test_its_pages_and_its_card_say_so(run: Path, tmp_path: Path) -> None:
    evaluate(run)
    page = run_page(run).render()
    assert "no kNN accuracy; mean norm of the test images" in page
    assert "nan%" not in page
    assert ">nan<" not in page
    assert "their images have no classes" in runs_page([run, run]).render()
    write_hub_folder(run, tmp_path / "hub")
    assert "| none |" in (tmp_path / "hub" / "README.md").read_text()


def test_a_method_that_needs_classes_is_refused(flat: Path, tmp_path: Path) -> None:
    spec = fitted({"data": f"folder:{flat}", "method": "supcon"}, device="cpu").spec
    with pytest.raises(ValueError, match="method must be one that learns without classes"):
        train(spec, folder=tmp_path / "run", device="cpu", quiet=True)
    assert not RunFolder(tmp_path / "run").path.exists()
