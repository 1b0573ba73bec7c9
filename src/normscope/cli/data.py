"""normscope data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.table import Table

from normscope import data
from normscope.cli.console import errors, out, say

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
Root = Annotated[Path | None, typer.Option(help="where datasets are; default $NORMSCOPE_DATA")]


@app.callback()
def main() -> None:
    """List, fetch and verify datasets."""


@app.command("list")
def list_(root: Root = None) -> None:
    """List datasets, whether they are here, and their licences."""
    folder = root or data.default_root()
    table = Table(title=f"Datasets (in {folder})")
    for heading in ("name", "what", "here", "licence"):
        table.add_column(heading, overflow="fold", no_wrap=heading == "name")
    for name, dataset in {**data.DATASETS, **data.HUMAN_LABELS}.items():
        here = "yes" if not dataset.place or (folder / dataset.place).exists() else "no"
        table.add_row(*map(escape, (name, dataset.title, here, dataset.licence)))
    table.add_row("folder:PATH", "PATH/train/CLASS/*, PATH/test/CLASS/*", "", "")
    table.add_row("npz:PATH", "train_images, train_labels, test_images, test_labels", "", "")
    out.print(table)


@app.command()
def fetch(
    name: str,
    archive: Annotated[Path | None, typer.Option("--from", help="a local copy")] = None,
    root: Root = None,
) -> None:
    """Download a dataset from its publisher, verify it, unpack it.

    \b
    normscope data fetch cifar10
    normscope data fetch cifar100 --from ~/Downloads/cifar-100-python.tar.gz

    An interrupted download resumes. Nothing half-written is left behind.
    """
    columns = (TextColumn(escape(name)), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    try:
        bar = Progress(
            *columns, TimeRemainingColumn(), console=errors, disable=not errors.is_terminal
        )
        with bar as progress:
            task = progress.add_task(name, total=None)
            lines = data.fetch(
                name,
                root or data.default_root(),
                archive=archive,
                progress=lambda done, total: progress.update(
                    task, completed=done, total=total or None
                ),
            )
    except KeyboardInterrupt:
        errors.print("Stopped. The download so far is kept; the same command resumes it.")
        raise typer.Exit(130) from None
    _print(lines)


@app.command()
def check(name: str, root: Root = None) -> None:
    """Read a dataset, and verify its counts, labels and checksum."""
    _print(data.check(name, root or data.default_root()))


def _print(lines: list[str]) -> None:
    for line in lines:
        say(out, line)
