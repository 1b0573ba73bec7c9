"""Embeddings in memory, in a mapped file, or made as they are needed, as a source."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from normscope._checks import invalid
from normscope.evaluation.inputs import Values, column, described
from normscope.scoring.blocks import (
    Block,
    Source,
    block_rows,
    norms_and_status,
    not_floating,
    too_few,
)
from normscope.scoring.tables import Records, open_table
from normscope.scoring.wanted import Wanted

_NAME = "rows"


def as_source(
    rows: object, *, n: int | None = None, covariates: Mapping[str, Values] | None = None
) -> Source:
    """Embeddings as `fit_reference` and `score_file` read them, a block at a time.

    Args:
        rows: raw embeddings: an array, also one mapped from a file, or a tensor, (n, d); an Arrow
            table, laid out as a file may be; or an iterable of arrays, blocks of rows.
        n: how many rows an iterator has, which can be read only once. Other iterables are counted.
        covariates: name -> one number a row, (n,).

    >>> as_source(np.ones((5, 2), np.float32)).rows
    5
    >>> as_source((np.ones((4, 2)) for _ in range(3)), n=12).d
    2
    """
    if isinstance(rows, (np.ndarray, Tensor)):
        source = _of_blocks([rows], None)
    elif hasattr(rows, "to_batches"):
        source = _of_table(rows)
    elif isinstance(rows, Iterable) and not isinstance(rows, (str, bytes, Mapping)):
        source = _of_blocks(rows, n)
    else:
        constraint = "an array (n, d), an Arrow table, or an iterable of blocks of rows"
        raise invalid(_NAME, constraint, described(rows), "Open files with open_embeddings.")
    if source.rows < 1 or source.d < 1:
        raise too_few(_NAME, (source.rows, source.d))
    if not covariates:
        return source
    given = {
        name: column(name, values, rows=source.rows, missing=True)
        for name, values in covariates.items()
    }
    return _Beside(_NAME, source.rows, source.d, source.dtype, tuple(given), source, given)


def blocks_of(rows: object) -> Iterator[Block]:
    """The blocks of a source, or of what `as_source` takes, also of an iterator of unknown length.

    An iterator's parts may be Arrow record batches too.

    >>> sum(len(block) for block in blocks_of(np.ones((3, 2)) for _ in range(4)))
    12
    """
    if isinstance(rows, Source):
        return rows.blocks()
    return _iterated(rows, None) if isinstance(rows, Iterator) else as_source(rows).blocks()


@dataclass
class _Blocks(Source):
    """Rows from a function that gives them block by block."""

    parts: Callable[[], Iterable[Values]]

    def blocks(self) -> Iterator[Block]:
        """The rows in order, in pieces if the blocks are long."""
        found = 0
        for block in _iterated(self.parts(), self.d):
            found += len(block)
            if found > self.rows:
                break
            yield block
        if found != self.rows:
            got = "more" if found > self.rows else f"{found:,}"
            raise invalid(_NAME, f"{self.rows:,} rows", got, "Give as many as n says.")


def _iterated(parts: Iterable[Any], d: int | None) -> Iterator[Block]:
    """The rows of arrays, tensors or record batches, of d columns each, in pieces if long."""
    for part in parts:
        if hasattr(part, "schema"):
            blocks = open_table(_NAME, part.schema, len(part), _records_of(part), Wanted()).blocks()
            for block in blocks:
                _check(block.z, d)
                d = int(block.z.shape[1])
                yield block
            continue
        _check(part, d)
        d = int(part.shape[1])
        step = block_rows(d * part.dtype.itemsize)
        for start in range(0, len(part), step):
            z = _array(part[start : start + step])
            yield Block(*norms_and_status(z), z)
            _release(part)


@dataclass
class _Beside(Source):
    """Rows with covariates that are kept apart from them."""

    source: Source
    covariates: dict[str, np.ndarray]

    def blocks(self) -> Iterator[Block]:
        """The rows in order."""
        start = 0
        for b in self.source.blocks():
            rows = slice(start, start + len(b))
            given = {name: values[rows] for name, values in self.covariates.items()}
            yield Block(b.norms, b.status, b.z, b.ids, given, b.texts)
            start = rows.stop


def _of_table(table: Any) -> Source:
    def records(columns: list[str], most: int) -> Iterator[Any]:
        yield from table.select(columns).to_batches(max_chunksize=most)

    return open_table(_NAME, table.schema, len(table), records, Wanted())


def _records_of(batch: Any) -> Records:
    def records(columns: list[str], most: int) -> Iterator[Any]:
        del most  # it is cut where it is read
        yield batch.select(columns)

    return records


def _of_blocks(blocks: Iterable[Values], n: int | None) -> Source:
    """A source of blocks; those that can be read again are counted, an iterator has n rows."""
    parts = iter(blocks)
    first = next(parts, None)
    if first is None:
        raise too_few(_NAME, (0, 0))
    _check(first, None)
    held = [first]

    def once() -> Iterator[Values]:
        if not held:
            again = "They came from an iterator: make it again."
            raise RuntimeError(f"{_NAME} must be read once, got a second reading. {again}")
        yield held.pop()
        yield from parts

    if parts is blocks:
        if n is None:
            advice = "Say n=, or give something that can be read again."
            raise invalid("n", "given for an iterator, which can be read once", None, advice)
        return _Blocks(_NAME, n, int(first.shape[1]), str(first.dtype), (), once)
    rows = len(first) + sum(len(part) for part in parts)
    return _Blocks(_NAME, rows, int(first.shape[1]), str(first.dtype), (), lambda: blocks)


def _check(part: object, d: int | None) -> None:
    """Refuse what is not floating-point rows of d entries."""
    if not isinstance(part, (np.ndarray, Tensor)) or part.ndim != 2:
        raise invalid(_NAME, "embeddings (n, d)", described(part), "Give each row one embedding.")
    floating = part.is_floating_point() if isinstance(part, Tensor) else part.dtype.kind == "f"
    if not floating or part.dtype.itemsize > 8:
        raise not_floating(_NAME, str(part.dtype))
    if d not in (None, part.shape[1]):
        raise invalid(_NAME, f"of {d} columns", int(part.shape[1]), "All come from one network.")


def _release(part: Values) -> None:
    """Let go of pages of a mapped file that were read: they would count as memory.

    What was changed in private, and is nowhere else, stays.
    """
    mapped = getattr(part, "_mmap", None)
    if mapped is not None and getattr(part, "mode", "c") != "c" and hasattr(mmap, "MADV_DONTNEED"):
        mapped.madvise(mmap.MADV_DONTNEED)


def _array(part: Values) -> np.ndarray:
    """Rows one after the other, so that the same have the same norms however they are kept."""
    if isinstance(part, Tensor):
        part = part.detach().cpu()
        part = (part.float() if part.dtype == torch.bfloat16 else part).numpy()
    return np.ascontiguousarray(part)
