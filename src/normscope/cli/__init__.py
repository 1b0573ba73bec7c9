"""The command line."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Annotated, Any

import typer

from normscope._environment import versions
from normscope.cli.console import errors, out, refuse, say, writable_folder
from normscope.cli.paper import paper
from normscope.cli.processes import first_process

# The commands and what `normscope --help` says of each, without importing any
COMMANDS = {
    "demo": "See a slow run fixed, and why: train, evaluate, simulate, report.",
    "advise": "Which learning rate to train with, by a short test over rising rates.",
    "train": "Train a network, watch its norms, keep everything.",
    "evaluate": "Evaluate a trained network: kNN, linear probe and norms, layer by layer.",
    "embed": "Embed new images with a trained network: raw embeddings and their norms.",
    "export": "Write a trained network for other programs: ONNX, timm, or a folder to share.",
    "score": "Score how new embeddings are to a reference, and how sure their answers.",
    "drift": "Test whether embeddings drift: norms, neighbours, directions and covariates.",
    "report": "One self-contained HTML page on a run, on several, or on results.",
    "reproduce": "Compute the paper's figures and tables, and judge its claims.",
    "data": "List, fetch and verify datasets.",
}
OF_PAPER = ("demo", "reproduce")

__all__ = [
    "COMMANDS",
    "OF_PAPER",
    "app",
    "errors",
    "out",
    "refuse",
    "run",
    "say",
    "writable_folder",
]


def app(words: Sequence[str] | None = None, **options: Any) -> Any:
    """Run these arguments, or those of the command line.

    Only the requested command's module is imported: torch alone takes a second.
    """
    words = list(sys.argv[1:] if words is None else words)
    line = typer.Typer(
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )
    line.callback(invoke_without_command=True)(main)
    first = next((word for word in words if not word.startswith("-")), "")
    if first in COMMANDS:
        _add(line, first)
    else:
        for name, about in COMMANDS.items():
            line.command(name, help=about)(_named)
    return line(words, **options)


def _add(line: typer.Typer, name: str) -> None:
    """Give the command line a command, from its module."""
    module = paper(f"cli.{name}") if name in OF_PAPER else import_module(f"{__name__}.{name}")
    if name == "data":
        line.add_typer(module.app, name=name)
    else:
        line.command()(getattr(module, name))


def _named() -> None:
    """Stands for a command where all are listed; no words reach it."""


def main(
    version: Annotated[bool, typer.Option("--version", help="show it and exit")] = False,
) -> None:
    """Train, correct and read cosine-similarity embeddings through their norms."""
    if version:
        typer.echo(f"normscope {versions()['normscope']}")
        raise typer.Exit


def _end(number: int, frame: object) -> None:  # noqa: ARG001
    """Exit through all clean-up code."""
    sys.exit(128 + number)


def run(program: Callable[[], Any] = app) -> None:
    """The console script: errors that a user can fix are one line, not a traceback."""
    status: int | str | None = 0
    signal.signal(signal.SIGTERM, _end)
    try:
        program()
    except (SystemExit, KeyboardInterrupt) as end:
        status = end.code if isinstance(end, SystemExit) else 130
        # typer makes a silent exit of Ctrl-C; a command that says more has its own
        cause = getattr(end.__context__, "__cause__", None)
        if first_process() and isinstance(cause or end, KeyboardInterrupt):
            errors.print("Stopped.")
    except (ValueError, OSError, MemoryError) as error:
        status = 2
        if first_process():
            line = str(error) or type(error).__name__
            say(errors, line)
    sys.exit(status)
