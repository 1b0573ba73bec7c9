"""What is said while working: warnings, what a long search will cost, and how far it is."""

from __future__ import annotations

import sys
import time
import warnings

from normscope.evaluation.bank import Bank, Progress

_LONG = 10.0  # seconds
_OFTEN = 1.0


def search_progress(n: int, bank: Bank) -> Progress | None:
    """A callback that shows how many of n queries are done, if that will take long."""
    seconds = bank.seconds(n)
    if seconds < _LONG:
        return None
    print(
        f"normscope: neighbours of {n:,} rows among {len(bank):,}: about {seconds:,.0f} s",
        file=sys.stderr,
        flush=True,
    )
    return _Shown() if sys.stderr.isatty() else None


def warn(line: str) -> None:
    """A UserWarning at the caller's line: the first outside normscope, and torch's decorators."""
    level, frame = 1, sys._getframe()
    while frame.f_back and frame.f_globals["__name__"].split(".")[0] in ("normscope", "torch"):
        level, frame = level + 1, frame.f_back
    warnings.warn(line, UserWarning, stacklevel=level)


class _Shown:
    """Rewrites one line of the terminal, once a second at most."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if done == total or now - self._last > _OFTEN:
            self._last = now
            end = "\n" if done == total else ""
            print(f"\r{done:,} of {total:,}", end=end, file=sys.stderr, flush=True)
