"""A split too large for memory: worker processes decode it, piece by piece."""

from __future__ import annotations

import os
import signal
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import cached_property, partial
from itertools import chain
from multiprocessing import resource_tracker
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from normscope._checks import invalid
from normscope.data.images import LazyImages, Split, fitted
from normscope.data.resident import Batch, Resident

_PIECE = 32  # images that a worker decodes at a time: several share a batch
_SAMPLE = 64  # images whose size decides the canvas
_MOST_WORKERS = 16

_Rows = tuple[int | None, list[int]]  # side of the canvas, or None to fit them; and which
_Piece = tuple[Tensor, Tensor]  # images and sizes, as in a batch


class Streamed:
    """Images as they are, decoded by worker processes, each in the corner of a canvas.

    Crops are left to the augmentation on the device. The canvas is a square as large as the
    largest of a sample of the images, but at most four times `side`: what is larger is brought down
    to it, and a crop of a sixteenth of it still has as many pixels as a view. Workers start with
    the first batch and stay; they are spawned, so a script that uses them needs the usual
    `if __name__ == "__main__"`. Ctrl-C and SIGTERM are for this process alone to answer: they
    go on until it ends.

    Args:
        split: whose images are `LazyImages`.
        device: where batches go; they are pinned for CUDA.
        side: of the views and of the images that are evaluated, in pixels.
        workers: processes; 0 decodes in this one.
    """

    def __init__(self, split: Split, device: torch.device, *, side: int, workers: int) -> None:
        if not isinstance(split.images, LazyImages):
            raise invalid("split", "one whose images are lazy", split.images, "Use `source`.")
        self.device, self._images, self._side = device, split.images, side
        self.labels = torch.from_numpy(np.array(split.labels)).to(device)
        self._plan = _Plan()
        self._starts_workers = workers > 0
        self._loader: DataLoader[_Piece | ValueError] = DataLoader(
            _Decoded(split.images, side),
            batch_sampler=self._plan,
            num_workers=workers,
            collate_fn=_as_it_is,
            multiprocessing_context="spawn" if workers else None,
            persistent_workers=workers > 0,
            pin_memory=device.type == "cuda",
            worker_init_fn=partial(_begin, os.getpid()),
            generator=torch.Generator(),  # of its own: torch's random state stays as it is
        )

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

        def pieces() -> Iterator[_Rows]:
            for rows in batches:
                asked.append(rows)
                yield from ((canvas, piece.tolist()) for piece in rows.split(_PIECE))

        self._plan.pieces = plan = pieces()
        with _interrupts_held() if self._starts_workers else nullcontext():
            found = iter(self._loader)
        self._starts_workers = False  # they stay
        images, sizes = [], []
        while True:
            if self._plan.pieces is not plan:  # workers are on with another pass
                raise RuntimeError("These batches ended when others were asked for. Finish first.")
            part = next(found, None)
            if part is None:
                return
            if isinstance(part, ValueError):
                raise part
            images.append(part[0].to(self.device, non_blocking=True))
            sizes.append(part[1].to(self.device, non_blocking=True))
            if sum(map(len, sizes)) == len(asked[0]):
                yield asked.popleft(), torch.cat(images).permute(0, 3, 1, 2), torch.cat(sizes)
                images, sizes = [], []


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Inside this, SIGINT and SIGTERM wait, and processes that start here never receive them.

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
    """What a worker does first: end if its parent has, and heed SIGTERM from it alone."""
    if os.getppid() != parent:
        os._exit(1)  # torch's own watch would wait for whoever adopted it
    if hasattr(signal, "sigwaitinfo"):
        threading.Thread(target=_end_when_told, args=(parent,), daemon=True).start()
    elif hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})


def _end_when_told(parent: int) -> None:
    while signal.sigwaitinfo({signal.SIGTERM}).si_pid != parent:
        pass
    os._exit(0)


class _Plan(Sampler[Any]):
    """The pieces to come; set anew for each pass, while the workers live on."""

    def __init__(self) -> None:
        self.pieces: Iterator[_Rows] = iter(())

    def __iter__(self) -> Iterator[_Rows]:
        return self.pieces


class _Decoded(Dataset["_Piece | ValueError"]):
    """What runs in a worker.

    The error of a broken image is given back: raised there, it would come as a traceback.
    """

    def __init__(self, images: LazyImages, side: int) -> None:
        self.images, self.side = images, side

    def __getitems__(self, piece: Any) -> _Piece | ValueError:
        """Some images, or what is wrong with the first that is broken."""
        canvas, rows = piece
        try:
            return self._fitted(rows) if canvas is None else self._on_canvases(rows, canvas)
        except ValueError as error:
            return error

    def _fitted(self, rows: list[int]) -> _Piece:
        """Images of one size, uint8 (n, side, side, 3)."""
        from PIL import Image

        images = [fitted(Image.fromarray(self.images[i]), self.side) for i in rows]
        sizes = torch.full((len(rows), 2), self.side)
        return torch.from_numpy(np.stack([np.asarray(image) for image in images])), sizes

    def _on_canvases(self, rows: list[int], canvas: int) -> _Piece:
        """Images of any size in the top left corner, uint8 (n, canvas, canvas, 3), and sizes."""
        images = np.zeros((len(rows), canvas, canvas, 3), np.uint8)
        sizes = torch.empty(len(rows), 2, dtype=torch.int64)
        for place, i in enumerate(rows):
            image = _shrunk(self.images[i], canvas)
            height, width = image.shape[:2]
            images[place, :height, :width] = image
            sizes[place, 0], sizes[place, 1] = height, width
        return torch.from_numpy(images), sizes


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
