"""Files that are written whole or not at all."""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any


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


@contextmanager
def whole_files(*targets: Path) -> Iterator[list[Path]]:
    """Temporary paths of the same names; on leaving, what is there replaces the targets.

    If anything fails before, no target changes.

    >>> import tempfile
    >>> targets = [Path(tempfile.mkdtemp()) / name for name in ("scores.csv", "page.html")]
    >>> with whole_files(*targets) as partial:
    ...     for path in partial:
    ...         _ = path.write_text("done")
    >>> [target.read_text() for target in targets]
    ['done', 'done']
    """
    folders = [path.with_name(f".{path.name}.{os.getpid()}.partial") for path in targets]
    try:
        for folder in folders:
            folder.mkdir(exist_ok=True)
        partial = [folder / path.name for folder, path in zip(folders, targets, strict=True)]
        yield partial
        for path, target in zip(partial, targets, strict=True):
            os.replace(path, target)
            _sync_folder(target.parent)
    finally:
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)


def exclusive(path: Path) -> IO[str] | None:
    """A file that this process alone holds until it is closed; None if another process does.

    >>> import tempfile
    >>> lock = Path(tempfile.mkdtemp()) / ".lock"
    >>> with exclusive(lock):
    ...     print(exclusive(lock))
    None
    """
    file = path.open("w")
    try:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(file.fileno()), os.stat(path)):
            return file
    except ImportError:  # Windows, where nothing is locked
        return file
    except OSError:  # held, or removed by the one that held it
        pass
    file.close()
    return None


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
