"""The console script's first lines, which import nothing that takes time."""

from __future__ import annotations

import sys


def run() -> None:
    """Run the command line; Ctrl-C during its imports is one line too."""
    try:
        from normscope.cli import run as run_line
    except KeyboardInterrupt:
        print("Stopped.", file=sys.stderr)
        sys.exit(130)
    run_line()
