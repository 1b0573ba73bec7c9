"""CIFAR-10 and CIFAR-100 from the files of their publisher, in the Python or the binary layout.

Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from normscope._checks import invalid
from normscope.data import pickles
from normscope.data.images import ImageArrays, Split, array_checksum, check_classes

_PIXELS = 3 * 32 * 32


@dataclass(frozen=True)
class Published:
    """What the publisher's files are called and hold.

    Args:
        name: as `load` knows it.
        python_folder: the unpacked Python archive.
        binary_folder: the unpacked binary archive.
        train: names of the training files, without the `.bin` of the binary ones.
        test: name of the test file.
        train_count: images in each training file.
        test_count: images in the test file.
        meta: the Python layout's file of names.
        names: the binary layout's file of class names.
        label_key: where labels are in the Python layout; class names are at a similar key.
        label_bytes: bytes before each binary image, the last of them its class.
        n_classes: how many classes.
    """

    name: str
    python_folder: str
    binary_folder: str
    train: tuple[str, ...]
    test: str
    train_count: int
    test_count: int
    meta: str
    names: str
    label_key: str
    label_bytes: int
    n_classes: int

    @property
    def advice(self) -> str:
        """What to do about a damaged file."""
        return f"Remove its folder and run: normscope data fetch {self.name}."


CIFAR10 = Published(
    name="cifar10",
    python_folder="cifar-10-batches-py",
    binary_folder="cifar-10-batches-bin",
    train=tuple(f"data_batch_{i}" for i in range(1, 6)),
    test="test_batch",
    train_count=10_000,
    test_count=10_000,
    meta="batches.meta",
    names="batches.meta.txt",
    label_key="labels",
    label_bytes=1,
    n_classes=10,
)
CIFAR100 = Published(
    name="cifar100",
    python_folder="cifar-100-python",
    binary_folder="cifar-100-binary",
    train=("train",),
    test="test",
    train_count=50_000,
    test_count=10_000,
    meta="meta",
    names="fine_label_names.txt",
    label_key="fine_labels",
    label_bytes=2,  # coarse, then fine
    n_classes=100,
)


def is_there(root: Path, published: Published) -> bool:
    """Whether a folder holds it, in either layout."""
    return any((root / f).is_dir() for f in (published.python_folder, published.binary_folder))


def read_cifar(root: Path, published: Published) -> ImageArrays:
    """CIFAR-10 or CIFAR-100, in file order; the Python layout is taken if both are there.

    Args:
        root: the folder that holds the unpacked archive's.
        published: what must be found.

    Raises:
        ValueError: if a file is missing, damaged, or not as published.
    """
    if not is_there(root, published):
        constraint = f"a folder that holds {published.python_folder} or {published.binary_folder}"
        advice = f"Run: normscope data fetch {published.name}."
        raise invalid("root", constraint, str(root), advice)
    binary = not (root / published.python_folder).is_dir()
    folder = root / (published.binary_folder if binary else published.python_folder)
    read = _read_binary if binary else _read_python
    files = [read(folder, file, published.train_count, published) for file in published.train]
    train = Split(
        np.concatenate([np.asarray(file.images) for file in files]),
        np.concatenate([file.labels for file in files]),
    )
    test = read(folder, published.test, published.test_count, published)
    for split, name in ((train, "training"), (test, "test")):
        what = f"{folder}'s {name} set"
        check_classes(what, split.labels, published.n_classes, published.advice)
    classes = (_binary_names if binary else _python_names)(folder, published)
    source = f"{folder.name}, https://www.cs.toronto.edu/~kriz/cifar.html"
    checksum = array_checksum(train, test)
    return ImageArrays(published.name, train, test, classes, 32, source, checksum)


def _read_python(folder: Path, file: str, count: int, published: Published) -> Split:
    """One pickle: a dict of `data`, (n, 3072), and labels."""
    path, advice = folder / file, published.advice
    content = _dict(path, advice)
    data, labels = content.get("data"), content.get(published.label_key)
    if (
        not isinstance(data, np.ndarray)
        or data.dtype != np.uint8
        or data.ndim != 2
        or data.shape[1] != _PIXELS
    ):
        raise invalid(str(path), f"a batch with data, uint8 (n, {_PIXELS})", data, advice)
    if not isinstance(labels, list) or not all(type(label) is int for label in labels):
        constraint = f"a batch with a list of integer {published.label_key}"
        raise invalid(str(path), constraint, labels, advice)
    if not len(data) == len(labels) == count:
        got = f"{len(data):,} images and {len(labels):,} labels"
        raise invalid(str(path), f"a batch of {count:,} images", got, advice)
    if not all(0 <= label < published.n_classes for label in labels):
        constraint = f"labelled from 0 to {published.n_classes - 1}"
        raise invalid(str(path), constraint, f"{min(labels)} to {max(labels)}", advice)
    return Split(data.reshape(-1, 3, 32, 32), np.array(labels, np.int64))


def _read_binary(folder: Path, file: str, count: int, published: Published) -> Split:
    """Records of the label's bytes and 3072 pixels, without a header."""
    path = folder / f"{file}.bin"
    record = published.label_bytes + _PIXELS
    data = np.frombuffer(_bytes(path, published.advice), np.uint8)
    if data.size != count * record:
        constraint = f"a batch of {count:,} images, {count * record:,} bytes"
        raise invalid(str(path), constraint, f"{data.size:,} bytes", published.advice)
    data = data.reshape(count, record)
    labels = data[:, published.label_bytes - 1].astype(np.int64)
    if labels.max() >= published.n_classes:
        constraint = f"labelled from 0 to {published.n_classes - 1}"
        raise invalid(str(path), constraint, int(labels.max()), published.advice)
    return Split(data[:, published.label_bytes :].reshape(-1, 3, 32, 32), labels)


def _python_names(folder: Path, published: Published) -> tuple[str, ...]:
    path = folder / published.meta
    names = _dict(path, published.advice).get(published.label_key[:-1] + "_names")
    names = [_text(name) for name in names] if isinstance(names, list) else []
    return _checked_names(path, names, published)


def _binary_names(folder: Path, published: Published) -> tuple[str, ...]:
    path = folder / published.names
    text = _bytes(path, published.advice).decode("ascii", errors="replace")
    return _checked_names(path, text.split(), published)


def _checked_names(path: Path, names: Sequence[object], published: Published) -> tuple[str, ...]:
    strings = tuple(name for name in names if isinstance(name, str))
    if len(strings) != published.n_classes or len(set(strings)) != len(strings):
        constraint = f"a list of {published.n_classes} different names"
        raise invalid(str(path), constraint, f"{len(set(strings))}", published.advice)
    return strings


def _dict(path: Path, advice: str) -> dict[object, object]:
    content = pickles.load(path, advice)
    if not isinstance(content, dict):
        raise invalid(str(path), "a pickled dict", content, advice)
    return {_text(key): value for key, value in content.items()}


def _text(value: object) -> object:
    """Strings of Python 2, which a copy that Python 3 wrote holds as bytes."""
    return value.decode("latin1") if isinstance(value, bytes) else value


def _bytes(path: Path, advice: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        raise invalid(str(path), "a file that can be read", "nothing", advice) from None
