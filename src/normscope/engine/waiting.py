"""How long training waits for images."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import torch

from normscope.data import Batch


class Waiting:
    """Passes batches on, and measures how long the device waited for them.

    A GPU's own clock is used: the host runs ahead of it, and may wait while the GPU works.

    Args:
        device: which uses them.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._waits: list[tuple[Any, Any]] = []  # when each began and ended, by the device's clock

    def through(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        """The same batches."""
        while True:
            before = self._now()
            batch = next(batches, None)
            self._waits.append((before, self._now()))
            if batch is None:
                return
            yield batch

    def taken(self) -> float:
        """Seconds since the last call. Waits for the device."""
        waits, self._waits = self._waits, []
        if self._device.type != "cuda":
            return sum(after - before for before, after in waits)
        if waits:
            waits[-1][1].synchronize()
        return sum(before.elapsed_time(after) for before, after in waits) / 1000

    def _now(self) -> Any:
        if self._device.type != "cuda":
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self._device))
        return event
