"""Small files in the layouts that publishers use."""

import pickle
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from normscope.data.cifar import CIFAR10, CIFAR100, Published

SMALL = {
    "cifar10": replace(CIFAR10, train_count=20, test_count=30),
    "cifar100": replace(CIFAR100, train_count=200, test_count=100),
}


def _python2(value: object) -> bytes:
    """Protocol 2 as Python 2 wrote it, with strings of bytes and numpy's old module."""

    def text(data: bytes) -> bytes:
        return b"T" + struct.pack("<i", len(data)) + data

    def emit(value: object) -> bytes:
        if isinstance(value, str):
            return text(value.encode("latin1"))
        if isinstance(value, int):
            return b"J" + struct.pack("<i", value)
        if isinstance(value, list):
            return b"(" + b"".join(map(emit, value)) + b"l"
        if isinstance(value, dict):
            return b"(" + b"".join(emit(k) + emit(v) for k, v in value.items()) + b"d"
        assert isinstance(value, np.ndarray)
        shape = b"(" + b"".join(map(emit, value.shape)) + b"t"
        empty = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00tU\x01btR"
        dtype = b"cnumpy\ndtype\n(U\x02u1K\x00K\x01tR(K\x03U\x01|NNNJ\xff\xff\xff\xff"
        dtype += b"J\xff\xff\xff\xffK\x00tb"
        return empty + b"(K\x01" + shape + dtype + b"\x89" + text(value.tobytes()) + b"tb"

    return b"\x80\x02" + emit(value) + b"."


def _python3(value: dict) -> bytes:
    """The same content as Python 3 writes it for Python 2 after reading it as bytes."""
    return pickle.dumps({key.encode(): item for key, item in value.items()}, protocol=2)


def _batches(published: Published) -> dict[str, tuple[np.ndarray, list[int]]]:
    """Random pixels of every file, classes in turn."""
    rng = np.random.default_rng(0)
    counts = {**dict.fromkeys(published.train, published.train_count)}
    counts[published.test] = published.test_count
    return {
        file: (
            rng.integers(0, 256, (count, 3072), np.uint8),
            [i % published.n_classes for i in range(count)],
        )
        for file, count in counts.items()
    }


@pytest.fixture
def python2_pickle() -> Callable[[object], bytes]:
    return _python2


@pytest.fixture
def python3_pickle() -> Callable[[dict], bytes]:
    return _python3


@pytest.fixture
def batches() -> Callable[[Published], dict[str, tuple[np.ndarray, list[int]]]]:
    return _batches


@pytest.fixture(params=["cifar10", "cifar100"])
def published(request: pytest.FixtureRequest) -> Published:
    return SMALL[request.param]


@pytest.fixture
def write_python() -> Callable[..., Path]:
    def write(root: Path, published: Published, dumps: Callable[[dict], bytes] = _python2) -> Path:
        folder = root / published.python_folder
        folder.mkdir(parents=True)
        for file, (data, labels) in _batches(published).items():
            content = {"data": data, published.label_key: labels}
            (folder / file).write_bytes(dumps(content))
        names = [f"class_{i}" for i in range(published.n_classes)]
        meta = {published.label_key[:-1] + "_names": names}
        (folder / published.meta).write_bytes(dumps(meta))
        return folder

    return write


@pytest.fixture
def write_binary() -> Callable[[Path, Published], Path]:
    def write(root: Path, published: Published) -> Path:
        folder = root / published.binary_folder
        folder.mkdir(parents=True)
        for file, (data, labels) in _batches(published).items():
            fine = np.array(labels, np.uint8)[:, None]
            coarse = [fine // 5] if published.label_bytes == 2 else []
            (folder / f"{file}.bin").write_bytes(np.hstack([*coarse, fine, data]).tobytes())
        names = "".join(f"class_{i}\n" for i in range(published.n_classes))
        (folder / published.names).write_text(names + "\n")
        return folder

    return write


@pytest.fixture
def write_images() -> Callable[..., Path]:
    """Folders of noise, `each` images of classes a and b, of the sizes given in turn."""

    def write(path: Path, *, each: int, sizes: list[tuple[int, int]], test: str = "test") -> Path:
        rng = np.random.default_rng(0)
        for kind in ("train", test):
            for one in ("a", "b"):
                (path / kind / one).mkdir(parents=True)
                for i in range(each):
                    width, height = sizes[i % len(sizes)]
                    pixels = rng.integers(0, 256, (height, width, 3), np.uint8)
                    Image.fromarray(pixels).save(path / kind / one / f"{i}.png")
        return path

    return write
