"""The console script's first lines, which import nothing that takes time."""

from __future__ import annotations

import signal
import sys


def run() -> None:
    """Run the command line; Ctrl-C during its imports is one line too.

    An extension that is interrupted while it loads may raise any error in Ctrl-C's place.
    """
    stopped = False

    def note(number: int, frame: object) -> None:  # noqa: ARG001
        nonlocal stopped
        stopped = True
        raise KeyboardInterrupt

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, note)
    try:
        from normscope.cli import run as run_line
        from normscope.cli.processes import leave

        try:
            run_line()
        except SystemExit as end:
            leave(end.code)
    except (Exception, KeyboardInterrupt):
        if not stopped:
            raise
        print("Stopped.", file=sys.stderr)
        sys.exit(130)
