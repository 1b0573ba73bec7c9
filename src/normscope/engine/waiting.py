"""How long training waits for images."""

from __future__ import annotations

import time
from collections.abc import Iterator

import torch

from normscope.data import Batch


class Waiting:
    """Batches as they come, and how long the device had none to work on.

    A GPU is asked by its own clock: the host, which runs ahead of it, may wait while it works.

    Args:
        device: which works on them.
    """

    def __init__(self, device: torch.device) -> None:
        self._device, self._seconds = device, 0.0
        self._marks: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []

    def through(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        """The same batches."""
        while True:
            before = self._mark()
            batch = next(batches, None)
            self._count(before)
            if batch is None:
                return
            yield batch

    def taken(self) -> float:
        """Seconds since the last call. Waits for the device."""
        for before, after in self._marks:
            after.synchronize()
            self._seconds += before.elapsed_time(after) / 1000
        self._marks = []
        seconds, self._seconds = self._seconds, 0.0
        return seconds

    def _mark(self) -> float | torch.cuda.Event:
        if self._device.type != "cuda":
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self._device))
        return event

    def _count(self, before: float | torch.cuda.Event) -> None:
        after = self._mark()
        if isinstance(before, float) and isinstance(after, float):
            self._seconds += after - before
        elif isinstance(before, torch.cuda.Event) and isinstance(after, torch.cuda.Event):
            self._marks.append((before, after))
