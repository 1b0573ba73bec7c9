"""A split too large for memory: worker processes decode it, piece by piece."""

from __future__ import annotations

import os
import signal
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import cached_property, partial
from itertools import chain, islice
from multiprocessing import resource_tracker
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from normscope._checks import invalid
from normscope.data.images import LazyImages, Split, fitted
from normscope.data.resident import Batch, Resident
from normscope.data.slots import Piece, Slots, piece_of

_SAMPLE = 64  # images whose size decides the canvas
_MOST_WORKERS = 16
_EACH = 2  # pieces that a worker has before it

_Asked = tuple[int, int | None, list[int]]  # slot, canvas or None to fit them, and which


class Streamed:
    """Images as they are, decoded by worker processes, each in the corner of a canvas.

    Crops are left to the augmentation on the device. The canvas is a square as large as the
    largest of a sample of the images, but at most four times `side`. Larger images are shrunk to
    it; a crop of a sixteenth of it still has as many pixels as a view. Workers start with the
    first batch and stay. They are spawned, so a script that uses them needs the usual
    `if __name__ == "__main__"`. Workers ignore Ctrl-C and SIGTERM, and end with this process.

    Args:
        split: whose images are `LazyImages`.
        device: where batches go.
        side: of the views and of the images that are evaluated, in pixels.
        workers: processes; 0 decodes in this one.
    """

    def __init__(self, split: Split, device: torch.device, *, side: int, workers: int) -> None:
        if not isinstance(split.images, LazyImages):
            raise invalid("split", "one whose images are lazy", split.images, "Use `source`.")
        self.device, self._images, self._side = device, split.images, side
        self.labels = torch.from_numpy(np.array(split.labels)).to(device)
        self._workers = workers
        self._plan = _Plan()
        self._slots: Slots | None = None
        self._loader: DataLoader[Piece | ValueError] | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def batches(self, epochs: Iterable[Sequence[Tensor]]) -> Iterator[Batch]:
        """Images on their canvases, their sizes and labels, in the order of the indices.

        The first batches of an epoch are decoded while the last ones of the epoch before are used.

        Args:
            epochs: of each epoch, one int64 CPU tensor of rows for each batch.
        """
        for rows, images, sizes in self._run(chain.from_iterable(epochs), self._canvas):
            labels = self.labels[rows.to(self.device, non_blocking=True)]
            yield Batch(images, sizes, labels)

    def evaluation_batches(self, batch: int) -> Iterator[Tensor]:
        """All images in order, shorter side to `side` and centre crop, uint8 (n, 3, side, side)."""
        for _, images, _ in self._run(torch.arange(len(self)).split(batch), None):
            yield images

    @cached_property
    def _canvas(self) -> int:
        every = range(0, len(self), max(1, len(self) // _SAMPLE))
        return min(4 * self._side, max(max(self._images[i].shape[:2]) for i in every))

    def _run(
        self, batches: Iterable[Tensor], canvas: int | None
    ) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Each batch's rows, images and sizes, put together from its pieces on the device."""
        asked: deque[Tensor] = deque()  # the rows of batches that workers have begun
        side = self._side if canvas is None else canvas
        slots = self._slots_for(side)

        def pieces() -> Iterator[_Asked]:
            for rows in batches:
                asked.append(rows)
                yield from ((slots.free(), canvas, p.tolist()) for p in rows.split(slots.piece))

        found = self._decoded(pieces(), slots)
        for first in found:
            rows = asked.popleft()
            others = islice(found, (len(rows) - 1) // slots.piece)
            yield rows, *slots.batch(chain([first], others), len(rows), side)

    def _slots_for(self, side: int) -> Slots:
        """The current slots, or larger ones, for which workers are restarted."""
        if self._slots is None or self._slots.side < side:
            workers = min(self._workers, -(-len(self) // piece_of(side)))
            # one more than pieces can be asked for: that is on its way to the device
            n = _EACH * workers + 1
            self._slots = Slots(n, side=side, device=self.device, shared=workers > 0)
            self._loader = None
        return self._slots

    def _decoded(self, pieces: Iterator[_Asked], slots: Slots) -> Iterator[Piece]:
        """What workers make of pieces, in their order."""
        self._plan.pieces = pieces
        if self._loader is None:
            self._loader = self._new_loader(slots.memory)
            with _interrupts_held() if self._loader.num_workers else nullcontext():
                found = iter(self._loader)  # workers start, and stay
        else:
            found = iter(self._loader)
        while True:
            if self._plan.pieces is not pieces:  # workers are on with another pass
                raise RuntimeError("These batches ended when others began. Finish one pass first.")
            part = next(found, None)
            if part is None:
                return
            if isinstance(part, ValueError):
                try:
                    raise part
                finally:
                    del part  # else the error would keep this frame, and it the workers
            yield part

    def _new_loader(self, memory: Tensor) -> DataLoader[Piece | ValueError]:
        workers = len(memory) // _EACH
        return DataLoader(
            _Decoded(self._images, self._side, memory),
            batch_sampler=self._plan,
            num_workers=workers,
            prefetch_factor=_EACH if workers else None,
            collate_fn=_as_it_is,
            multiprocessing_context="spawn" if workers else None,
            persistent_workers=workers > 0,
            worker_init_fn=partial(_begin, os.getpid()),
            generator=torch.Generator(),  # of its own: torch's random state stays as it is
        )


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Context in which SIGINT and SIGTERM wait; processes started in it never receive them.

    A terminal sends Ctrl-C to workers too, `timeout` and torchrun SIGTERM, and without workers a
    loop could not go on to where it saves. A blocked signal stays blocked in what is spawned, from
    its first instruction; and it is not lost to this process, as an ignored one would be while
    large lists travel to workers.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    resource_tracker.ensure_running()  # before Python 3.12, its start unblocks SIGINT
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin(parent: int, _worker: int) -> None:
    """Set up a worker: end it if its parent has ended, and accept SIGTERM from that alone."""
    if os.getppid() != parent:
        os._exit(1)  # torch's own watch would wait for whoever adopted it
    if hasattr(signal, "sigwaitinfo"):
        threading.Thread(target=_end_when_asked, args=(parent,), daemon=True).start()
    elif hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})


def _end_when_asked(parent: int) -> None:
    while signal.sigwaitinfo({signal.SIGTERM}).si_pid != parent:
        pass
    os._exit(0)


class _Plan(Sampler[Any]):
    """The pieces to come, set for each pass while the workers live on."""

    def __init__(self) -> None:
        self.pieces: Iterator[_Asked] = iter(())

    def __iter__(self) -> Iterator[_Asked]:
        return self.pieces


class _Decoded(Dataset["Piece | ValueError"]):
    """The dataset that runs in a worker.

    The error of a broken image is returned: raised there, it would come as a traceback.
    """

    def __init__(self, images: LazyImages, side: int, memory: Tensor) -> None:
        self.images, self.side, self.memory = images, side, memory

    def __getitems__(self, asked: Any) -> Piece | ValueError:
        """Some images, or what is wrong with the first that is broken."""
        slot, canvas, rows = asked
        side = self.side if canvas is None else canvas
        place = self.memory[slot, : len(rows) * 3 * side**2].view(len(rows), side, side, 3)
        fill = self._fit if canvas is None else self._place
        try:
            return slot, np.array(
                [fill(i, room) for i, room in zip(rows, place.numpy(), strict=True)]
            )
        except ValueError as error:
            return error

    def _fit(self, i: int, room: np.ndarray) -> tuple[int, int]:
        """Image i as it is evaluated, and its size."""
        from PIL import Image

        room[:] = np.asarray(fitted(Image.fromarray(self.images[i]), self.side))
        return self.side, self.side

    def _place(self, i: int, room: np.ndarray) -> tuple[int, int]:
        """Image i, of any size, in the top left corner; and its size."""
        image = _shrunk(self.images[i], len(room))
        height, width = image.shape[:2]
        room[:height, :width] = image
        room[height:] = 0
        room[:height, width:] = 0
        return height, width


def _shrunk(image: np.ndarray, longest: int) -> np.ndarray:
    """An image, (h, w, 3), whose longer side is at most so many pixels."""
    from PIL import Image

    height, width = image.shape[:2]
    if max(height, width) <= longest:
        return image
    scale = longest / max(height, width)
    size = (max(1, round(scale * width)), max(1, round(scale * height)))
    resized = Image.fromarray(image).resize(size, Image.Resampling.BICUBIC, reducing_gap=2.0)
    return np.asarray(resized)


def _as_it_is(piece: Any) -> Any:
    return piece


def source(
    split: Split, device: torch.device, *, side: int, workers: int | None = None
) -> Resident | Streamed:
    """Where a training loop takes its batches from: `Resident` for arrays, else `Streamed`.

    Args:
        split: what to take them from.
        device: where they go.
        side: of the views, in pixels.
        workers: processes that decode; by default one per core, at most 16.
    """
    if not isinstance(split.images, LazyImages):
        return Resident(split, device)
    if workers is None:
        workers = min(_MOST_WORKERS, os.cpu_count() or 1)
    return Streamed(split, device, side=side, workers=workers)
