"""Memory that worker processes decode into, and that is then copied to the device."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Iterable
from contextlib import nullcontext
from itertools import cycle
from typing import Any

import numpy as np
import torch
from torch import Tensor

from normscope._checks import invalid

_MOST_IMAGES = 32  # of a piece: several share a batch
_MOST_BYTES = 8 << 20  # of a piece, unless a single image is larger
_AHEAD = 2  # batches queued on a GPU while the next is assembled

Piece = tuple[int, np.ndarray]  # a slot, and the height and width of each image in it, (n, 2)


def piece_of(side: int) -> int:
    """How many images of so many pixels' side are decoded at a time."""
    return max(1, min(_MOST_IMAGES, _MOST_BYTES // (3 * side**2)))


class Slots:
    """Room for pieces of a batch, used in turn.

    Without it every piece would be written twice, to newly mapped memory, by the worker and here.
    On a GPU the memory is pinned, and copied on a stream of its own while the GPU computes.

    Args:
        n: slots; a piece may be requested once the n-th before it has been copied.
        side: of the largest images, in pixels.
        device: where they go.
        shared: whether other processes write.

    Attributes:
        side: as given.
        memory: uint8, a row for each slot.
        piece: how many images a slot holds.
    """

    def __init__(self, n: int, *, side: int, device: torch.device, shared: bool) -> None:
        self.side, self.piece = side, piece_of(side)
        self.memory = torch.empty(n, self.piece * 3 * side**2, dtype=torch.uint8)
        if shared:
            self._share()
        self._device, self._turn = device, cycle(range(n))
        self._stream: torch.cuda.Stream | None = None
        self._copied: dict[int, torch.cuda.Event] = {}
        self._used: deque[torch.cuda.Event] = deque()
        if device.type == "cuda":
            self._stream = torch.cuda.Stream(device)
            _pin(self.memory)
            weakref.finalize(self, _unpin, self.memory.data_ptr(), self._stream)

    def _share(self) -> None:
        try:
            self.memory.share_memory_()
        except RuntimeError as error:
            wanted = f"free for {-(-self.memory.nbytes // 10**6):,} MB"
            why = str(error).rsplit(": ", maxsplit=1)[-1]
            advice = "Take fewer workers, or raise the limit (Docker: --shm-size=1g)."
            raise invalid("shared memory", wanted, why, advice) from None

    def free(self) -> int:
        """The next slot, once what it held has been copied."""
        slot = next(self._turn)
        if slot in self._copied:
            self._copied.pop(slot).synchronize()
        return slot

    def batch(self, pieces: Iterable[Piece], n: int, side: int) -> tuple[Tensor, Tensor]:
        """Pieces as one batch on the device, uint8 (n, 3, side, side), and sizes, (n, 2).

        Args:
            pieces: whose images have this side, n in all.
            n: images.
            side: in pixels.
        """
        self._keep_pace()
        sizes, done = np.empty((n, 2), np.int64), 0
        with torch.cuda.stream(self._stream) if self._stream else nullcontext():
            images = torch.empty(n, side, side, 3, dtype=torch.uint8, device=self._device)
            for slot, some in pieces:
                here = slice(done, done := done + len(some))
                sizes[here] = some
                source = self.memory[slot, : images[here].numel()]
                images[here].copy_(source.view_as(images[here]), non_blocking=True)
                if self._stream:
                    self._copied[slot] = _event(self._stream)
        if self._stream:
            current = torch.cuda.current_stream(self._device)
            current.wait_stream(self._stream)
            images.record_stream(current)
        there = torch.from_numpy(sizes).to(self._device, non_blocking=True)
        return images.permute(0, 3, 1, 2), there

    def _keep_pace(self) -> None:
        """Wait until few batches are queued on a GPU: each takes its memory."""
        if self._stream:
            self._used.append(_event(torch.cuda.current_stream(self._device)))
            if len(self._used) > _AHEAD:
                self._used.popleft().synchronize()


def _pin(memory: Tensor) -> None:
    runtime: Any = torch.cuda.cudart()
    torch.cuda.check_error(runtime.cudaHostRegister(memory.data_ptr(), memory.nbytes, 0))


def _unpin(place: int, stream: torch.cuda.Stream) -> None:
    stream.synchronize()  # a copy may be on its way
    runtime: Any = torch.cuda.cudart()
    runtime.cudaHostUnregister(place)


def _event(stream: torch.cuda.Stream) -> torch.cuda.Event:
    event = torch.cuda.Event(blocking=True)  # who waits sleeps: workers need the core
    event.record(stream)
    return event
