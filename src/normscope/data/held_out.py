"""A part of a training set to judge settings by, so that the test set stays unseen."""

from __future__ import annotations

import dataclasses

import numpy as np

from normscope._checks import invalid
from normscope.data.images import ImageArrays, Split, array_checksum


def held_out(whole: ImageArrays, last: int, name: str) -> ImageArrays:
    """A dataset whose test set is the last `last` training images, in file order.

    The others are trained on; the dataset's own test set is left out.
    """
    images, labels = np.asarray(whole.train.images), whole.train.labels
    if not 0 < last < len(labels):
        raise invalid("last", f"from 1 to {len(labels) - 1}", last, "Take fewer.")
    train, test = (Split(images[s], labels[s]) for s in (slice(-last), slice(-last, None)))
    checksum = array_checksum(train, test)
    return dataclasses.replace(whole, name=name, train=train, test=test, checksum=checksum)
