"""normscope report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from normscope.cli.console import errors, out, refuse, say, writable_folder
from normscope.cli.paper import paper
from normscope.engine import RunFolder
from normscope.report import Page, is_page, run_page, runs_page


def report(
    places: Annotated[
        list[Path],
        typer.Argument(metavar="RUN...|RESULTS...", help="folders or files", show_default=False),
    ],
    target: Annotated[
        Path | None, typer.Option("--out", help="default: report.html in the folder")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="replace what is there")] = False,
) -> None:
    """One self-contained HTML page on a run, on several, or on results.

    \b
    normscope report runs/simclr-digits-0123456789     what it learnt, and what its norms say
    normscope report runs/*                            several runs beside each other
    normscope report results                           claims, verdicts and figures
    normscope report results/density.paper.json --out density.html

    The page needs no network and no other file. It includes what `normscope evaluate RUN` found,
    if that was run. A page from this command is replaced by a newer one; replacing any other file
    needs --force.
    """
    places = list({place.resolve(): place for place in places}.values())  # each once
    kinds = {place: _kind(place) for place in places}
    for place, kind in kinds.items():
        if kind is None:
            wanted = "a run's folder, a results folder or a result's JSON file"
            refuse(f"RUN must be {wanted}, got {str(place)!r}.")
    if len(set(kinds.values()) - {"file", "results"}) and set(kinds.values()) != {"run"}:
        refuse("RUN and RESULTS must be on separate pages, got both. Run the command for each.")
    target = target or _default_out(places, kinds[places[0]])
    _check_out(target, force=force)
    with errors.status("drawing"):
        page = _page(places, runs=kinds[places[0]] == "run")
    writable_folder(target.parent)
    page.save(target)
    say(out, f"Open {target.resolve().as_uri()}")


def _kind(place: Path) -> str | None:
    """The kind of a place: a "run", a folder of "results", or a result's "file"."""
    if place.is_file():
        return "file" if place.suffix == ".json" else None
    if (place / "spec.json").is_file():
        return "run"
    return "results" if paper("harness").stored_paths(place) else None


def _page(places: list[Path], *, runs: bool) -> Page:
    if runs and len(places) > 1:
        finished = [place for place in places if RunFolder(place).result_file.exists()]
        for place in set(places) - set(finished):
            say(errors, f"left out, not finished: {place}")
        places = finished or places
    if runs:
        return run_page(places[0]) if len(places) == 1 else runs_page(places)
    return paper("harness").results_page(places)


def _default_out(places: list[Path], kind: str | None) -> Path:
    """In the one folder, or in the common folder of all runs or files."""
    if len(places) == 1 and kind != "file":
        return places[0] / "report.html"
    folders = {place.resolve().parent for place in places}
    if len(folders) > 1:
        refuse("--out must be given where the places have no folder in common, got none.")
    return places[0].parent / "report.html"


def _check_out(target: Path, *, force: bool) -> None:
    if target.suffix != ".html" or target.is_dir():
        refuse(f"--out must be a file ending in .html, got {str(target)!r}.")
    if target.exists() and not force and not is_page(target):
        wanted = "a new file, or a page made before"
        refuse(f"--out must be {wanted}, got {str(target)!r}. --force replaces it.")
