"""normscope drift."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from normscope._files import whole_files
from normscope.cli.console import check_page, errors, out, refuse, say, visible
from normscope.scoring import (
    LEFT_OUT,
    TEST,
    WINDOWS,
    Drift,
    as_json,
    change_in,
    open_embeddings,
    read_files,
)
from normscope.scoring import drift as compared
from normscope.scoring import drift_by as compared_by


def drift(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="OLD NEW...",
            help="embeddings, each a window: a file, a folder of shards, a pattern, a URL, a run",
            show_default=False,
        ),
    ],
    by: Annotated[
        str | None,
        typer.Option(
            help="column of times or numbers that cuts one source into windows [default: each "
            "source is a window]"
        ),
    ] = None,
    windows: Annotated[
        int | None, typer.Option(help=f"how many windows --by makes [default: {WINDOWS}]")
    ] = None,
    covariate: Annotated[
        list[str] | None,
        typer.Option(help="column of numbers or times that is tested too; may be repeated"),
    ] = None,
    column: Annotated[
        str | None,
        typer.Option(
            help="column of the embeddings [default: embedding, embeddings, e0 e1 e2 and so on, or "
            "the only one that fits]"
        ),
    ] = None,
    target: Annotated[
        Path | None, typer.Option("--out", help="also write all numbers to this .json")
    ] = None,
    page: Annotated[
        Path | None, typer.Option("--html", help="also write a page with plots to this .html")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="replace files that are there [default: refuse to]")
    ] = False,
) -> None:
    """Test whether embeddings drift: norms, neighbours, directions and covariates.

    \b
    normscope drift january.npy february.npy
    normscope drift train.parquet monday.parquet tuesday.parquet --covariate length
    normscope drift log.parquet --by time --windows 12 --out drift.json --html drift.html
    normscope drift s3://bucket/old/ s3://bucket/new/

    Reads what `normscope score` reads, and prints what drifts. The first window is the reference;
    it needs 40 rows, others 20. At most 10,000 rows of each window are drawn, by a seed, so memory
    does not grow with the files.

    \b
    norm        of the embedding
    neighbours  the mean cosine with the five nearest rows of the first window
    direction   where a row lies on the line between the windows' mean directions

    Each quantity of each later window is compared with the first by a two-sample
    Kolmogorov-Smirnov test. P-values are corrected by Holm over all tests, so that without drift
    the chance of any false alarm is 5 % at most, if rows are drawn independently. A distance
    below .1 is called slight, from .3 on strong.
    """
    _check(files, by, windows, target, page, force=force)
    covariates = [*(covariate or []), *([by] if by else [])]
    sources = [
        open_embeddings(file, split="test", column=column, covariates=covariates) for file in files
    ]
    shown = (TextColumn("rows"), BarColumn(), MofNCompleteColumn())
    bar = Progress(*shown, console=errors, disable=not errors.is_terminal)
    places = [path for path in (target, page) if path is not None]
    try:
        with whole_files(*places) as partial:
            at = dict(zip(places, partial, strict=True))
            with bar:
                task = bar.add_task("rows", total=None)

                def progress(done: int, total: int) -> None:
                    bar.update(task, completed=done, total=total)

                if by is None:
                    found = compared(
                        dict(zip(_names(files), sources, strict=True)), progress=progress
                    )
                else:
                    many = WINDOWS if windows is None else windows
                    found = compared_by(sources[0], by, windows=many, progress=progress)
            if target is not None:
                at[target].write_text(json.dumps(as_json(found), indent=2) + "\n")
            if page is not None:
                from normscope.report.drift_page import drift_page  # slow to import

                drift_page(found).save(at[page])
    except OSError as error:  # from writing: the readers report their own
        name = str(places[0]) if places else ""
        refuse(f"--out must be writable, got {name!r}: {error.strerror or error}.")
    _print_found(found)
    if page is not None:
        say(out, f"Open {page.resolve().as_uri()}")


def _print_found(found: Drift) -> None:
    first, *others = found.windows
    say(out, found.verdict)
    for window in others:
        for quantity in window.quantities.values():
            mark = "drift" if quantity.drifts else "no drift"
            said = change_in(first, quantity)
            say(out, f"{window.name}, {window.rows:,} rows, {quantity.name}: {said}: {mark}")
    for window in found.windows:
        for status, n in window.left_out.items():
            rows = "row" if n == 1 else "rows"
            say(errors, f"{window.name}: {n:,} {rows} left out: {LEFT_OUT[status]}")
    for line in found.notes:
        say(errors, line)
    say(out, TEST)


def _names(files: list[str]) -> list[str]:
    """Short names, if these differ."""
    short = [visible(Path(file).name or file) for file in files]
    return short if len(set(short)) == len(short) else [visible(file) for file in files]


def _check(
    files: list[str],
    by: str | None,
    windows: int | None,
    target: Path | None,
    page: Path | None,
    *,
    force: bool,
) -> None:
    """Refuse what makes no sense or can't be written, before any work."""
    if by is None and len(files) < 2:
        refuse("OLD NEW must be two sources or more, got one. --by cuts one by a column of times.")
    if by is not None and len(files) > 1:
        refuse(f"--by must be given with one source, got {len(files)}.")
    if by is None and windows is not None:
        refuse("--windows must be given with --by, got none.")
    there = [(file, *read_files(file, split="test")) for file in files]
    inputs = [path.resolve() for _, *paths in there for path in paths]
    sources = {tuple(path.resolve() for path in paths) or file for file, *paths in there}
    if len(sources) < len(files):
        refuse("OLD NEW must be different sources, got one twice.")
    for option, path, suffix in (("--out", target, ".json"), ("--html", page, ".html")):
        if path is None:
            continue
        if path.suffix != suffix or not path.parent.is_dir() or path.is_dir():
            refuse(f"{option} must be a {suffix} in a folder that exists, got {str(path)!r}.")
        if path.resolve() in inputs:
            refuse(f"{option} must be another file than those read, got {str(path)!r}.")
    if target is not None and target.exists() and not force:
        refuse(f"--out must be a new file, got {str(target)!r}. --force replaces it.")
    if page is not None and page.exists():
        check_page(page, force=force)
