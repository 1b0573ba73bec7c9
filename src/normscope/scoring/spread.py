"""Embeddings that other processes read: what these make of each block comes back, not the rows."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from normscope.scoring.blocks import Block, Source

Columns = dict[str, np.ndarray]


@dataclass(frozen=True)
class Parcel:
    """What comes back of a block.

    Attributes:
        block: without its rows, except those carried; the others are zero.
        columns: name -> (n,), that were computed there.
        carried: whether each row's embedding comes along, bools, (n,); None if none does.
    """

    block: Block
    columns: Columns
    carried: np.ndarray | None

    def __len__(self) -> int:
        return len(self.block)


# of a block and the row that it begins at; it is pickled, and sent to where the rows are read
Kernel = Callable[[Block, int], Parcel]


@dataclass
class Spread(Source):
    """Rows that other processes can read in pieces; `blocks` reads them here."""

    @abstractmethod
    def mapped(self, kernel: Kernel) -> Iterator[Parcel]:
        """What the kernel makes of each block, in the order of the rows."""
