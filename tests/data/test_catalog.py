"""The catalogue, and the datasets that are arrays: digits and the user's own."""

import io
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits

from normscope import data
from normscope.data import arrays
from normscope.data.held_out import held_out


def test_unbalanced_digits_keep_fewer_of_each_class_and_the_whole_test_set() -> None:
    whole, kept = data.load("digits"), data.load("digits-unbalanced")
    counts = np.bincount(kept.train.labels)
    assert counts.tolist() == [128, 85, 57, 38, 25, 17, 11, 7, 5, 3]
    assert kept.test is whole.test or (kept.test.labels == whole.test.labels).all()
    assert kept.checksum != whole.checksum


def test_digits_are_scikit_learns_in_a_fixed_stratified_split() -> None:
    digits = data.load("digits")
    grey, labels = load_digits(return_X_y=True)
    assert (len(digits.train), len(digits.test)) == (1347, 450)
    images = np.concatenate([np.asarray(digits.train.images), np.asarray(digits.test.images)])
    found_labels = np.concatenate([digits.train.labels, digits.test.labels])
    assert images.shape == (1797, 3, 8, 8)
    assert images.dtype == np.uint8
    assert (images == images[:, :1]).all()
    expected = np.rint(grey * 255 / 16).astype(np.uint8)

    def pairs(rows: np.ndarray, classes: np.ndarray) -> list[tuple[bytes, int]]:
        return sorted((row.tobytes(), int(c)) for row, c in zip(rows, classes, strict=True))

    assert pairs(images[:, 0], found_labels) == pairs(expected, labels)
    share = np.bincount(digits.test.labels) / np.bincount(labels)
    assert (abs(share - 0.25) < 0.01).all()
    assert digits.checksum == data.load("digits").checksum


def own(**changes: np.ndarray) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    content = {
        "train_images": rng.integers(0, 256, (6, 4, 5, 3), np.uint8),
        "train_labels": np.array([0, 1, 2, 0, 1, 2]),
        "test_images": rng.integers(0, 256, (3, 4, 5, 3), np.uint8),
        "test_labels": np.array([2, 1, 0], np.uint8),
    }
    return {**content, **changes}


def test_npz_reads_channels_first_and_last_alike(tmp_path: Path) -> None:
    content = own()
    first = {k: v.transpose(0, 3, 1, 2) if v.ndim == 4 else v for k, v in content.items()}
    np.savez(tmp_path / "last.npz", **content)
    np.savez(tmp_path / "first.npz", **first, classes=np.array(["a", "b", "c"]))
    a, b = (data.load(f"npz:{tmp_path / name}") for name in ("last.npz", "first.npz"))
    np.testing.assert_array_equal(a.train.images, first["train_images"])
    np.testing.assert_array_equal(a.test.labels, [2, 1, 0])
    assert a.test.labels.dtype == np.int64
    assert a.checksum == b.checksum
    assert (a.classes, b.classes) == (("0", "1", "2"), ("a", "b", "c"))
    assert a.side == 4


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train_images": np.zeros((6, 4, 5, 3))}, "train_images of .* must be uint8"),
        ({"train_images": np.zeros((6, 4, 5, 4), np.uint8)}, "must be uint8"),
        ({"train_labels": np.zeros(5, int)}, "must be labelled by 6 integers"),
        ({"train_labels": np.zeros(6)}, "must be labelled by 6 integers, got 'float64"),
        ({"train_labels": np.array([0, 1, 3, 0, 1, 3])}, "must be of all 4 classes"),
        ({"test_labels": np.array([0, 1, -1])}, "must be labelled from 0 to 2, got '-1 to 1'"),
        ({"test_images": np.zeros((3, 4, 4, 3), np.uint8)}, "images of one size"),
        ({"train_labels": np.array([0, 1, 2, 0, 1, 10**13])}, "must be labelled below 6, the num"),
        ({"test_labels": np.array([0, 1, 3])}, "must be labelled below 3, the number of its"),
        ({"train_labels": np.full(6, -1), "test_labels": np.full(3, -1)}, "from 0 to 0, got '-1"),
        ({"classes": np.array(["a", "b"])}, "must be labelled from 0 to 1"),
        ({"test_labels": np.array([{}, 1, 2], dtype=object)}, r"a whole \.npz file without"),
    ],
)
def test_npz_refuses_what_it_cannot_be(tmp_path: Path, changes, message: str) -> None:
    np.savez(tmp_path / "own.npz", **own(**changes))
    with pytest.raises(ValueError, match=message) as error:
        data.load(f"npz:{tmp_path / 'own.npz'}")
    assert "\n" not in str(error.value)


def npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def vast() -> bytes:
    """An array of four pixels whose header claims 218 TiB."""
    file = io.BytesIO()
    header = {"descr": "|u1", "fortran_order": False, "shape": (10**10, 100, 80, 3)}
    np.lib.format.write_array_header_1_0(file, header)
    return file.getvalue() + bytes(12)


