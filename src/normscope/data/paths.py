"""Paths as users give them, with errors of one line."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from normscope._checks import invalid


def expanded(path: str) -> Path:
    """A path with `~` and `~user` written out.

    >>> expanded("data/own").name
    'own'
    """
    try:
        return Path(path).expanduser()
    except RuntimeError:  # there is no such user, or no home
        constraint = "a path below a known home folder"
        raise invalid(path, constraint, "an unknown one", "Write it out.") from None


def check_file(path: Path, constraint: str, advice: str) -> None:
    """Refuse what is not a regular file: opening a FIFO would wait for a writer.

    Args:
        path: what is about to be opened.
        constraint: what it must be.
        advice: what to do if it is not.
    """
    try:
        regular = stat.S_ISREG(os.stat(path).st_mode)
    except OSError as error:
        got = "nothing" if isinstance(error, FileNotFoundError) else error.strerror
        raise invalid(str(path), constraint, got, advice) from None
    if not regular:
        raise invalid(str(path), constraint, "no regular file", advice)


@contextmanager
def path_errors() -> Iterator[None]:
    """Context that turns the system's path errors into the library's one-line error.

    >>> with path_errors():
    ...     os.listdir("/nowhere")
    Traceback (most recent call last):
    ValueError: /nowhere must be a path that can be used, got 'No such file or directory'. Choose \
another, or change its permissions.
    """
    try:
        yield
    except OSError as error:
        name = "the data folder" if error.filename is None else os.fsdecode(error.filename)
        got = error.strerror or " ".join(str(error).split())
        advice = "Choose another, or change its permissions."
        raise invalid(name, "a path that can be used", got, advice) from None
