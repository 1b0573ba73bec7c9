"""What is in a folder of images, in whichever layout, without decoding any."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from normscope._checks import invalid

SUFFIXES = {".jpg", ".jpeg", ".png", ".bmp", ".webp", ".ppm"}
ADVICE = "Lay it out as train/<class>/* and test/<class>/* (or val/<class>/*)."
BROKEN = "Remove or replace it."
_HELD_OUT = 5  # one image in so many is for testing where the folder says nothing of it
_IMAGES = "Put images or folders of images into it."


@dataclass(frozen=True)
class Listing:
    """The images of a folder, by their names below it.

    Attributes:
        classes: names, in order; none where the folder has no classes.
        train: names of the images to train on.
        train_labels: their classes, (n,); zeros where there are none.
        test: names of the images to evaluate on.
        test_labels: theirs.
    """

    classes: tuple[str, ...]
    train: list[str]
    train_labels: np.ndarray
    test: list[str]
    test_labels: np.ndarray


def listing(path: Path) -> Listing:
    """The images of a folder in one of three layouts.

    `train/<class>/*` and `test/<class>/*` (or val); `<class>/*`, of whose classes one image in
    five is held out for testing; or images directly in the folder, and in any below it, which have
    no classes and are held out alike. Which ones is drawn with a fixed seed. Names that begin with
    a dot are left out. A class may be a link to its folder; no other is followed.
    """
    if not path.is_dir():
        raise invalid(str(path), "a folder of images", "no folder", "Check its name.")
    if any((path / kind).is_dir() for kind in ("train", "test", "val")):
        return _split(path)
    if any(map(_is_image, _entries(path))):
        names = list(_all_below(path))
        return _with_held_out((), names, np.zeros(len(names), np.int64), path)
    classes, names, labels = _of_classes(path, _folders_in(path))
    if not classes:
        raise invalid(str(path), "a folder of images", "none", _IMAGES)
    return _with_held_out(classes, names, labels, path)


def _split(path: Path) -> Listing:
    """`train/<class>/*`, and test or val."""
    parts = []
    for kind in ("train", "test" if (path / "test").is_dir() else "val"):
        folder = path / kind
        if not folder.is_dir():
            raise invalid(str(folder), "a folder of classes", "nothing", ADVICE)
        classes = [f"{kind}/{name}" for name in _folders_in(folder)]
        if not classes:
            raise invalid(str(folder), "a folder of classes", "an empty folder", ADVICE)
        parts.append((folder, _of_classes(path, classes)))
    (_, (classes, *train)), (test_folder, (test_classes, *test)) = parts
    if test_classes != classes:
        odd = sorted(set(classes) ^ set(test_classes))[0]
        constraint, got = "of the same classes as train", f"{odd} in only one"
        raise invalid(str(test_folder), constraint, got, ADVICE)
    return Listing(classes, *train, *test)


def _of_classes(path: Path, folders: list[str]) -> tuple[tuple[str, ...], list[str], np.ndarray]:
    """Classes, names of their images in a fixed order, and labels; a folder is a class."""
    names, labels = [], []
    for label, folder in enumerate(sorted(folders)):
        files = _images_in(path / folder)
        if not files:
            raise invalid(str(path / folder), "a folder of images", "none", ADVICE)
        names += [f"{folder}/{file}" for file in files]
        labels += [label] * len(files)
    classes = tuple(folder.rpartition("/")[2] for folder in sorted(folders))
    return classes, names, np.array(labels, np.int64)


def images_below(path: Path) -> Iterator[os.DirEntry[str]]:
    """The images in a folder and below it, folder by folder; links to folders are not followed."""
    waiting = [str(path)]
    while waiting:
        entries = _entries(waiting.pop())
        yield from filter(_is_image, entries)
        waiting += [e.path for e in reversed(entries) if e.is_dir(follow_symlinks=False)]


def _all_below(path: Path) -> Iterator[str]:
    """Their names below the folder."""
    start = len(os.path.join(path, ""))
    return (_checked(entry).path[start:] for entry in images_below(path))


def _images_in(folder: Path) -> list[str]:
    """Names of the images directly in a folder, in order; nothing else may be named like one."""
    return [_checked(entry).name for entry in _entries(folder) if _named(entry)]


def _folders_in(path: Path) -> list[str]:
    return [entry.name for entry in _entries(path) if entry.is_dir()]


def _entries(folder: Path | str) -> list[os.DirEntry[str]]:
    """What is in a folder, in order of its names; those that begin with a dot are left out."""
    with os.scandir(folder) as entries:
        visible = [entry for entry in entries if not entry.name.startswith(".")]
    return sorted(visible, key=lambda entry: entry.name)


def _named(entry: os.DirEntry[str]) -> bool:
    return os.path.splitext(entry.name)[1].lower() in SUFFIXES


def _is_image(entry: os.DirEntry[str]) -> bool:
    return _named(entry) and not entry.is_dir(follow_symlinks=False)


def _checked(entry: os.DirEntry[str]) -> os.DirEntry[str]:
    if not entry.is_file():  # a FIFO, a folder, a link to nothing
        raise invalid(entry.path, "a whole image", "no regular file", BROKEN)
    return entry


def _with_held_out(
    classes: tuple[str, ...], names: list[str], labels: np.ndarray, path: Path
) -> Listing:
    """Every fifth image of each class for testing, in an order drawn with a fixed seed."""
    rng = np.random.default_rng(0)
    is_test = np.zeros(len(names), bool)
    for label in range(max(1, len(classes))):
        rows = rng.permutation(np.flatnonzero(labels == label))
        if len(rows) > 1:  # a class of one image is only trained on
            is_test[rows[: max(1, round(len(rows) / _HELD_OUT))]] = True
    if not is_test.any():
        raise invalid(str(path), "a folder of two images or more", len(names), _IMAGES)
    kept, held = (np.flatnonzero(rows) for rows in (~is_test, is_test))
    train, test = ([names[i] for i in rows] for rows in (kept, held))
    return Listing(classes, train, labels[kept], test, labels[held])
