"""MNIST and Fashion-MNIST from files in their layout."""

import gzip
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from normscope.data.mnist import FASHION, MNIST, read_mnist
from normscope.data.novel import enlarged_digits, noise, textures

SMALL = replace(MNIST, train=20, test=10)


def idx(array: np.ndarray) -> bytes:
    kind = 2051 if array.ndim == 3 else 2049
    return struct.pack(f">{1 + array.ndim}i", kind, *array.shape) + array.tobytes()


def write(root: Path, *, packed: bool = True) -> dict[str, np.ndarray]:
    """The four files, small; what they hold, by name."""
    random = np.random.default_rng(0)
    arrays = {}
    for kind, n in (("train", SMALL.train), ("t10k", SMALL.test)):
        arrays[f"{kind}-images-idx3-ubyte"] = random.integers(0, 256, (n, 28, 28), np.uint8)
        arrays[f"{kind}-labels-idx1-ubyte"] = (np.arange(n) % 10).astype(np.uint8)
    (root / "mnist").mkdir(parents=True)
    for name, array in arrays.items():
        path = root / "mnist" / (f"{name}.gz" if packed else name)
        path.write_bytes(gzip.compress(idx(array)) if packed else idx(array))
    return arrays


def test_images_are_grey_in_the_middle_of_a_black_margin(tmp_path: Path) -> None:
    written = write(tmp_path)["t10k-images-idx3-ubyte"]
    found = read_mnist(tmp_path, SMALL)
    images = np.asarray(found.test.images)
    assert images.shape == (10, 3, 32, 32)
    np.testing.assert_array_equal(images[:, :, 2:-2, 2:-2], written[:, None].repeat(3, 1))
    assert images.sum() == 3 * written.sum()
    np.testing.assert_array_equal(found.train.labels, np.arange(20) % 10)
    assert found.classes == tuple("0123456789")


def test_files_may_be_unpacked(tmp_path: Path) -> None:
    write(tmp_path / "packed")
    write(tmp_path / "plain", packed=False)
    packed, plain = (read_mnist(tmp_path / name, SMALL) for name in ("packed", "plain"))
    assert packed.checksum == plain.checksum


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no gzip",
        gzip.compress(b"no IDX"),
        gzip.compress(idx(np.zeros((10, 28, 28), np.uint8)))[:-20],
        gzip.compress(idx(np.zeros((10, 28, 28), np.uint8)) + b"more"),
        gzip.compress(idx(np.zeros((9, 28, 28), np.uint8))),
        gzip.compress(bytes(1 << 20)),
    ],
    ids=["empty", "no gzip", "no IDX", "cut", "longer", "fewer", "other"],
)
def test_a_damaged_file_is_refused_in_one_line_that_helps(tmp_path: Path, content: bytes) -> None:
    write(tmp_path)
    (tmp_path / "mnist" / "t10k-images-idx3-ubyte.gz").write_bytes(content)
    with pytest.raises(ValueError, match=r"t10k-images.*must be .*normscope data fetch mnist\.$"):
        read_mnist(tmp_path, SMALL)


def test_what_is_missing_says_how_to_fetch_it(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="Run: normscope data fetch fashion-mnist"):
        read_mnist(tmp_path, FASHION)
    write(tmp_path)
    (tmp_path / "mnist" / "train-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(ValueError, match="train-labels-idx1-ubyte must be a file that can be read"):
        read_mnist(tmp_path, SMALL)


def test_sets_that_are_made_use_the_whole_range_and_depend_on_their_seed_alone() -> None:
    for made in (noise, textures):
        images = made(200, side=16, seed=1)
        np.testing.assert_array_equal(images, made(200, side=16, seed=1))
        assert not np.array_equal(images, made(200, side=16, seed=2))
        assert images.shape == (200, 3, 16, 16)
        assert images.min() < 20
        assert images.max() > 235
    smooth = np.abs(np.diff(textures(200, side=16).astype(int), axis=-1)).mean()
    assert smooth < np.abs(np.diff(noise(200, side=16).astype(int), axis=-1)).mean() / 2


def test_enlarged_digits_are_the_digits() -> None:
    large = enlarged_digits(32)
    assert large.shape == (1797, 3, 32, 32)
    small = enlarged_digits(8)
    blocks = large.reshape(1797, 3, 8, 4, 8, 4).mean(axis=(3, 5))
    assert np.corrcoef(blocks.ravel(), small.ravel())[0, 1] > 0.95
