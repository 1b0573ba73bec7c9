"""The command line."""

from __future__ import annotations

from collections.abc import Callable

import typer

from normscope.cli.console import errors
from normscope.cli.data import app as data
from normscope.cli.demo import demo
from normscope.cli.evaluate import evaluate
from normscope.cli.processes import first_process, leave
from normscope.cli.report import report
from normscope.cli.reproduce import reproduce
from normscope.cli.score import score
from normscope.cli.train import train

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
for command in (demo, train, evaluate, score, report, reproduce):
    app.command()(command)
app.add_typer(data, name="data")


@app.callback()
def main() -> None:
    """Train, correct and read cosine-similarity embeddings through their norms."""


def run(program: Callable[[], None] = app) -> None:
    """The console script: errors that a user can mend are one line, not a traceback."""
    status: int | str | None = 0
    try:
        program()
    except SystemExit as end:
        status = end.code
    except (ValueError, OSError, MemoryError) as error:
        status = 2
        if first_process():
            line = str(error) or type(error).__name__
            errors.print(line, markup=False, highlight=False, soft_wrap=True)
    leave(status)
