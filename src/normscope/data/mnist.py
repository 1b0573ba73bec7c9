"""MNIST and Fashion-MNIST from the files of their publishers, in the layout IDX.

LeCun, Cortes and Burges, "The MNIST database of handwritten digits"; Xiao, Rasul and Vollgraf,
"Fashion-MNIST: a Novel Image Dataset for Benchmarking Machine Learning Algorithms", 2017.
"""

from __future__ import annotations

import gzip
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from normscope._checks import invalid
from normscope.data.images import ImageArrays, Split, array_checksum, check_classes
from normscope.data.paths import check_file

_SIDE, _MARGIN = 28, 2  # 32 with the margin, as LeNet has it and CIFAR is
_IMAGES, _LABELS = 2051, 2049  # what a file of each kind begins with


@dataclass(frozen=True)
class Published:
    """What the publisher's files hold.

    Args:
        name: as `load` knows it, and the folder of the files.
        classes: names, in the order of the labels.
        source: who published it.
        train: images in the training set.
        test: images in the test set.
    """

    name: str
    classes: tuple[str, ...]
    source: str
    train: int = 60_000
    test: int = 10_000

    @property
    def advice(self) -> str:
        """What to do about a damaged file."""
        return f"Remove its folder and run: normscope data fetch {self.name}."


MNIST = Published("mnist", tuple(map(str, range(10))), "http://yann.lecun.com/exdb/mnist/")
FASHION = Published(
    "fashion-mnist",
    (
        *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
        *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
    ),
    "https://github.com/zalandoresearch/fashion-mnist",
)


def is_there(root: Path, published: Published) -> bool:
    """Whether a folder holds it."""
    return (root / published.name).is_dir()


def read_mnist(root: Path, published: Published) -> ImageArrays:
    """MNIST or Fashion-MNIST, grey on all three channels, with a black margin to 32 x 32.

    Args:
        root: holds a folder of its name with the four files, packed by gzip or not.
        published: what must be found.

    Raises:
        ValueError: if a file is missing, damaged, or not as published.
    """
    if not is_there(root, published):
        advice = f"Run: normscope data fetch {published.name}."
        raise invalid("root", f"a folder that holds {published.name}", str(root), advice)

    def split(kind: str, count: int) -> Split:
        folder = root / published.name
        grey = _idx(folder / f"{kind}-images-idx3-ubyte", (count, _SIDE, _SIDE), published)
        labels = _idx(folder / f"{kind}-labels-idx1-ubyte", (count,), published).astype(np.int64)
        what = f"{folder}'s {kind} set"
        check_classes(what, labels, len(published.classes), published.advice)
        margin = ((0, 0), (_MARGIN, _MARGIN), (_MARGIN, _MARGIN))
        return Split(np.pad(grey, margin)[:, None].repeat(3, axis=1), labels)

    train, test = split("train", published.train), split("t10k", published.test)
    side, checksum = _SIDE + 2 * _MARGIN, array_checksum(train, test)
    return ImageArrays(
        published.name, train, test, published.classes, side, published.source, checksum
    )


def _idx(path: Path, shape: tuple[int, ...], published: Published) -> np.ndarray:
    """Bytes of that shape, after a header of big-endian integers that says so."""
    kind = _IMAGES if len(shape) == 3 else _LABELS
    header = np.array([kind, *shape], ">i4").tobytes()
    size = len(header) + int(np.prod(shape))
    packed = path.with_name(f"{path.name}.gz")
    found = packed if packed.exists() else path
    check_file(found, "a file that can be read", published.advice)
    try:
        with gzip.open(found) if found is packed else found.open("rb") as file:
            content = file.read(size + 1)
    except (OSError, EOFError, zlib.error):
        raise invalid(str(found), "a whole file", "a damaged one", published.advice) from None
    if len(content) != size or not content.startswith(header):
        constraint = f"IDX with {' x '.join(map(str, shape))} bytes"
        raise invalid(str(found), constraint, "another file", published.advice)
    return np.frombuffer(content, np.uint8, offset=len(header)).reshape(shape)
