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
    size_of,
)
from normscope.data.layouts import BROKEN, listing

_SIDES = (32, 64, 128, 224)
_SAMPLE = 200  # images whose size decides the side
_MOST_BYTES = 2 << 30  # decoded sets above this stay in their files


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
        return np.asarray(opened(path, str(path), BROKEN))


def read_folder(
    path: Path, name: str, *, side: int | None = None, lazy: bool | None = None
) -> ImageArrays:
    """The images of a folder in one of the layouts of `listing`.

    Args:
        path: the folder.
        name: what to call the dataset.
        side: what networks are trained at; by default `natural_side`.
        lazy: whether images stay in their files; by default, if arrays of them would take more
            than 2 GB. Arrays have the shorter side brought to `side`, and the centre square.
    """
    found = listing(path)
    if side is None:
        side = natural_side(path, found.train)
    if lazy is None:
        lazy = (len(found.train) + len(found.test)) * 3 * side**2 > _MOST_BYTES
    if lazy:
        train = Split(ImageFiles(path, found.train), found.train_labels)
        test = Split(ImageFiles(path, found.test), found.test_labels)
        checksum = file_checksum(path, found.train + found.test)
    else:
        train, test = (
            Split(decoded([path / n for n in names], side, BROKEN), labels)
            for names, labels in (
                (found.train, found.train_labels),
                (found.test, found.test_labels),
            )
        )
        checksum = array_checksum(train, test)
    return ImageArrays(name, train, test, found.classes, side, str(path), checksum)


def natural_side(path: Path, names: Sequence[str]) -> int:
    """The largest of 32, 64, 128 and 224 that is not above the median shorter side; at least 32.

    Args:
        path: the folder.
        names: of the images below it, of which a sample is looked at.
    """
    sample = names[:: max(1, len(names) // _SAMPLE)]
    shorter = np.median([min(size_of(path / n, BROKEN)) for n in sample])
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
        return read_folder(folder, "imagenet100", side=128, lazy=True)
    if any(folder.glob("*.parquet")):
        return read_parquet(folder, "imagenet100", side=128)
    raise invalid(
        str(folder), "a folder of train/ and val/, or of parquet shards", "nothing", PLACE
    )


PLACE = (
    "It has no public archive: place your copy as imagenet100/{train,val}/<class>/* or as "
    "imagenet100/{train,validation}-*.parquet in the data folder."
)
