"""Class-imbalanced CIFAR: exponentially fewer images from class to class.

Paper: Section 5.2, Table "imbalanced_experiments".
"""

from __future__ import annotations

import dataclasses
import math
from typing import Literal

import numpy as np

from normscope._checks import invalid
from normscope.data.images import ImageArrays, Split, array_checksum


def exponential_counts(
    n_classes: int, *, largest: int, base: float, rounding: Literal["nearest", "floor"]
) -> list[int]:
    r"""$n_i = n_0 \cdot b^{-i}$ images for class i, in whole images.

    The text takes $5000 \cdot 1.5^{-i}$ of CIFAR-10 and $500 \cdot 1.034^{-i}$ of CIFAR-100 and
    leaves the rounding open; the published code rounds down, and its base for CIFAR-100 is
    1.03365.

    Args:
        n_classes: how many classes.
        largest: $n_0$.
        base: b.
        rounding: to whole images.

    >>> exponential_counts(4, largest=5000, base=1.5, rounding="nearest")
    [5000, 3333, 2222, 1481]
    >>> sum(exponential_counts(10, largest=5000, base=1.5, rounding="floor"))
    14736
    >>> sum(exponential_counts(100, largest=500, base=1.03365, rounding="floor"))
    14750
    """
    if rounding not in ("nearest", "floor"):
        raise invalid("rounding", "'nearest' or 'floor'", rounding, "The code rounds down.")
    half = 0.5 if rounding == "nearest" else 0.0
    return [
        math.floor(largest * math.exp(-i * math.log(base)) + half)  # as the code writes it
        for i in range(n_classes)
    ]


def unbalanced(whole: ImageArrays, counts: list[int], name: str) -> ImageArrays:
    """A dataset whose training set keeps the first `counts[i]` images of class i, in file order.

    The test set stays whole.
    """
    images, labels = np.asarray(whole.train.images), whole.train.labels
    kept = []
    for i, count in enumerate(counts):
        rows = np.flatnonzero(labels == i)
        if len(rows) < count:
            got = f"{len(rows)} in class {i}"
            raise invalid("counts", "at most the images of each class", got, "Take fewer.")
        kept.append(rows[:count])
    rows = np.sort(np.concatenate(kept))
    train = Split(images[rows], labels[rows])
    checksum = array_checksum(train, whole.test)
    return dataclasses.replace(whole, name=name, train=train, checksum=checksum)
