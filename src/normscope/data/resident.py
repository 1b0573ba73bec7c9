"""A split that lies on the device as a whole, from which batches are cut by index."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from normscope._checks import invalid
from normscope.data.images import LazyImages, Split


class Resident:
    """Images of one split as one uint8 tensor on the device.

    CIFAR-10's training images take 154 MB. Crops are left to the augmentation on the device.

    Args:
        split: whose images are an array.
        device: where they will lie.
    """

    needs_crop = True

    def __init__(self, split: Split, device: torch.device) -> None:
        if isinstance(split.images, LazyImages):
            raise invalid("split", "one whose images are an array", split.images, "Use `source`.")
        self.images = torch.from_numpy(np.array(split.images)).to(device)
        self.labels = torch.from_numpy(np.array(split.labels)).to(device)

    def __len__(self) -> int:
        return len(self.labels)

    def batches(
        self, index_batches: Sequence[Tensor], *, seed: int
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Images, uint8 (n, 3, h, w), and labels, (n,), in the order of the indices.

        Args:
            index_batches: one int64 CPU tensor of rows for each batch.
            seed: takes part in what `Streamed` draws; here nothing is drawn.
        """
        del seed
        if not index_batches:
            return
        # over in one piece: a transfer at each batch would let the device run dry
        every = torch.cat(list(index_batches)).to(self.images.device)
        for rows in every.split([len(rows) for rows in index_batches]):
            yield self.images[rows], self.labels[rows]

    def evaluation_batches(self, batch: int) -> Iterator[Tensor]:
        """All images in order, `batch` at a time, uint8 (n, 3, h, w)."""
        yield from self.images.split(batch)
