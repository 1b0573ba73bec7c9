"""Images unlike those that a network was trained on."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from normscope._checks import invalid
from normscope.data import cifar, mnist
from normscope.data.catalog import default_root, load
from normscope.data.images import ImageArrays

_SCALES = (1, 2, 4, 8)  # sides of the patches, in sides of the result
_MADE = 2000  # images of each set that is made here
_OTHER = {"cifar10": cifar.CIFAR100, "cifar100": cifar.CIFAR10}


def photograph_patches(n: int, *, side: int, seed: int = 0) -> np.ndarray:
    """Grey patches of scikit-learn's two photographs, uint8 (n, 3, side, side).

    A quarter each is taken at one, two, four and eight times the side and shrunk to it, half from
    the Chinese temple, half from the flower.

    Args:
        n: how many.
        side: in pixels.
        seed: of the places.

    >>> photograph_patches(4, side=8).shape
    (4, 3, 8, 8)
    """
    from PIL import Image
    from sklearn.datasets import load_sample_images

    if n < 1 or side < 1:
        raise invalid("n, side", "positive", f"{n}, {side}", "Digits have a side of 8.")
    photographs = load_sample_images().images
    rng = np.random.default_rng(seed)
    patches = []
    for i in range(n):
        photograph = photographs[i % len(photographs)]
        size = side * _SCALES[i // len(photographs) % len(_SCALES)]
        top = rng.integers(photograph.shape[0] - size + 1)
        left = rng.integers(photograph.shape[1] - size + 1)
        patch = Image.fromarray(photograph[top : top + size, left : left + size]).convert("L")
        patches.append(np.asarray(patch.resize((side, side), Image.Resampling.BILINEAR)))
    return np.repeat(np.stack(patches)[:, None], 3, axis=1)


def inverted(images: np.ndarray) -> np.ndarray:
    """The negatives of uint8 images."""
    return 255 - images


def mixed(images: np.ndarray, *, seed: int = 0) -> np.ndarray:
    """Each image laid over another one, half and half."""
    partner = np.random.default_rng(seed).permutation(len(images))
    return ((images.astype(np.uint16) + images[partner]) // 2).astype(np.uint8)


def enlarged_digits(side: int) -> np.ndarray:
    """Scikit-learn's digits at another side, uint8 (1797, 3, side, side)."""
    from PIL import Image

    digits = load("digits")
    grey = np.concatenate([np.asarray(split.images)[:, 0] for split in (digits.train, digits.test)])
    bicubic = Image.Resampling.BICUBIC
    large = [np.asarray(Image.fromarray(one).resize((side, side), bicubic)) for one in grey]
    return np.repeat(np.stack(large)[:, None], 3, axis=1)


def noise(n: int, *, side: int, seed: int = 0) -> np.ndarray:
    """Pixels drawn each by itself, all values alike, uint8 (n, 3, side, side)."""
    return np.random.default_rng(seed).integers(0, 256, (n, 3, side, side), np.uint8)


def textures(n: int, *, side: int, seed: int = 0) -> np.ndarray:
    """Three coloured gratings laid over each other, uint8 (n, 3, side, side).

    Each has a direction, a phase, a colour and one to eight waves across the image, at random.

    >>> textures(4, side=8).shape
    (4, 3, 8, 8)
    """
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:side, :side] / side
    angle, phase = rng.uniform(0, 2 * np.pi, (2, n, 3, 1, 1))
    waves = 2 ** rng.uniform(0, 3, (n, 3, 1, 1))
    across = x * np.cos(angle) + y * np.sin(angle)  # n 3 h w
    gratings = np.sin(2 * np.pi * waves * across + phase)
    colours = rng.dirichlet((1, 1, 1), (n, 3))
    laid = np.einsum("ngc,nghw->nchw", colours, gratings)
    low, high = (pick(laid, axis=(1, 2, 3), keepdims=True) for pick in (np.min, np.max))
    return np.rint(255 * (laid - low) / (high - low)).astype(np.uint8)


def novel_to(arrays: ImageArrays, root: Path | None = None) -> dict[str, np.ndarray]:
    """Sets that are new to a network trained on a dataset, by name, uint8 (n, 3, side, side).

    For digits: patches of photographs, negatives, and digits laid over each other. For CIFAR: the
    test images of the other CIFAR, of MNIST and of Fashion-MNIST where they are in the data folder,
    scikit-learn's digits, noise and textures. For other datasets none.

    Raises:
        ValueError: if a dataset is there, but unreadable or not as published.
    """
    if arrays.name.split("-")[0] == "digits":
        images = np.asarray(arrays.test.images)
        return {
            "photographs": photograph_patches(len(images), side=arrays.side),
            "negatives": inverted(images),
            "overlaid": mixed(images),
        }
    found = {
        name: np.asarray(load(name, root).test.images)
        for name in datasets_new_to(arrays.name, root or default_root())
    }
    if arrays.name.split("-")[0] in _OTHER:
        found["digits"] = enlarged_digits(arrays.side)
        found["noise"] = noise(_MADE, side=arrays.side)
        found["textures"] = textures(_MADE, side=arrays.side)
    return found


def datasets_new_to(dataset: str, root: Path) -> list[str]:
    """Which other datasets in the data folder are new to networks trained on this one."""
    other = _OTHER.get(dataset.split("-")[0])
    if other is None:
        return []
    found = [other.name] if cifar.is_there(root, other) else []
    return found + [one.name for one in (mnist.MNIST, mnist.FASHION) if mnist.is_there(root, one)]
