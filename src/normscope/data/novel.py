"""Images unlike those that a network was trained on."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from normscope._checks import invalid
from normscope.data import cifar
from normscope.data.catalog import default_root, load
from normscope.data.images import ImageArrays

_SCALES = (1, 2, 4, 8)  # sides of the patches, in sides of the result
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


def novel_to(arrays: ImageArrays, root: Path | None = None) -> dict[str, np.ndarray]:
    """Sets that are new to a network trained on a dataset, by name, uint8 (n, 3, side, side).

    For digits: patches of photographs, negatives, and digits laid over each other. For CIFAR-10
    the test images of CIFAR-100, and the reverse, if they are in the data folder. Else none.

    Raises:
        ValueError: if the other CIFAR is there, but unreadable or not as published.
    """
    if arrays.name.split("-")[0] == "digits":
        images = np.asarray(arrays.test.images)
        return {
            "photographs": photograph_patches(len(images), side=arrays.side),
            "negatives": inverted(images),
            "overlaid": mixed(images),
        }
    others = others_there(arrays.name, root or default_root())
    return {other: np.asarray(load(other, root).test.images) for other in others}


def others_there(dataset: str, root: Path) -> list[str]:
    """Which other dataset in the data folder is new to networks trained on this one."""
    other = _OTHER.get(dataset.split("-")[0])
    return [other.name] if other is not None and cifar.is_there(root, other) else []
