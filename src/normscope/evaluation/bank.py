"""A reference's directions, to be searched for neighbours: exactly, by faiss, or a subsample."""

from __future__ import annotations

import importlib.util
import math
import time
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from normscope._checks import invalid
from normscope.evaluation.neighbours import nearest, tiles_for

Search = Literal["auto", "exact", "faiss", "sample"]
Way = Literal["exact", "faiss"]
Progress = Callable[[int, int], None]

MOST = 200_000  # rows that are searched exactly: 150 million products a query at 768 columns
_AT_ONCE = 4096  # queries
_PROBED = 32  # lists of faiss's index
_FARTHEST = 2.0
_TRIED = 16_384  # rows, whose product with 256 queries is timed
_BESIDE = 1.5  # the choice of the highest, beside the product
_FAISS_SECONDS = 1e-3  # a query


class Neighbours(NamedTuple):
    """The nearest rows of a bank."""

    distance: Tensor  # one less the cosine, ascending, (n, k)
    rows: Tensor  # whose, (n, k)


class Bank:
    """Directions of a reference, and a way to search them.

    Args:
        rows: how many there are.
        directions: unit rows in float32, (m, d), to be searched exactly.
        index: faiss's, in place of them.
    """

    def __init__(self, rows: int, *, directions: Tensor | None = None, index: Any = None) -> None:
        self._rows = rows
        self._directions = directions
        self._index = index

    def __len__(self) -> int:
        return self._rows

    @classmethod
    def of(cls, directions: Tensor, *, way: Way) -> Bank:
        """A bank of unit rows, (m, d), in float32."""
        if way == "faiss":
            return cls(len(directions), index=_inverted_lists(directions))
        return cls(len(directions), directions=directions)

    def nearest(
        self, q: Tensor, *, k: int, own: Tensor | None = None, progress: Progress | None = None
    ) -> Neighbours:
        """The k nearest rows of each query, the nearest first; memory is bounded.

        Args:
            q: unit rows, (n, d).
            k: at most m, or m - 1 with `own`.
            own: the row of the bank that each query is, (n,), which is not its neighbour.
            progress: called with the queries done and all of them.

        >>> eye = torch.eye(3).repeat(2, 1)
        >>> Bank.of(eye, way="exact").nearest(eye[:1], k=1, own=torch.tensor([0])).rows
        tensor([[3]])
        """
        wanted = k if own is None else k + 1
        parts = [Neighbours(q.new_empty(0, k), torch.empty(0, k, dtype=torch.int64))]
        for start in range(0, len(q), _AT_ONCE):
            rows = slice(start, start + _AT_ONCE)
            found = self._search(q[rows], wanted)
            parts.append(found if own is None else _without(found, own[rows]))
            if progress is not None:
                progress(min(rows.stop, len(q)), len(q))
        return Neighbours(*(torch.cat(x) for x in zip(*parts, strict=True)))

    def distance(self, q: Tensor, rows: Tensor) -> Tensor:
        """One less the cosine of each query, (n, d), with its row of an exact bank, (n,)."""
        if self._directions is None:
            raise RuntimeError("a bank must be searched exactly to give its rows. Choose exact.")
        bank = self._directions
        return 1 - (q.to(bank.device) * bank[rows.to(bank.device)]).sum(1).cpu()

    def _search(self, q: Tensor, k: int) -> Neighbours:
        if self._directions is None:
            similarity, index = map(torch.from_numpy, self._index.search(q.cpu().numpy(), k))
            missed = index < 0  # the lists that were probed held fewer than k
            distance = (1 - similarity).clamp_(min=0).masked_fill_(missed, _FARTHEST)
            return Neighbours(distance, index.clamp_(min=0))
        bank = self._directions
        q = q.to(bank.device)
        tiles = tiles_for(bank, k=k, classes=1, item=4)
        found = [nearest(part, bank, k=k, tiles=tiles) for part in q.split(tiles.queries)]
        similarity, index = (torch.cat(x).cpu() for x in zip(*found, strict=True))
        return Neighbours(similarity.neg_().clamp_(min=0), index)

    def seconds(self, n: int) -> float:
        """About how long a search for n queries takes, by the time of one small product."""
        if self._directions is None:
            return n * _FAISS_SECONDS
        bank = self._directions[:_TRIED]
        q = bank[: min(256, len(bank))]
        seconds = math.inf
        for _ in range(3):  # the first may load a library, and others may use the machine
            start = time.perf_counter()
            torch.mm(bank, q.T)[0, 0].item()  # waits for a GPU
            seconds = min(seconds, time.perf_counter() - start)
        return _BESIDE * n * len(self) * seconds / (len(bank) * len(q))

    def arrays(self) -> dict[str, Tensor]:
        """All of it, for a file."""
        if self._directions is None:
            return {"index": torch.from_numpy(_faiss().serialize_index(self._index))}
        return {"directions": self._directions.cpu()}

    @classmethod
    def from_arrays(cls, arrays: dict[str, Tensor], *, rows: int) -> Bank:
        """Rebuild the bank from `arrays`."""
        if "index" in arrays:
            return cls(rows, index=_faiss().deserialize_index(arrays["index"].numpy()))
        return cls(rows, directions=arrays["directions"])


def chosen_search(search: str, *, rows: int) -> tuple[Way, int]:
    """How to search, and among how many of the rows.

    >>> chosen_search("auto", rows=5000)
    ('exact', 5000)
    """
    if search not in ("auto", "exact", "faiss", "sample"):
        raise invalid("search", "auto, exact, faiss or sample", search, "The default is auto.")
    if search == "auto":
        large, here = rows > MOST, importlib.util.find_spec("faiss") is not None
        search = ("faiss" if here else "sample") if large else "exact"
    if search == "faiss":
        _faiss()
        return "faiss", rows
    return "exact", min(rows, MOST) if search == "sample" else rows


def _without(found: Neighbours, own: Tensor) -> Neighbours:
    """The neighbours except the row itself; if its equals crowd it out, except the last."""
    mine = found.rows == own[:, None]
    mine[:, -1] |= ~mine.any(1)
    rest = (~mine).nonzero()[:, 1].view(len(own), -1)  # all columns but one, in order
    return Neighbours(found.distance.gather(1, rest), found.rows.gather(1, rest))


def _inverted_lists(directions: Tensor) -> Any:
    """Faiss's inverted lists, some 4 sqrt(m) of them, of which 32 are probed."""
    faiss = _faiss()
    m, d = directions.shape
    lists = max(1, min(int(4 * m**0.5), m // 39))  # 39 rows a list: faiss's least
    index = faiss.IndexIVFFlat(faiss.IndexFlatIP(d), d, lists, faiss.METRIC_INNER_PRODUCT)
    rows = directions.cpu().numpy()
    index.train(rows)
    index.add(rows)
    index.nprobe = min(_PROBED, lists)
    return index


def _faiss() -> Any:
    if importlib.util.find_spec("faiss") is None:
        install = "Install the extra: pip install 'normscope[faiss]', or choose sample."
        raise invalid("faiss", "installed to search by it", None, install)
    import faiss

    return faiss
