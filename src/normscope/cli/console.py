"""What every command shares: where it prints, and how it refuses."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryFile
from typing import NoReturn

import typer
from rich.console import Console

out, errors = Console(), Console(stderr=True)


def say(console: Console, text: str) -> None:
    """One line, as it is, however long; what would steer the terminal is spelled out."""
    console.print(visible(text), markup=False, highlight=False, soft_wrap=True)


def visible(text: str) -> str:
    r"""The text with its control characters, as in the name of a file, as escapes.

    >>> print(visible("a\nb\x1b[31m.npy"))
    a\nb\x1b[31m.npy
    """
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def refuse(line: str) -> NoReturn:
    """One line on standard error, and exit status 2."""
    say(errors, line)
    raise typer.Exit(2)


def writable_folder(folder: Path, option: str = "--out") -> None:
    """Make an option's folder; refuse one that can't be written to, before any work is done."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        refuse(f"{option} must be writable, got {str(folder)!r}: {error.strerror}.")


def check_page(path: Path, *, force: bool) -> None:
    """Refuse to replace what is not a page of ours, unless forced."""
    from normscope.report.html import is_page  # slow to import

    if path.is_dir() or not (force or is_page(path)):
        refuse(f"--html must make a new file, got {str(path)!r}. --force replaces it.")
