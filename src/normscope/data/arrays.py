"""Datasets that are arrays already: scikit-learn's digits, and the user's own .npz files."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np

from normscope._checks import invalid
from normscope.data.images import ImageArrays, Split, array_checksum, check_classes

_KEYS = ("train_images", "train_labels", "test_images", "test_labels")


def read_digits() -> ImageArrays:
    """1,797 handwritten digits of 8 x 8 pixels, which come with scikit-learn.

    Grey values of 0 to 16 become 0 to 255 on all three channels. Sorted by class, every fourth
    image is for testing: 1,347 for training and 450 for testing, always the same.
    """
    from sklearn.datasets import load_digits

    grey, labels = load_digits(return_X_y=True)
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


def read_npz(path: Path) -> ImageArrays:
    """A .npz file of `train_images`, `train_labels`, `test_images` and `test_labels`.

    Images are uint8, (n, h, w, 3) or (n, 3, h, w), square or not; labels are integers from 0.
    `classes`, if there, holds the names. Nothing in the file is run.
    """
    advice = f"Save it with numpy.savez and the keys {', '.join(_KEYS)}."
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            content = {key: file[key] for key in (*_KEYS, "classes") if key in file}
    except FileNotFoundError:
        raise invalid(str(path), "a file that can be read", "nothing", advice) from None
    except (OSError, ValueError, EOFError, AttributeError, TypeError, zipfile.BadZipFile):
        got = "one that cannot be read"
        raise invalid(str(path), "a whole .npz file without pickles", got, advice) from None
    missing = [key for key in _KEYS if key not in content]
    if missing:
        raise invalid(str(path), f"a file with {missing[0]}", "none", advice)
    splits = []
    for kind in ("train", "test"):
        name = f"{kind}_images of {path}"
        images, labels = content[f"{kind}_images"], content[f"{kind}_labels"]
        splits.append(Split(_channels_first(name, images), _integers(name, labels, len(images))))
    train, test = splits
    if train.images.shape[1:] != test.images.shape[1:]:
        got = f"{train.images.shape[1:]} and {test.images.shape[1:]}"
        raise invalid(str(path), "a file of images of one size", got, "Resize them.")
    n_classes = int(max(train.labels.max(), test.labels.max())) + 1
    classes = tuple(str(name) for name in content.get("classes", np.arange(n_classes)).ravel())
    for kind, split in (("train", train), ("test", test)):
        what = f"{kind}_labels of {path}"
        check_classes(what, split.labels, len(classes), "Number the classes from 0.")
    side = min(train.images.shape[2:])
    checksum = array_checksum(train, test)
    return ImageArrays(f"npz:{path}", train, test, classes, side, str(path), checksum)


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
