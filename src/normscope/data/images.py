"""A dataset in memory: two splits of 8-bit colour images with their classes."""

from __future__ import annotations

import hashlib
import io
import os
import threading
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from normscope._checks import invalid
from normscope.data.paths import check_file

if TYPE_CHECKING:
    from PIL.Image import Image

BITS = "an image of at most 16 bits a channel"
_FILTERS = threading.Lock()  # warnings are filtered for all threads at once


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
        test: what they are evaluated on.
        classes: names, in the order of the labels; none if the images have no classes.
        side: what networks are trained at, in pixels.
        source: the files, or who published them.
        checksum: SHA-256 of images and labels, independent of their layout; of lazy images, of
            the sorted names and sizes of their files.
    """

    name: str
    train: Split
    test: Split
    classes: tuple[str, ...]
    side: int
    source: str
    checksum: str

    @property
    def labelled(self) -> bool:
        """Whether there are classes to tell apart."""
        return len(self.classes) > 1


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
        digest.update(os.fsencode(f"{name}\t{os.path.getsize(root / name)}\n"))
    return digest.hexdigest()


def class_count(name: str, labels: np.ndarray, advice: str) -> int:
    """One more than the highest label, which must be below the number of images.

    >>> class_count("labels", np.array([0, 2, 1]), "Number the classes from 0.")
    3
    """
    highest = max(0, int(labels.max()))
    if highest >= len(labels):
        constraint = f"labelled below {len(labels):,}, the number of its images"
        raise invalid(name, constraint, highest, advice)
    return highest + 1


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
    """An image file, decoded to RGB of 8 bits a channel; transparency is dropped.

    Args:
        source: where it is, or its bytes.
        name: how errors name it.
        advice: what to do if it cannot be read.
    """
    if isinstance(source, Path):
        check_file(source, "a whole image", advice)
    with _image_errors(name, advice), _header(source) as image:
        mode, decoded = image.mode, rgb(image)
    if decoded is None:
        raise invalid(name, BITS, f"one of Pillow's mode {mode}", advice)
    return decoded


def size_of(file: Path, advice: str) -> tuple[int, int]:
    """Width and height of an image file, whose pixels are not decoded."""
    check_file(file, "a whole image", advice)
    with _image_errors(str(file), advice), _header(file) as image:
        return image.size


@contextmanager
def _image_errors(name: str, advice: str) -> Iterator[None]:
    """Context that turns the errors of a damaged image into one line."""
    from PIL import Image

    try:
        yield
    except (Image.DecompressionBombWarning, Image.DecompressionBombError):
        constraint = f"an image of at most {Image.MAX_IMAGE_PIXELS:,} pixels"
        raise invalid(name, constraint, "a larger one", advice) from None
    except MemoryError:
        raise  # no fault of the image
    except Exception as error:  # damaged images raise errors of any kind
        why = error.strerror if isinstance(error, OSError) else None
        raise invalid(name, "a whole image", why or "one that cannot be decoded", advice) from None


def _header(source: Path | bytes) -> Image:
    """An image whose pixels are still to be decoded, unless Pillow warns that they are too many."""
    from PIL import Image

    with _FILTERS, warnings.catch_warnings():
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        return Image.open(io.BytesIO(source) if isinstance(source, bytes) else source)


def rgb(image: Image) -> Image | None:
    """An image in RGB, or None if its white level is unknown."""
    from PIL import Image

    if image.mode == "RGB":
        image.load()  # `convert` would copy it too
        return image
    # Pillow's own conversion makes white of all that is above 255; older ones call 16 bits I
    if image.mode.startswith("I;16") or (image.mode == "I" and image.format in ("PNG", "PPM")):
        grey = (np.asarray(image).astype(np.uint32) + 128) // 257  # 65535 / 255, to the nearest
        return Image.fromarray(grey.astype(np.uint8)).convert("RGB")
    if image.mode in ("I", "F"):
        return None
    if image.mode == "P" and "transparency" in image.info:
        image = image.convert("RGBA")  # straight to RGB, Pillow warns
    return image.convert("RGB")


def fitted(image: Image, side: int) -> Image:
    """The shorter side brought to `side` by bicubic interpolation, then the centre square.

    Only that square is interpolated: a strip of 60000 x 1 would fill the memory.
    """
    from PIL import Image

    width, height = image.size
    scale = side / min(width, height)
    whole = (max(side, round(width * scale)), max(side, round(height * scale)))
    left, top = (whole[0] - side) // 2, (whole[1] - side) // 2
    x, y = width / whole[0], height / whole[1]  # back to pixels of the image
    box = (left * x, top * y, min(width, (left + side) * x), min(height, (top + side) * y))
    return image.resize((side, side), Image.Resampling.BICUBIC, box=box)


def stretched(image: Image, side: int) -> Image:
    """The whole image on a square of `side`, bicubic, from any shape."""
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
