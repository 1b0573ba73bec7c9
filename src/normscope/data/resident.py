"""A split held on the device as a whole, and indexed into batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from normscope._checks import invalid
from normscope.data.images import LazyImages, Split


class Batch(NamedTuple):
    """A batch of images and labels.

    Args:
        images: uint8, (n, 3, h, w).
        sizes: height and width of each, which lies in the top left corner, (n, 2); None if all
            are as large as the tensor.
        labels: (n,).
    """

    images: Tensor
    sizes: Tensor | None
    labels: Tensor


class Resident:
    """Images of one split as one uint8 tensor on the device.

    CIFAR-10's training images take 154 MB. Crops are left to the augmentation on the device.

    Args:
        split: whose images are an array.
        device: where they will lie.
    """

    def __init__(self, split: Split, device: torch.device) -> None:
        if isinstance(split.images, LazyImages):
            raise invalid("split", "one whose images are an array", split.images, "Use `source`.")
        self.images = torch.from_numpy(np.array(split.images)).to(device)
        self.labels = torch.from_numpy(np.array(split.labels)).to(device)

    def __len__(self) -> int:
        return len(self.labels)

    def batches(self, epochs: Iterable[Sequence[Tensor]]) -> Iterator[Batch]:
        """Images, all of one size, and labels in the order of the indices.

        Args:
            epochs: of each epoch, one int64 CPU tensor of rows for each batch.
        """
        for index_batches in filter(None, epochs):
            # one transfer: one for each batch would keep the device waiting
            every = torch.cat(list(index_batches)).to(self.images.device)
            for rows in every.split([len(rows) for rows in index_batches]):
                yield Batch(self.images[rows], None, self.labels[rows])

    def evaluation_batches(self, batch: int) -> Iterator[Tensor]:
        """All images in order, `batch` at a time, uint8 (n, 3, h, w)."""
        yield from self.images.split(batch)
