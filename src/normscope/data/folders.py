"""Datasets that are folders of image files: the user's own, Tiny ImageNet, ImageNet-100."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from normscope._checks import invalid
from normscope.data.images import (
    ImageArrays,
    LazyImages,
    Split,
    array_checksum,
    check_classes,
    decoded,
    file_checksum,
    opened,
)

SUFFIXES = {".jpg", ".jpeg", ".png", ".bmp", ".webp", ".ppm"}
_SIDES = (32, 64, 128, 224)
_SAMPLE = 200  # images whose size decides the side
_MOST_BYTES = 2 << 30  # decoded sets above this stay in their files
_ADVICE = "Lay it out as train/<class>/* and test/<class>/* (or val/<class>/*)."
_BROKEN = "Remove or replace it."


class ImageFiles(LazyImages):
    """Image files below one folder, decoded when asked for.

    Names are kept in tensors, which worker processes share. A list would be copied to each worker;
    since a pipe holds 64 KB, workers would then start one after the other.
    """

    def __init__(self, root: Path, names: Sequence[str]) -> None:
        encoded = [os.fsencode(name) for name in names]
        self.root = root
        self._names = torch.frombuffer(bytearray(b"".join(encoded)), dtype=torch.uint8)
        self._ends = torch.tensor([0, *map(len, encoded)]).cumsum(0)

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, i: int) -> np.ndarray:
        i = range(len(self))[i]
        start, end = self._ends.numpy()[i : i + 2]  # a tensor's own slices take ten times as long
        path = self.root / os.fsdecode(self._names.numpy()[start:end].tobytes())
        return np.asarray(opened(path, str(path), _BROKEN))


def read_folder(path: Path, name: str, *, side: int | None = None) -> ImageArrays:
    """`path`/train/<class>/* and `path`/test/<class>/* (or val), classes in order of their names.

    Args:
        path: the folder.
        name: what to call the dataset.
        side: what networks are trained at; the images then stay in their files. By default, the
            largest of 32, 64, 128 and 224 that is not above the median shorter side of a sample
            (at least 32). Images are then decoded into arrays, shorter side to that size and
            centre crop, unless that takes more than 2 GB.
    """
    test_folder = "test" if (path / "test").is_dir() else "val"
    classes, names, labels = _listed(path, "train")
    test_classes, test_names, test_labels = _listed(path, test_folder)
    if test_classes != classes:
        odd = sorted(set(classes) ^ set(test_classes))[0]
        where = f"{path / test_folder}"
        raise invalid(where, "of the same classes as train", f"{odd} in only one", _ADVICE)
    lazy = side is not None
    if side is None:
        side = _natural_side(path, names)
        lazy = (len(names) + len(test_names)) * 3 * side**2 > _MOST_BYTES
    if lazy:
        train = Split(ImageFiles(path, names), labels)
        test = Split(ImageFiles(path, test_names), test_labels)
        checksum = file_checksum(path, names + test_names)
    else:
        train = Split(decoded([path / n for n in names], side, _BROKEN), labels)
        test = Split(decoded([path / n for n in test_names], side, _BROKEN), test_labels)
        checksum = array_checksum(train, test)
    return ImageArrays(name, train, test, classes, side, str(path), checksum)


def _listed(path: Path, kind: str) -> tuple[tuple[str, ...], list[str], np.ndarray]:
    """Classes, relative names of the images in a fixed order, and their labels."""
    folder = path / kind
    if not folder.is_dir():
        raise invalid(str(folder), "a folder of classes", "nothing", _ADVICE)
    classes = tuple(sorted(f.name for f in folder.iterdir() if f.is_dir()))
    names, labels = [], []
    for label, one in enumerate(classes):
        files = _image_names(folder / one)
        names += [f"{kind}/{one}/{file}" for file in files]
        labels += [label] * len(files)
    if not classes:
        raise invalid(str(folder), "a folder of classes", "an empty folder", _ADVICE)
    return classes, names, np.array(labels, np.int64)


def _image_names(folder: Path) -> list[str]:
    """Names of image files, in order; all must be regular files."""
    with os.scandir(folder) as entries:
        found = [(e.name, e.is_file()) for e in entries if Path(e.name).suffix.lower() in SUFFIXES]
    if not found:
        raise invalid(str(folder), "a folder of images", "none", _ADVICE)
    for name, regular in found:
        if not regular:  # a FIFO, a folder, a link to nothing
            raise invalid(str(folder / name), "a whole image", "no regular file", _BROKEN)
    return sorted(name for name, _ in found)


def _natural_side(path: Path, names: list[str]) -> int:
    sample = names[:: max(1, len(names) // _SAMPLE)]
    shorter = np.median([min(opened(path / n, str(path / n), _BROKEN).size) for n in sample])
    return max([side for side in _SIDES if side <= shorter], default=_SIDES[0])


@dataclass(frozen=True)
class TinyPublished:
    """How many classes Tiny ImageNet has, and how many images of each."""

    n_classes: int = 200
    train_each: int = 500
    val_each: int = 50


def read_tiny_imagenet(root: Path, published: TinyPublished | None = None) -> ImageArrays:
    """Tiny ImageNet: 200 classes at 64 pixels; the labelled validation images are for testing.

    Args:
        root: holds `tiny-imagenet-200` as unpacked.
        published: what must be found.
    """
    published = published or TinyPublished()
    folder = root / "tiny-imagenet-200"
    if not (folder / "train").is_dir():
        advice = "Run: normscope data fetch tiny-imagenet."
        raise invalid("root", "a folder that holds tiny-imagenet-200", str(root), advice)
    advice = "Remove the folder tiny-imagenet-200 and run: normscope data fetch tiny-imagenet."
    classes = tuple(sorted(f.name for f in (folder / "train").iterdir() if f.is_dir()))
    number = {one: label for label, one in enumerate(classes)}
    train_files = [
        (file, number[one])
        for one in classes
        for file in sorted((folder / "train" / one / "images").glob("*.JPEG"))
    ]
    val_files = []
    for line in _lines(folder / "val" / "val_annotations.txt", advice):
        file, one, *_ = [*line.split("\t"), ""]
        if one not in number or Path(file).name != file:
            constraint = "lines of a file and its class"
            raise invalid(f"{folder}/val/val_annotations.txt", constraint, line[:80], advice)
        val_files.append((folder / "val" / "images" / file, number[one]))
    splits = []
    for kind, files, each in (
        ("train", train_files, published.train_each),
        ("val", val_files, published.val_each),
    ):
        labels = np.array([label for _, label in files], np.int64)
        check_classes(f"{folder / kind}", labels, published.n_classes, advice)
        if (np.bincount(labels) != each).any():
            constraint = f"a folder of {each} images of each class"
            raise invalid(f"{folder / kind}", constraint, f"{len(files)} in all", advice)
        splits.append(Split(decoded([file for file, _ in files], 64, advice), labels))
    train, test = splits
    source = "https://cs231n.stanford.edu/tiny-imagenet-200.zip"
    checksum = array_checksum(train, test)
    return ImageArrays("tiny-imagenet", train, test, classes, 64, source, checksum)


def _lines(path: Path, advice: str) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        raise invalid(str(path), "a file that can be read", "nothing", advice) from None


def read_imagenet100(root: Path) -> ImageArrays:
    """ImageNet-100, whose images stay in their files, at the 128 pixels of the paper's code.

    Args:
        root: holds `imagenet100` with `train/<class>/*` and `val/<class>/*`, or with parquet
            shards `train-*.parquet` and `validation-*.parquet`.
    """
    from normscope.data.parquet import read_parquet

    folder = root / "imagenet100"
    if (folder / "train").is_dir():
        return read_folder(folder, "imagenet100", side=128)
    if any(folder.glob("*.parquet")):
        return read_parquet(folder, "imagenet100", side=128)
    raise invalid(
        str(folder), "a folder of train/ and val/, or of parquet shards", "nothing", PLACE
    )


PLACE = (
    "It has no public archive: place your copy as imagenet100/{train,val}/<class>/* or as "
    "imagenet100/{train,validation}-*.parquet in the data folder."
)