@pytest.mark.parametrize(
    ("member", "content", "message"),
    [
        ("train_images", b"pixels", "a file with an array train_images, got a bytes"),
        ("classes", b"cat, dog", "a file with an array classes, got a bytes"),
        ("train_images.npy", vast(), "got 'one that (claims more memory|cannot be read)"),
        ("train_labels.npy", b"\x93NUMPY\x01\x00", "got 'one that cannot be read'"),
    ],
)
def test_npz_tells_a_member_that_is_no_array(tmp_path, member, content, message: str) -> None:
    path = tmp_path / "own.npz"
    with zipfile.ZipFile(path, "w") as file:
        for key, value in own().items():
            if key != member.removesuffix(".npy"):
                file.writestr(f"{key}.npy", npy(value))
        file.writestr(member, content)
    with pytest.raises(ValueError, match=message) as error:
        data.load(f"npz:{path}")
    assert str(error.value).startswith(f"{path} must be ")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("at", "value"), [(6, 1), (8, 99), (8, 8)], ids=["encrypted", "unknown", "not deflated"]
)
def test_npz_tells_a_member_that_cannot_be_unpacked(tmp_path: Path, at: int, value: int) -> None:
    """Flags and compression lie at bytes 6 and 8 of a zip's local headers, and two on in others."""
    path = tmp_path / "own.npz"
    np.savez(path, **own())
    content = bytearray(path.read_bytes())
    for mark, place in ((b"PK\x03\x04", at), (b"PK\x01\x02", at + 2)):
        start = -1
        while (start := content.find(mark, start + 1)) >= 0:
            content[start + place] = value
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"own.npz must be a whole .npz file.*that cannot be read"):
        data.load(f"npz:{path}")


def test_npz_names_files_that_are_missing_damaged_or_incomplete(tmp_path: Path) -> None:
    path = tmp_path / "own.npz"
    with pytest.raises(ValueError, match=r"own.npz must be a file that can be read"):
        data.load(f"npz:{path}")
    content = own()
    del content["test_labels"]
    np.savez(path, **content)
    with pytest.raises(ValueError, match=r"own.npz must be a file with test_labels"):
        data.load(f"npz:{path}")
    whole = path.read_bytes()
    for broken in (b"", b"garbage", whole[: len(whole) // 2]):
        path.write_bytes(broken)
        with pytest.raises(ValueError, match=r"own.npz must be a whole \.npz file"):
            data.load(f"npz:{path}")
    np.save(tmp_path / "one.npy", np.zeros(3))
    with pytest.raises(ValueError, match=r"one.npy must be a whole \.npz file"):
        data.load(f"npz:{tmp_path / 'one.npy'}")


@pytest.mark.parametrize("name", ["cifar11", "folder:", "npz:", ""])
def test_load_names_what_it_knows(name: str) -> None:
    with pytest.raises(ValueError, match=r"name must be one of digits, .*cifar10, .*folder:PATH"):
        data.load(name)


@pytest.mark.parametrize(
    "name", sorted(name for name, entry in data.DATASETS.items() if entry.place)
)
def test_every_dataset_says_what_to_do_where_it_is_not(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match=r"normscope data fetch|place your copy") as error:
        data.load(name, tmp_path)
    assert "\n" not in str(error.value)


def test_default_root_is_where_the_environment_says(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NORMSCOPE_DATA", str(tmp_path))
    assert data.default_root() == tmp_path
    monkeypatch.delenv("NORMSCOPE_DATA")
    assert data.default_root() == Path.home() / ".cache" / "normscope"


def test_check_says_what_was_found(tmp_path: Path) -> None:
    lines = data.check("digits")
    assert lines[0] == "digits: 1,347 training and 450 test images of 10 classes"
    assert lines[-1] == f"sha256 {data.load('digits').checksum}"
    np.save(tmp_path / "cifar10h-counts.npy", np.full((10_000, 10), 5))
    assert data.check("cifar10h", tmp_path) == ["cifar10h: 10000 x 10"]


def test_digits_are_the_same_wherever_scikit_learn_has_them(monkeypatch) -> None:
    checksum = data.load("digits").checksum
    monkeypatch.setattr(arrays, "find_spec", lambda _: None)
    assert data.load("digits").checksum == checksum


def test_data_and_digits_stay_light() -> None:
    code = "import sys, normscope.data; normscope.data.load('digits'); "
    code += "print([m for m in sys.modules if m.split('.')[0] in "
    code += "('PIL', 'sklearn', 'scipy', 'pyarrow', 'matplotlib')])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_held_out_tests_on_the_last_training_images_alone() -> None:
    whole = data.load("digits")
    part = held_out(whole, 100, "some")
    assert (len(part.train), len(part.test), part.name) == (1247, 100, "some")
    named = data.load("digits-held-out")
    assert (len(named.train), len(named.test)) == (1000, 347)
    assert "1,000 to train on, the last 347 to test" in data.DATASETS["digits-held-out"].title
    both = np.concatenate([np.asarray(s.images) for s in (part.train, part.test)])
    assert np.array_equal(both, np.asarray(whole.train.images))
    assert part.checksum != whole.checksum
    with pytest.raises(ValueError, match="last must be from 1 to 1346, got 1347"):
        held_out(whole, 1347, "none")
