"""Files that are written whole or not at all."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A temporary path to write to; on leaving, that file replaces `path` in one step.

    It reaches the disk before it gets its name, so a crash leaves the old file or the new one. If
    writing fails, the old one stays.

    >>> import tempfile
    >>> target = Path(tempfile.mkdtemp()) / "note.txt"
    >>> with whole_file(target) as partial:
    ...     _ = partial.write_text("done")
    >>> target.read_text()
    'done'
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        yield partial
        with partial.open("rb") as f:
            os.fsync(f.fileno())
        os.replace(partial, path)
        _sync_folder(path.parent)
    finally:
        partial.unlink(missing_ok=True)


def without_nan(value: Any) -> Any:
    """Nested values for JSON, which has no NaN and no infinity: these become None.

    >>> without_nan({"a": [1.0, float("nan")]})
    {'a': [1.0, None]}
    """
    if isinstance(value, Mapping):
        return {k: without_nan(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_nan(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _sync_folder(folder: Path) -> None:
    """Let the new name reach the disk too, where folders can be opened."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
