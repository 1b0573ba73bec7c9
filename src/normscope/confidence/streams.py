"""Embeddings that come as a stream: which inputs these are, and the rows drawn of one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

if TYPE_CHECKING:
    from normscope.confidence.covariates import Covariates
    from normscope.scoring import Drawn


def is_stream(z: object) -> bool:
    """Whether rows are read a block at a time: an Arrow table, a source, or blocks of rows.

    >>> is_stream(iter([np.ones((2, 3))])), is_stream([np.ones((2, 3))]), is_stream(np.ones((2, 3)))
    (True, True, False)
    """
    if isinstance(z, (np.ndarray, Tensor)):
        return False
    if isinstance(z, (list, tuple)):
        return bool(z) and getattr(z[0], "ndim", 0) == 2
    return isinstance(z, Iterator) or hasattr(z, "to_batches") or hasattr(z, "blocks")


def streamed(name: str, z: object, *, most: int | None) -> Drawn:
    """The norms of all rows, and at most so many rows, drawn evenly."""
    from normscope.scoring import blocks_of, drawn_rows

    return drawn_rows(name, blocks_of(z), most=most)


def at_places(covariates: Covariates | None, found: Drawn) -> Covariates | None:
    """The covariates, given for all rows, of those that were drawn."""
    from normscope.confidence.covariates import columns_of

    if covariates is None:
        return None
    given = columns_of(covariates, rows=found.rows)
    return {name: values[found.places] for name, values in given.items()}
