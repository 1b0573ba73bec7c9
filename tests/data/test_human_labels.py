"""Human labels from files as torch.save and numpy wrote them."""

import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from normscope.data import human_labels
from normscope.data.human_labels import _read_cifar_h, _read_cifar_n

KEYS = {"clean_label": 10, "noisy_label": 20}


def content() -> dict:
    return {"clean_label": np.arange(8) % 10, "noisy_label": [19] * 8}


def test_cifar_n_reads_what_torch_saved(tmp_path: Path) -> None:
    path = tmp_path / "labels.pt"
    torch.save(content(), path)
    labels = _read_cifar_n(path, KEYS, 8)
    assert list(labels) == list(KEYS)
    np.testing.assert_array_equal(labels["clean_label"], np.arange(8))
    np.testing.assert_array_equal(labels["noisy_label"], [19] * 8)
    assert all(value.dtype == np.int64 for value in labels.values())


@pytest.mark.parametrize(
    ("change", "constraint"),
    [
        ({"clean_label": np.arange(9)}, r"a dict with 8 clean_label from 0 to 9, got '\(9,\)'"),
        ({"clean_label": np.full(8, 10)}, "a dict with 8 clean_label from 0 to 9"),
        ({"noisy_label": [-1] * 8}, "a dict with 8 noisy_label from 0 to 19"),
        ({"noisy_label": np.zeros(8)}, "a dict with integers noisy_label"),
        ({"noisy_label": None}, "a dict with integers noisy_label"),
        ({"noisy_label": Path("x")}, "a pickle of numbers and strings alone"),
    ],
)
def test_cifar_n_refuses_what_is_not_as_published(tmp_path: Path, change, constraint) -> None:
    path = tmp_path / "labels.pt"
    torch.save({**content(), **change}, path)
    with pytest.raises(ValueError, match=f"labels.pt must be {constraint}") as error:
        _read_cifar_n(path, KEYS, 8)
    assert "normscope data fetch cifar20n." in str(error.value)


def test_cifar_n_refuses_damaged_and_missing_files(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"CIFAR-10_human.pt must be a file.*fetch cifar10n"):
        human_labels.cifar10n(tmp_path)
    with pytest.raises(ValueError, match=r"CIFAR-100_human.pt must be a file.*fetch cifar100n"):
        human_labels.cifar100n(tmp_path)
    path = tmp_path / "CIFAR-10_human.pt"
    path.write_bytes(b"garbage")
    with pytest.raises(ValueError, match="must be a whole file of labels, got 'a damaged one'"):
        human_labels.cifar10n(tmp_path)
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("archive/other.pkl", pickle.dumps({}))
    with pytest.raises(ValueError, match="must be a whole file of labels, got 'a damaged one'"):
        human_labels.cifar10n(tmp_path)


def test_cifar_h_reads_counts(tmp_path: Path) -> None:
    counts = np.full((5, 10), 5)
    np.save(tmp_path / "counts.npy", counts)
    np.testing.assert_array_equal(_read_cifar_h(tmp_path / "counts.npy", 5), counts)


@pytest.mark.parametrize(
    ("counts", "constraint"),
    [
        (np.full((5, 9), 5), r"integers of shape \(5, 10\)"),
        (np.full((5, 10), 5.0), r"integers of shape \(5, 10\)"),
        (np.full((5, 10), -1), "counts of answers, got 'a negative count'"),
        (np.zeros((5, 10), int), "counts of answers, got 'an image without answers'"),
    ],
)
def test_cifar_h_refuses_what_is_not_as_published(tmp_path: Path, counts, constraint) -> None:
    np.save(tmp_path / "counts.npy", counts)
    with pytest.raises(ValueError, match=f"counts.npy must be {constraint}"):
        _read_cifar_h(tmp_path / "counts.npy", 5)


def test_cifar_h_refuses_pickles_and_missing_files(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"must be a file that can be read.*fetch cifar10h"):
        human_labels.cifar10h(tmp_path)
    (tmp_path / "cifar10h-counts.npy").write_bytes(pickle.dumps(np.zeros((10_000, 10))))
    with pytest.raises(ValueError, match=r"must be a whole \.npy file, got 'a damaged one'"):
        human_labels.cifar10h(tmp_path)
