"""What a dataset is once read: two splits of 8-bit colour images with their classes."""

from __future__ import annotations

import hashlib
import io
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from normscope._checks import invalid

if TYPE_CHECKING:
    from PIL.Image import Image


class LazyImages(ABC):
    """Images that stay in their files, each of its own size, until they are asked for.

    Worker processes get a copy by pickling, so no open file may be part of the state.
    """

    @abstractmethod
    def __len__(self) -> int:
        """How many images."""

    @abstractmethod
    def __getitem__(self, i: int) -> np.ndarray:
        """Image i as uint8, (h, w, 3)."""


@dataclass(frozen=True)
class Split:
    """Images and their classes.

    Args:
        images: uint8, (n, 3, h, w), or `LazyImages`.
        labels: int64, (n,), from 0.
    """

    images: np.ndarray | LazyImages
    labels: np.ndarray

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class ImageArrays:
    """A dataset.

    Args:
        name: as `load` knows it.
        train: what networks are trained on.
        test: what they are judged on.
        classes: names, in the order of the labels.
        side: what networks are trained at, in pixels.
        source: the files, or who published them.
        checksum: SHA-256 of images and labels, in whatever layout they came; of lazy images, of
            the sorted names and sizes of their files.
    """

    name: str
    train: Split
    test: Split
    classes: tuple[str, ...]
    side: int
    source: str
    checksum: str


def array_checksum(*splits: Split) -> str:
    """SHA-256 over images and labels that are held in arrays."""
    digest = hashlib.sha256()
    for split in splits:
        for array in (np.asarray(split.images), split.labels):
            digest.update(repr((array.dtype.str, array.shape)).encode())
            digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def file_checksum(root: Path, names: Iterable[str]) -> str:
    """SHA-256 over the sorted relative names and the sizes of files, without reading them."""
    digest = hashlib.sha256()
    for name in sorted(names):
        digest.update(f"{name}\t{os.path.getsize(root / name)}\n".encode())
    return digest.hexdigest()


def check_classes(name: str, labels: np.ndarray, n_classes: int, advice: str) -> None:
    """Refuse labels out of range, and a split in which a class is missing."""
    if labels.size == 0 or labels.min() < 0 or labels.max() >= n_classes:
        got = f"{labels.min()} to {labels.max()}" if labels.size else "no labels"
        raise invalid(name, f"labelled from 0 to {n_classes - 1}", got, advice)
    missing = np.flatnonzero(np.bincount(labels, minlength=n_classes) == 0)
    if missing.size:
        got = f"none of class {missing[0]}"
        raise invalid(name, f"of all {n_classes} classes", got, advice)


def opened(source: Path | bytes, name: str, advice: str) -> Image:
    """An image file, decoded to RGB.

    Args:
        source: where it is, or its bytes.
        name: how errors name it.
        advice: what to do if it cannot be read.
    """
    from PIL import Image

    try:
        with Image.open(io.BytesIO(source) if isinstance(source, bytes) else source) as image:
            return image.convert("RGB")
    # SyntaxError is Pillow's for a broken PNG
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        got = "nothing" if isinstance(error, FileNotFoundError) else "one that cannot be decoded"
        raise invalid(name, "a whole image", got, advice) from None


def fitted(image: Image, side: int) -> Image:
    """The shorter side brought to `side` by bicubic interpolation, then the centre square."""
    from PIL import Image

    width, height = image.size
    scale = side / min(width, height)
    size = (max(side, round(width * scale)), max(side, round(height * scale)))
    if size != image.size:
        image = image.resize(size, Image.Resampling.BICUBIC)
    left, top = (size[0] - side) // 2, (size[1] - side) // 2
    return image.crop((left, top, left + side, top + side))


def stretched(image: Image, side: int) -> Image:
    """The whole image on a square of `side`, bicubic, whatever its shape was."""
    from PIL import Image

    return image.resize((side, side), Image.Resampling.BICUBIC)


def decoded(files: Sequence[Path], side: int, advice: str, *, stretch: bool = False) -> np.ndarray:
    """Image files as one array, uint8, (n, 3, side, side); threads share the decoding."""
    shape = stretched if stretch else fitted
    images = np.empty((len(files), 3, side, side), np.uint8)

    def fill(i: int) -> None:
        image = opened(files[i], str(files[i]), advice)
        if image.size != (side, side):
            image = shape(image, side)
        images[i] = np.asarray(image).transpose(2, 0, 1)

    with ThreadPoolExecutor() as pool:
        for _ in pool.map(fill, range(len(files))):
            pass
    return images
