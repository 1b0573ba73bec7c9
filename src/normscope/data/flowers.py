"""Oxford Flowers 102 at 128 pixels, with the paper's choice of splits.

Nilsback and Zisserman, "Automated Flower Classification over a Large Number of Classes", 2008.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from normscope._checks import invalid
from normscope.data.images import ImageArrays, Split, array_checksum, check_classes, decoded

_SIDE = 128
_ADVICE = "Remove the folder flowers-102 and run: normscope data fetch flowers102."


@dataclass(frozen=True)
class Published:
    """How many images the publisher's splits hold, and of how many classes."""

    test: int = 6149
    val: int = 1020
    n_classes: int = 102


def read_flowers(root: Path, published: Published | None = None) -> ImageArrays:
    """Flowers 102: trained on its long-tailed test images, judged on its validation images.

    Images are stretched to 128 x 128 as in the paper's code; files that are so already stay as
    they are. The publisher's files number images and classes from 1, and do not name the classes;
    copies that number both from 0 are read too.

    Args:
        root: holds `flowers-102` with `jpg`, `imagelabels.mat` and `setid.mat`.
        published: what must be found.

    Paper: Section 5.2, Table "imbalanced_experiments".
    """
    published = published or Published()
    folder = root / "flowers-102"
    if not folder.is_dir():
        advice = "Run: normscope data fetch flowers102."
        raise invalid("root", "a folder that holds flowers-102", str(root), advice)
    labels = _row(folder / "imagelabels.mat", "labels")
    path = folder / "setid.mat"
    first = min(1, int(labels.min()))
    labels = labels - first

    def split(key: str, count: int) -> Split:
        ids = _row(path, key) - first + 1
        if len(np.unique(ids)) != count or ids.min() < 1 or ids.max() > len(labels):
            constraint = f"{count:,} different {key} from 1 to {len(labels):,}"
            got = f"{len(ids):,} from {ids.min()} to {ids.max():,}"
            raise invalid(str(path), constraint, got, _ADVICE)
        chosen = labels[ids - 1]
        check_classes(f"{folder}'s {key}", chosen, published.n_classes, _ADVICE)
        files = [folder / "jpg" / f"image_{i:05d}.jpg" for i in ids]
        return Split(decoded(files, _SIDE, _ADVICE, stretch=True), chosen)

    train, test = split("tstid", published.test), split("valid", published.val)
    classes = tuple(str(i + 1) for i in range(published.n_classes))
    source = "https://www.robots.ox.ac.uk/~vgg/data/flowers/102/"
    checksum = array_checksum(train, test)
    return ImageArrays("flowers102", train, test, classes, _SIDE, source, checksum)


def _row(path: Path, key: str) -> np.ndarray:
    """One row of integers from a MATLAB file."""
    from scipy.io import loadmat

    try:
        row = loadmat(str(path), variable_names=[key]).get(key)
    except FileNotFoundError:
        raise invalid(str(path), "a file that can be read", "nothing", _ADVICE) from None
    except Exception:  # damaged files raise errors of any kind
        raise invalid(str(path), "a whole MATLAB file", "a damaged one", _ADVICE) from None
    if not isinstance(row, np.ndarray) or row.dtype.kind not in "iu" or row.size == 0:
        raise invalid(str(path), f"a MATLAB file with integers {key}", row, _ADVICE)
    return row.ravel().astype(np.int64)
