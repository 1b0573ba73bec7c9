"""The datasets that this library knows by name."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

from normscope._checks import invalid
from normscope.data import (
    arrays,
    cifar,
    flowers,
    folders,
    held_out,
    human_labels,
    imbalance,
    mnist,
    publishers,
)
from normscope.data.images import ImageArrays
from normscope.data.paths import expanded, path_errors
from normscope.data.publishers import Archive

Content = TypeVar("Content")


@dataclass(frozen=True)
class Dataset(Generic[Content]):
    """A dataset and where it comes from.

    Args:
        title: one line.
        load: reads it from the data folder and verifies it.
        licence: on what terms it is offered.
        place: what it occupies in the data folder; "" if nothing.
        archives: what to download; empty if there is nothing to download.
        by_hand: what to do instead where there are no archives.
        side: in pixels.
        n_classes: how many classes.
        tiny: whether its images are so small and few that networks and batches shrink with them.
    """

    title: str
    load: Callable[[Path], Content]
    licence: str
    side: int
    n_classes: int
    place: str = ""
    archives: Sequence[Archive] = ()
    by_hand: str = ""
    tiny: bool = False


_NO_LICENCE = "no licence stated; the publisher asks to be cited"
_IMAGENET = "ImageNet's terms: non-commercial research"


def _cifar(
    published: cifar.Published, title: str, read: Callable[[Path], ImageArrays]
) -> Dataset[ImageArrays]:
    archive = publishers.CIFAR10 if published.name == "cifar10" else publishers.CIFAR100
    return Dataset(
        title=title,
        load=read,
        licence=_NO_LICENCE,
        side=32,
        n_classes=published.n_classes,
        place=published.python_folder,
        archives=(archive,),
    )


def _balanced(published: cifar.Published) -> Dataset[ImageArrays]:
    title = f"60,000 photographs of {published.n_classes} classes, 32 x 32"
    return _cifar(published, title, lambda root: cifar.read_cifar(root, published))


def _unbalanced(
    published: cifar.Published, base: float, rounding: Literal["nearest", "floor"]
) -> Dataset[ImageArrays]:
    """The text's imbalance, rounded to nearest, or the published code's, rounded down."""
    largest = 50_000 // published.n_classes
    counts = imbalance.exponential_counts(
        published.n_classes, largest=largest, base=base, rounding=rounding
    )
    name = f"{published.name}-unbalanced" + ("" if rounding == "nearest" else "-as-coded")
    by = "text" if rounding == "nearest" else "code"
    title = f"{sum(counts):,} of {published.name}, {largest} x {base}^-i of class i (paper's {by})"

    def read(root: Path) -> ImageArrays:
        return imbalance.unbalanced(cifar.read_cifar(root, published), counts, name)

    return _cifar(published, title, read)


def _mnist(
    published: mnist.Published, of: str, licence: str, archives: Sequence[Archive]
) -> Dataset[ImageArrays]:
    return Dataset(
        title=f"70,000 grey images of {of}, 28 x 28 with a margin to 32 x 32",
        load=lambda root: mnist.read_mnist(root, published),
        licence=licence,
        side=32,
        n_classes=len(published.classes),
        place=published.name,
        archives=archives,
    )


def _held_out(name: str, whole: Dataset[ImageArrays], n: int, last: int) -> Dataset[ImageArrays]:
    def read(root: Path) -> ImageArrays:
        return held_out.held_out(whole.load(root), last, name)

    title = f"for tuning, its training set: {n - last:,} to train on, the last {last:,} to test"
    return dataclasses.replace(whole, title=title, load=read)


_DIGITS_KEPT = imbalance.exponential_counts(10, largest=128, base=1.5, rounding="nearest")
_DIGITS = Dataset(
    title="1,797 handwritten digits of 8 x 8 pixels, without a download",
    load=lambda _: arrays.read_digits(),
    licence="CC BY 4.0 (UCI), part of scikit-learn",
    side=8,
    n_classes=10,
    by_hand="It comes with scikit-learn: there is nothing to fetch.",
    tiny=True,
)
_CIFAR10 = _balanced(cifar.CIFAR10)

DATASETS: dict[str, Dataset[ImageArrays]] = {
    "digits": _DIGITS,
    "digits-unbalanced": dataclasses.replace(
        _DIGITS,
        title=f"{sum(_DIGITS_KEPT)} of these to train on, 128 x 1.5^-i of class i",
        load=lambda _: imbalance.unbalanced(
            arrays.read_digits(), _DIGITS_KEPT, "digits-unbalanced"
        ),
    ),
    "digits-held-out": _held_out("digits-held-out", _DIGITS, 1347, 347),
    "cifar10": _CIFAR10,
    "cifar100": _balanced(cifar.CIFAR100),
    "cifar10-held-out": _held_out("cifar10-held-out", _CIFAR10, 50_000, 10_000),
    "cifar10-unbalanced": _unbalanced(cifar.CIFAR10, 1.5, "nearest"),
    "cifar100-unbalanced": _unbalanced(cifar.CIFAR100, 1.034, "nearest"),
    "cifar10-unbalanced-as-coded": _unbalanced(cifar.CIFAR10, 1.5, "floor"),
    "cifar100-unbalanced-as-coded": _unbalanced(cifar.CIFAR100, 1.03365, "floor"),
    "mnist": _mnist(mnist.MNIST, "handwritten digits", "CC BY-SA 3.0", publishers.MNIST),
    "fashion-mnist": _mnist(mnist.FASHION, "clothes", "MIT", publishers.FASHION_MNIST),
    "flowers102": Dataset(
        title="Oxford Flowers at 128 x 128: 6,149 test images to train on, 1,020 to test",
        load=flowers.read_flowers,
        licence=_NO_LICENCE,
        side=128,
        n_classes=102,
        place="flowers-102",
        archives=publishers.FLOWERS102,
    ),
    "tiny-imagenet": Dataset(
        title="110,000 photographs of 200 classes, 64 x 64",
        load=folders.read_tiny_imagenet,
        licence=_IMAGENET,
        side=64,
        n_classes=200,
        place="tiny-imagenet-200",
        archives=(publishers.TINY_IMAGENET,),
    ),
    "imagenet100": Dataset(
        title="some 130,000 photographs of 100 classes of ImageNet, at 128 x 128",
        load=folders.read_imagenet100,
        licence=_IMAGENET,
        side=128,
        n_classes=100,
        place="imagenet100",
        by_hand=folders.PLACE,
    ),
}

# Labels without images: fetched and checked like datasets, read by `human_labels`.
HUMAN_LABELS: dict[str, Dataset[Any]] = {
    "cifar10n": Dataset(
        title="CIFAR-10's training images, labelled by three people each",
        load=human_labels.cifar10n,
        licence="no licence stated in its repository",
        side=32,
        n_classes=10,
        place="CIFAR-10_human.pt",
        archives=(publishers.CIFAR10N,),
    ),
    "cifar100n": Dataset(
        title="CIFAR-100's training images, labelled by one person each",
        load=human_labels.cifar100n,
        licence="no licence stated in its repository",
        side=32,
        n_classes=100,
        place="CIFAR-100_human.pt",
        archives=(publishers.CIFAR100N,),
    ),
    "cifar10h": Dataset(
        title="CIFAR-10's test images, labelled by some fifty people each",
        load=human_labels.cifar10h,
        licence="CC BY-NC-SA 4.0",
        side=32,
        n_classes=10,
        place="cifar10h-counts.npy",
        archives=(publishers.CIFAR10H,),
    ),
}


def default_root() -> Path:
    """The folder of datasets: `$NORMSCOPE_DATA`, or `~/.cache/normscope`."""
    return expanded(os.environ.get("NORMSCOPE_DATA") or "~/.cache/normscope")


@path_errors()
def load(name: str, root: Path | None = None, *, side: int | None = None) -> ImageArrays:
    """A dataset by its name in `DATASETS`, or `folder:PATH` or `npz:PATH` for your own.

    Args:
        name: which.
        root: the folder of datasets; `default_root()` by default.
        side: what to bring the images of `folder:PATH` to; by default a side that goes with most
            of them. Other datasets have their own.

    Raises:
        ValueError: if it is unknown, not there, not readable, or not as published.

    >>> digits = load("digits")
    >>> digits.train.images.shape, len(digits.test)
    ((1347, 3, 8, 8), 450)
    """
    kind, _, path = name.partition(":")
    if kind == "folder" and path:
        return folders.read_folder(expanded(path), name, side=side)
    if side is not None:
        raise invalid("side", f"left out for {name}", side, "Its images have one of their own.")
    if kind == "npz" and path:
        return arrays.read_npz(expanded(path))
    if name not in DATASETS:
        names = ", ".join(DATASETS)
        raise invalid("name", f"one of {names}, folder:PATH, npz:PATH", name, "Choose one of them.")
    return DATASETS[name].load(default_root() if root is None else Path(root))


def entry(name: str) -> Dataset[Any]:
    """The entry of `DATASETS` or `HUMAN_LABELS` for a name."""
    known = {**DATASETS, **HUMAN_LABELS}
    if name not in known:
        raise invalid("name", f"one of {', '.join(known)}", name, "Choose one of them.")
    return known[name]


def check(name: str, root: Path | None = None) -> list[str]:
    """Load a dataset or human labels, and report what was found and verified, line by line.

    >>> check("digits")[0]
    'digits: 1,347 training and 450 test images of 10 classes'
    """
    if name in HUMAN_LABELS:
        root = default_root() if root is None else Path(root)
        return described(name, HUMAN_LABELS[name].load(root))
    return described(name, load(name, root))


def described(name: str, content: Any) -> list[str]:
    """What a dataset or human labels hold, line by line."""
    if not isinstance(content, ImageArrays):
        tables = content if isinstance(content, dict) else {name: content}
        return [f"{key}: {' x '.join(map(str, table.shape))}" for key, table in tables.items()]
    return [
        f"{name}: {len(content.train):,} training and {len(content.test):,} test images of "
        f"{len(content.classes)} classes",
        f"side {content.side}, from {content.source}",
        f"sha256 {content.checksum}",
    ]
