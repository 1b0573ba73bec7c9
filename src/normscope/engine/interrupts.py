"""Ctrl-C and SIGTERM as a request to stop at the next safe point."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType


class Stopped(KeyboardInterrupt):
    """Training was asked to stop, and has saved its state."""

    def __init__(self, message: str, signal_number: int) -> None:
        super().__init__(message)
        self.signal_number = signal_number


class Interrupts:
    """Context in which the first SIGINT or SIGTERM is recorded; a second one stops at once."""

    def __init__(self) -> None:
        self.received: int | None = None
        self._before: dict[int, object] = {}

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():  # elsewhere Python forbids it
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._note)
        return self

    def _note(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        if self.received is not None:
            raise KeyboardInterrupt
        self.received = number

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # pyright: ignore[reportArgumentType]
