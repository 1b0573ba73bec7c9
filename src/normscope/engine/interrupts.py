"""Ctrl-C and SIGTERM as a request to stop at the next safe point."""

from __future__ import annotations

import math
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from types import FrameType, TracebackType

_GAP = 0.5  # seconds between two requests


class Stopped(KeyboardInterrupt):
    """Training was asked to stop, and has saved its state."""

    def __init__(self, message: str, signal_number: int) -> None:
        super().__init__(message)
        self.signal_number = signal_number


class Interrupts:
    """Context in which the first SIGINT or SIGTERM is recorded; a second one stops at once.

    One that comes within half a second counts as the first: `timeout` sends each signal twice.
    Python runs a handler only between two of its own operations, and a convolution on a CPU may
    take seconds. A thread that the system wakes answers at once, and counts: of two signals during
    one operation Python reports one.

    Args:
        answer: is called once, in that thread, when the first signal arrives.
    """

    def __init__(self, answer: Callable[[], object] | None = None) -> None:
        self.received: int | None = None
        self._heard = self._noted = math.inf  # when the first one was, by the thread and by Python
        self._again = False
        self._answer = answer
        self._before: dict[int, object] = {}
        self._close: Callable[[], object] = lambda: None

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():  # elsewhere Python forbids it
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._note)
            if self._answer is not None and os.name == "posix":
                self._close = _listening(self._hear)
        return self

    def _hear(self) -> None:
        if math.isinf(self._heard) and self._answer is not None:
            self._heard = time.monotonic()
            self._answer()
        elif time.monotonic() > self._heard + _GAP:
            self._again = True

    def _note(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        if self._again or time.monotonic() > self._noted + _GAP:
            raise KeyboardInterrupt
        self._noted = min(self._noted, time.monotonic())
        self.received = number

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._close()
        for number, handler in self._before.items():
            signal.signal(number, handler)  # pyright: ignore[reportArgumentType]


def _listening(hear: Callable[[], object]) -> Callable[[], object]:
    """Start a thread that calls `hear` at each signal; return what ends it."""
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)  # the system writes each signal's number to it
    before = signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)

    def wait() -> None:
        while number := ours.recv(1):
            if number[0] in (signal.SIGINT, signal.SIGTERM):
                hear()

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()

    def close() -> None:
        signal.set_wakeup_fd(before)
        theirs.close()  # which ends the wait
        thread.join()
        ours.close()

    return close
