"""Datasets that are arrays already: scikit-learn's digits, and the user's own .npz files."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import IO

import numpy as np

from normscope._checks import invalid
from normscope.data.images import (
    ImageArrays,
    Split,
    array_checksum,
    check_classes,
    class_count,
)
from normscope.data.paths import check_file

_KINDS = ("train", "test")
_KEYS = ("train_images", "train_labels", "test_images", "test_labels")
_ADVICE = f"Save it with numpy.savez and the keys {', '.join(_KEYS)}."
_NUMBERED = "Number the classes from 0."


def read_digits() -> ImageArrays:
    """1,797 handwritten digits of 8 x 8 pixels, which come with scikit-learn.

    Grey values of 0 to 16 become 0 to 255 on all three channels. Sorted by class, every fourth
    image is for testing: 1,347 for training and 450 for testing, always the same.
    """
    grey, labels = _digits()
    labels = labels.astype(np.int64)
    grey = np.rint(grey * 255 / 16).astype(np.uint8).reshape(-1, 1, 8, 8)
    images = grey.repeat(3, axis=1)
    is_test = np.zeros(len(labels), bool)
    is_test[np.argsort(labels, kind="stable")[::4]] = True
    train = Split(images[~is_test], labels[~is_test])
    test = Split(images[is_test], labels[is_test])
    classes = tuple(str(i) for i in range(10))
    checksum = array_checksum(train, test)
    return ImageArrays("digits", train, test, classes, 8, "sklearn.datasets.load_digits", checksum)


def _digits() -> tuple[np.ndarray, np.ndarray]:
    """Pixels and labels, from the file where scikit-learn has them: its import takes seconds."""
    found = find_spec("sklearn")
    for folder in (found.submodule_search_locations or []) if found else []:
        path = Path(folder, "datasets", "data", "digits.csv.gz")
        if path.exists():
            table = np.loadtxt(path, delimiter=",")
            return table[:, :-1], table[:, -1]
    from sklearn.datasets import load_digits

    grey, labels = load_digits(return_X_y=True)
    return np.asarray(grey), np.asarray(labels)


def read_npz(path: Path) -> ImageArrays:
    """A .npz file of `train_images`, `train_labels`, `test_images` and `test_labels`.

    Images are uint8, (n, h, w, 3) or (n, 3, h, w), square or not; labels are integers from
    0, below the number of images. `classes`, if there, holds the names. No code in it is run.
    """
    check_file(path, "a file that can be read", _ADVICE)
    with path.open("rb") as stream:
        content = _arrays(str(path), stream)
    splits = []
    for kind in _KINDS:
        name = f"{kind}_images of {path}"
        images, labels = content[f"{kind}_images"], content[f"{kind}_labels"]
        splits.append(Split(_channels_first(name, images), _integers(name, labels, len(images))))
    train, test = splits
    if train.images.shape[1:] != test.images.shape[1:]:
        got = f"{train.images.shape[1:]} and {test.images.shape[1:]}"
        raise invalid(str(path), "a file of images of one size", got, "Resize them.")
    labels = {f"{kind}_labels of {path}": s.labels for kind, s in zip(_KINDS, splits, strict=True)}
    n_classes = max(class_count(name, one, _NUMBERED) for name, one in labels.items())
    classes = tuple(str(name) for name in content.get("classes", np.arange(n_classes)).ravel())
    for name, one in labels.items():
        check_classes(name, one, len(classes), _NUMBERED)
    side = min(train.images.shape[2:])
    checksum = array_checksum(train, test)
    return ImageArrays(f"npz:{path}", train, test, classes, side, str(path), checksum)


def _arrays(name: str, stream: IO[bytes]) -> dict[str, np.ndarray]:
    """The known arrays in a .npz file."""
    constraint = "a whole .npz file without pickles"
    try:
        with np.load(stream, allow_pickle=False) as file:
            content = {key: file[key] for key in (*_KEYS, "classes") if key in file}
    except MemoryError:
        got = "one that claims more memory than there is"
        raise invalid(name, constraint, got, _ADVICE) from None
    except Exception:  # damaged files raise errors of any kind, encrypted ones their own
        raise invalid(name, constraint, "one that cannot be read", _ADVICE) from None
    for key in _KEYS:
        if key not in content:
            raise invalid(name, f"a file with {key}", "none", _ADVICE)
    for key, value in content.items():
        if not isinstance(value, np.ndarray):  # bytes, where the file inside is no .npy
            raise invalid(name, f"a file with an array {key}", value, _ADVICE)
    return content


def _channels_first(name: str, images: np.ndarray) -> np.ndarray:
    if images.dtype == np.uint8 and images.ndim == 4 and len(images):
        if images.shape[1] == 3:
            return images
        if images.shape[3] == 3:
            return np.ascontiguousarray(images.transpose(0, 3, 1, 2))
    got = f"{images.dtype} {images.shape}"
    raise invalid(name, "uint8, (n, h, w, 3) or (n, 3, h, w)", got, "Convert them.")


def _integers(name: str, labels: np.ndarray, n: int) -> np.ndarray:
    if labels.dtype.kind not in "iu" or labels.shape != (n,):
        got = f"{labels.dtype} {labels.shape}"
        raise invalid(name, f"labelled by {n} integers", got, "Give each image its class.")
    return labels.astype(np.int64)
