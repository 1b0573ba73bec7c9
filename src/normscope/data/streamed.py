"""A split too large for memory: worker processes decode it and crop the views."""

from __future__ import annotations

import math
import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from multiprocessing import resource_tracker
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from normscope._checks import invalid
from normscope.data.images import LazyImages, Split, fitted
from normscope.data.resident import Resident

_ASPECTS = (3 / 4, 4 / 3)  # of the crops, as in SimCLR
_ATTEMPTS = 10  # to draw a crop that fits
_MOST_WORKERS = 16

_Item = tuple[int, int | None]  # image, and the seed of its crops, or None to evaluate
_Batches = list[list[_Item]]


class Streamed:
    """Two random resized crops of each image, made by worker processes.

    The crops of an image depend on the seed, the image and the view alone, so they are the same
    whatever the number of workers. Workers start with the first batch and stay; they are spawned,
    so a script that uses them needs the usual `if __name__ == "__main__"`. Ctrl-C is for this
    process alone to answer: they go on until it ends.

    Args:
        split: whose images are `LazyImages`.
        device: where batches go; they are pinned for CUDA.
        side: of the crops, in pixels.
        crop_scale: the smallest and largest share of the image's area in a crop.
        workers: processes; 0 decodes in this one.
    """

    needs_crop = False

    def __init__(
        self,
        split: Split,
        device: torch.device,
        *,
        side: int,
        crop_scale: tuple[float, float],
        workers: int,
    ) -> None:
        if not isinstance(split.images, LazyImages):
            raise invalid("split", "one whose images are lazy", split.images, "Use `source`.")
        if not 0 < crop_scale[0] <= crop_scale[1] <= 1:
            advice = "SimCLR uses (0.08, 1)."
            raise invalid("crop_scale", "two shares in order, in (0, 1]", str(crop_scale), advice)
        self.device = device
        self.labels = torch.from_numpy(np.array(split.labels)).to(device)
        self._plan = _Plan()
        self._starts_workers = workers > 0
        self._loader: DataLoader[Tensor | ValueError] = DataLoader(
            _Crops(split.images, side, crop_scale),
            batch_sampler=self._plan,
            num_workers=workers,
            collate_fn=_collated,
            multiprocessing_context="spawn" if workers else None,
            persistent_workers=workers > 0,
            pin_memory=device.type == "cuda",
            generator=torch.Generator(),  # of its own: torch's random state stays as it is
        )

    def __len__(self) -> int:
        return len(self.labels)

    def batches(
        self, index_batches: Sequence[Tensor], *, seed: int
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Crops, uint8 (2, n, 3, side, side), and labels, (n,), in the order of the indices.

        Args:
            index_batches: one int64 CPU tensor of rows for each batch.
            seed: of the crops, not negative; another each epoch.
        """
        if seed < 0:
            raise invalid("seed", "an integer from 0", seed, "Count epochs up from it.")
        plan: _Batches = [[(row, seed) for row in rows.tolist()] for rows in index_batches]
        for rows, views in zip(index_batches, self._run(plan), strict=True):
            yield views, self.labels[rows.to(self.device, non_blocking=True)]

    def evaluation_batches(self, batch: int) -> Iterator[Tensor]:
        """All images in order, shorter side to `side` and centre crop, uint8 (n, 3, side, side)."""
        starts = range(0, len(self), batch)
        plan: _Batches = [
            [(i, None) for i in range(start, min(start + batch, len(self)))] for start in starts
        ]
        for views in self._run(plan):
            yield views[0]

    def _run(self, plan: _Batches) -> Iterator[Tensor]:
        self._plan.batches = plan
        with _interrupts_held() if self._starts_workers else nullcontext():
            batches = iter(self._loader)
        self._starts_workers = False  # they stay
        for views in batches:
            if self._plan.batches is not plan:
                raise RuntimeError("These batches ended when others were asked for. Finish first.")
            if isinstance(views, ValueError):
                raise views
            yield views.to(self.device, non_blocking=True)


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Inside this, SIGINT waits, and processes that start here never receive it.

    A terminal sends Ctrl-C to workers too, and without them a loop could not go on to where it
    saves. A blocked signal stays blocked in what is spawned, from its first instruction; and it is
    not lost to this process, as an ignored one would be while large lists travel to workers.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    resource_tracker.ensure_running()  # before Python 3.12, its start unblocks SIGINT
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _Plan(Sampler[list[_Item]]):
    """The batches to come; set anew for each pass, while the workers live on."""

    def __init__(self) -> None:
        self.batches: _Batches = []

    def __iter__(self) -> Iterator[list[_Item]]:
        return iter(self.batches)

    def __len__(self) -> int:
        return len(self.batches)


class _Crops(Dataset["Tensor | ValueError"]):
    """What runs in a worker.

    The error of a broken image is given back: raised there, it would come as a traceback.
    """

    def __init__(self, images: LazyImages, side: int, scale: tuple[float, float]) -> None:
        self.images, self.side, self.scale = images, side, scale

    def __getitem__(self, item: Any) -> Tensor | ValueError:
        """The views of one image, or what is wrong with it."""
        try:
            return self._views(*item)
        except ValueError as error:
            return error

    def _views(self, i: int, seed: int | None) -> Tensor:
        """The views of one image, uint8 (views, 3, side, side)."""
        from PIL import Image

        image = Image.fromarray(self.images[i])
        if seed is None:
            views = [fitted(image, self.side)]
        else:
            views = []
            for view in range(2):
                bits = np.random.Philox(np.random.SeedSequence((seed, i, view)))
                box = crop_box(image.size, self.scale, np.random.Generator(bits))
                size = (self.side, self.side)
                views.append(image.crop(box).resize(size, Image.Resampling.BICUBIC))
        arrays = np.stack([np.asarray(view) for view in views])
        return torch.from_numpy(np.ascontiguousarray(arrays.transpose(0, 3, 1, 2)))


def crop_box(
    size: tuple[int, int], scale: tuple[float, float], rng: np.random.Generator
) -> tuple[int, int, int, int]:
    """A random crop, (left, top, right, bottom): its area's share uniform, its aspect log-uniform.

    Where ten draws do not fit into the image, the largest central crop of a permitted aspect.

    Source: Szegedy et al., "Going Deeper with Convolutions", 2015, as SimCLR uses it.
    """
    width, height = size
    low, high = (math.log(a) for a in _ASPECTS)
    for _ in range(_ATTEMPTS):
        area = width * height * (scale[0] + (scale[1] - scale[0]) * rng.random())
        aspect = math.exp(low + (high - low) * rng.random())
        w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        x, y = rng.random(), rng.random()
        if 0 < w <= width and 0 < h <= height:
            left, top = int(x * (width - w + 1)), int(y * (height - h + 1))
            return left, top, left + w, top + h
    w = min(width, max(1, round(height * _ASPECTS[1])))
    h = min(height, max(1, round(width / _ASPECTS[0])))
    left, top = (width - w) // 2, (height - h) // 2
    return left, top, left + w, top + h


def _collated(items: list[Tensor | ValueError]) -> Tensor | ValueError:
    views = []
    for item in items:
        if isinstance(item, ValueError):
            return item
        views.append(item)
    return torch.stack(views, 1)  # views n 3 side side


def source(
    split: Split,
    device: torch.device,
    *,
    side: int,
    crop_scale: tuple[float, float],
    workers: int | None = None,
) -> Resident | Streamed:
    """Where a training loop takes its batches from: `Resident` for arrays, else `Streamed`.

    Args:
        split: what to take them from.
        device: where they go.
        side: of the crops, in pixels.
        crop_scale: the smallest and largest share of the image's area in a crop.
        workers: processes that decode; by default one per core, at most 16.
    """
    if not isinstance(split.images, LazyImages):
        return Resident(split, device)
    if workers is None:
        workers = min(_MOST_WORKERS, os.cpu_count() or 1)
    return Streamed(split, device, side=side, crop_scale=crop_scale, workers=workers)
