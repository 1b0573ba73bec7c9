"""What norms say is read from the right rows, the right labels and the right half."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from normscope.data import ImageArrays, Split
from normscope.engine import evaluate_norms

TRAIN, TEST = 50_000, 10_000


def arrays(name: str, train: Split, test: Split, classes: str) -> ImageArrays:
    return ImageArrays(
        name=name,
        train=train,
        test=test,
        classes=tuple(classes),
        side=1,
        source="made",
        checksum="0",
    )


@pytest.fixture(scope="module")
def cifar10() -> ImageArrays:
    """CIFAR-10's name and numbers, with images of one pixel."""
    rng = np.random.default_rng(0)
    splits = [
        Split(np.zeros((n, 3, 1, 1), np.uint8), rng.integers(10, size=n)) for n in (TRAIN, TEST)
    ]
    return arrays("cifar10", *splits, "abcdefghij")


def write_labels(root: Path, images: ImageArrays, norms: dict[str, np.ndarray]) -> None:
    """People who are right on long embeddings, and agree on them."""
    clean = np.asarray(images.train.labels)
    long = norms["train"] > np.median(norms["train"])
    said = np.where(long, clean, (clean + 1) % 10)
    names = ("worse_label", "random_label1", "random_label2", "random_label3")
    labels = {"clean_label": clean, "aggre_label": said, **dict.fromkeys(names, clean)}
    torch.save(labels, root / "CIFAR-10_human.pt")
    votes = np.full((TEST, 10), 5)
    votes[norms["test"] > np.median(norms["test"])] = [50, *[0] * 9]
    np.save(root / "cifar10h-counts.npy", votes)


def test_people_agree_on_long_embeddings_and_the_signs_say_so(cifar10, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    norms = {"train": rng.gamma(9, 1, TRAIN), "test": rng.gamma(9, 1, TEST)}
    assert evaluate_norms.human(cifar10, norms, tmp_path) == {}
    assert evaluate_norms.human_files("cifar10", tmp_path) == set()
    write_labels(tmp_path, cifar10, norms)
    assert evaluate_norms.human_files("cifar10", tmp_path) == {"consensus", "entropy"}
    assert evaluate_norms.human_files("cifar100", tmp_path) == set()
    found = evaluate_norms.human(cifar10, norms, tmp_path)
    assert found["consensus"]["auroc"] == pytest.approx(1)
    assert found["consensus"]["trend"]["statistic"] > 10
    assert found["entropy"]["spearman"] < -0.8
    assert max(found["entropy"]["buckets"]["accuracy"]) == pytest.approx(np.log(10))


def test_labels_of_other_images_and_damaged_ones_are_refused(cifar10, tmp_path: Path) -> None:
    norms = {"train": np.ones(TRAIN), "test": np.ones(TEST)}
    write_labels(tmp_path, cifar10, norms)
    other = Split(cifar10.train.images, np.roll(cifar10.train.labels, 1))
    with pytest.raises(ValueError, match="human labels must be of these training images"):
        evaluate_norms.human(replace(cifar10, train=other), norms, tmp_path)
    (tmp_path / "CIFAR-10_human.pt").write_bytes(b"half")
    with pytest.raises(ValueError, match="a damaged one"):
        evaluate_norms.human(cifar10, norms, tmp_path)


def test_calibration_is_judged_on_rows_that_it_did_not_see() -> None:
    z = np.random.default_rng(0).normal(size=(4000, 8))
    norms = np.linalg.norm(z, axis=1)
    right = (norms > np.median(norms)).astype(float)
    right[1::2] = 1 - right[1::2]  # in the other half, short embeddings are right
    found = evaluate_norms.calibration(torch.from_numpy(z), torch.from_numpy(z), right)
    assert found is not None
    assert found["ece"] > 0.9
    assert found["aurc"] > found["random_aurc"]
    few = torch.from_numpy(z[:39])
    assert evaluate_norms.calibration(torch.from_numpy(z), few, right[:39]) is None


def test_energy_is_of_a_probe_on_the_bank_rows_own_labels() -> None:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(12_000) % 3 // 2  # more than are taken, a third of them ones
    centres = torch.tensor([[8.0, 0.0], [-8.0, 0.0]])
    bank = centres[labels] + torch.randn(len(labels), 2, generator=generator)
    inside = centres[labels[:500]] + torch.randn(500, 2, generator=generator)
    outside = torch.randn(500, 2, generator=generator)  # between the classes
    found = evaluate_norms.novelty({"z": bank}, {"z": inside}, {"new": {"z": outside}}, labels)
    assert found["new"]["z"]["energy"]["auroc"] > 0.99
    low, high = found["new"]["z"]["norm"]["intervals"]["auroc"]
    assert low <= found["new"]["z"]["norm"]["auroc"] <= high


def test_a_class_without_test_images_is_left_out_of_the_gallery() -> None:
    pixels = np.arange(4, dtype=np.uint8)[:, None, None, None].repeat(3, 1)
    split = Split(pixels, np.array([0, 0, 2, 2]))
    right = np.array([0.0, 1.0, 0.0, 1.0])
    found = evaluate_norms.gallery(
        arrays("x", split, split, "abc"), np.array([1.0, 2.0, 4.0, 3.0]), right
    )
    assert found["classes"].tolist() == ["a", "c"]
    assert found["highest_rows"][:, 0].tolist() == [1, 2]
    assert found["lowest_rows"][:, 0].tolist() == [0, 3]
    assert found["highest_correct"][:, 0].tolist() == [1, 0]
