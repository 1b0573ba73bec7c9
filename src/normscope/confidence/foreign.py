"""Files that another program wrote, or that are damaged, are refused in one line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from normscope._checks import invalid


class _OtherError(Exception):
    """A file that is whole, and of another kind or version."""


@contextmanager
def only_of(owner: str, path: Path | str, *, version: int) -> Iterator[None]:
    """Turns every error on reading a file, of any kind, into one: that `owner` did not write it.

    >>> with only_of("Trust", "there.npz", version=1):
    ...     check_kind("other", "1", kind="trust", version=1)
    Traceback (most recent call last):
    ValueError: there.npz must be a file that Trust.save wrote, version 1, got 'another kind'. \
Fit and save it again.
    """
    try:
        yield
    except Exception as error:
        got = "another, or damaged"
        if isinstance(error, FileNotFoundError):
            got = "nothing there"
        elif isinstance(error, _OtherError):
            got = str(error)
        constraint = f"a file that {owner}.save wrote, version {version}"
        raise invalid(str(path), constraint, got, "Fit and save it again.") from None


def check_kind(found_kind: object, found_version: object, *, kind: str, version: int) -> None:
    """Refuse what a file says it is, if that is something else."""
    if str(found_kind) != kind:
        raise _OtherError("another kind")
    if int(str(found_version)) != version:
        raise _OtherError(f"version {found_version}")
