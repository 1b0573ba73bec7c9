"""A run's own log, beside those of `monitors.loggers`."""

from __future__ import annotations

import json
import os
from pathlib import Path

from normscope._files import without_nan
from normscope.monitors.loggers import Record


class Jsonl:
    """One JSON object a line. NaN and infinity are written as null."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a")

    def log(self, record: Record) -> None:
        """Append a line."""
        self._file.write(json.dumps(without_nan(record), allow_nan=False) + "\n")
        self._file.flush()

    def size(self) -> int:
        """How many bytes are safely on disk."""
        os.fsync(self._file.fileno())
        return self._file.tell()

    def close(self) -> None:
        """Close the file."""
        self._file.close()
