"""Rows drawn from a stream of unknown length; parts drawn apart and merged give the same."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np

from normscope._checks import invalid
from normscope.scoring.blocks import OK, STATUSES, Block

# The finaliser of SplitMix64 (Steele et al., 2014) makes a row's number look random.
_STEP, _FIRST, _SECOND = (
    np.uint64(n) for n in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
)
_SLACK = 1.25  # times as many rows as are drawn are held, before the rest is dropped


def keys_of(places: np.ndarray, *, seed: int = 0) -> np.ndarray:
    """A number for each row that says when it is drawn, uint64, (n,); no two share one.

    >>> keys_of(np.arange(3)).argsort()
    array([2, 1, 0])
    """
    with np.errstate(over="ignore"):
        x = (places.astype(np.uint64) + np.uint64(1) + np.uint64(seed << 40)) * _STEP
        x = (x ^ (x >> np.uint64(30))) * _FIRST
        x = (x ^ (x >> np.uint64(27))) * _SECOND
    return x ^ (x >> np.uint64(31))


def likely(places: np.ndarray, *, most: int, rows: int, seed: int = 0) -> np.ndarray:
    """Whether each row may be among `most` drawn of `rows`, bools, (n,): twice as many may.

    >>> int(likely(np.arange(10_000), most=100, rows=10_000).sum())
    207
    """
    if 2 * most >= rows:
        return np.ones(len(places), bool)
    return keys_of(places, seed=seed) < np.uint64((2 * most << 64) // rows)


@dataclass
class Sample:
    """At most so many rows of a stream, drawn evenly: those with the smallest keys.

    A row's key comes from its number alone, so the rows drawn do not depend on how the stream is
    cut into blocks, nor on which process reads which.

    Attributes:
        most: rows that are drawn.
        seed: of the draw.
    """

    most: int
    seed: int = 0
    _held: list[tuple[np.ndarray, Block]] = field(default_factory=list, repr=False)
    _rows: int = 0
    _bound: np.uint64 | None = None

    def take(self, block: Block, start: int, fine: np.ndarray) -> None:
        """Look at a block that begins at row `start`, and may keep rows that are fine."""
        at = np.flatnonzero(fine)
        if self._bound is not None:
            at = at[keys_of(at + start, seed=self.seed) <= self._bound]
        if len(at) and self.most:
            self._add(at + start, _rows_of(block, at))

    def merge(self, other: Sample) -> None:
        """Take in the rows drawn of another part of the stream."""
        for places, block in other._held:
            self._add(places, block)

    def drawn(self) -> tuple[np.ndarray, Block]:
        """Which rows of the stream they are, ascending, and the rows themselves."""
        self._drop()
        if not self._held:
            nothing = Block(np.empty(0), np.empty(0, np.uint8), np.empty((0, 0)))
            return np.empty(0, np.int64), nothing
        places, block = self._held[0]
        order = np.argsort(places)
        return places[order], _rows_of(block, order)

    def _add(self, places: np.ndarray, block: Block) -> None:
        self._held.append((places, block))
        self._rows += len(places)
        if self._rows > _SLACK * self.most + 64:
            self._drop()

    def _drop(self) -> None:
        """Keep the rows that are drawn of those seen so far, in one piece."""
        if not self._held:
            return
        places = np.concatenate([places for places, _ in self._held])
        block = joined([block for _, block in self._held])
        if len(places) > self.most:
            keys = keys_of(places, seed=self.seed)
            kept = np.argpartition(keys, self.most - 1)[: self.most]
            self._bound = keys[kept].max()
            places, block = places[kept], _rows_of(block, kept)
        self._held, self._rows = [(places, block)], len(places)


@dataclass(frozen=True)
class Drawn:
    """Rows drawn of a stream that was read once.

    Attributes:
        rows: how many it had.
        places: which of them were drawn, ascending, (n,).
        z: the rows drawn, (n, d).
        norms: of all rows, (rows,).
    """

    rows: int
    places: np.ndarray
    z: np.ndarray
    norms: np.ndarray


def drawn_rows(name: str, blocks: Iterable[Block], *, most: int | None) -> Drawn:
    """Read a stream whose rows are all finite and not zero; others are counted and refused.

    Args:
        name: of the rows, in errors.
        blocks: of the stream.
        most: rows to draw; None keeps all.
    """
    sample = Sample(sys.maxsize if most is None else most)
    norms, counts, start = [], Counter[int](), 0
    for block in blocks:
        counts.update(block.status[block.status != OK].tolist())
        sample.take(block, start, block.status == OK)
        norms.append(block.norms)
        start += len(block)
    if counts:
        got = ", ".join(f"{n:,} {STATUSES[code]}" for code, n in sorted(counts.items()))
        constraint = "of finite rows that are not zero"
        raise invalid(name, constraint, f"{got} of {start:,} rows", "Leave these out.")
    places, block = sample.drawn()
    return Drawn(start, places, block.z, np.concatenate(norms) if norms else np.empty(0))


def joined(parts: list[Block]) -> Block:
    """Blocks one after the other."""
    ids = [part.ids for part in parts if part.ids is not None]
    texts = [part.texts for part in parts if part.texts is not None]
    return Block(
        np.concatenate([part.norms for part in parts]),
        np.concatenate([part.status for part in parts]),
        np.concatenate([part.z for part in parts]),
        np.concatenate(ids) if ids else None,
        {c: np.concatenate([part.covariates[c] for part in parts]) for c in parts[0].covariates},
        np.concatenate(texts) if texts else None,
    )


def _rows_of(block: Block, at: np.ndarray) -> Block:
    """A copy of some rows, without ids and texts."""
    z = block.z[at]
    return replace(
        block,
        norms=block.norms[at],
        status=block.status[at],
        z=z.astype(z.dtype.newbyteorder("="), copy=False),
        ids=None,
        covariates={name: column[at] for name, column in block.covariates.items()},
        texts=None,
    )
