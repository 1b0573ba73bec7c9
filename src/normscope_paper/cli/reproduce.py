"""normscope reproduce."""

from __future__ import annotations

import math
import re
import signal
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, cast

import typer
from rich.markup import escape
from rich.padding import Padding
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from normscope.cli import errors, out, refuse, writable_folder
from normscope_paper.harness.claims import NOT_IN_PAPER, Claim, tally
from normscope_paper.harness.ledger import Ledger
from normscope_paper.harness.planning import plan
from normscope_paper.harness.registry import EXPERIMENTS, file_of, load
from normscope_paper.harness.results import SCALES, Results, Scale
from normscope_paper.harness.runner import refuse_to_replace, write_summary
from normscope_paper.harness.runner import reproduce as run_experiment
from normscope_paper.harness.summary import claims_of, stored_results
from normscope_paper.harness.sweep import OutOfTime, Sweep

_RESULTS = Path("results")
_MOST_SEEDS = 10_000  # more than any interval needs
COLORS = {"reproduced": "green", "not reproduced": "red", "inconclusive": "yellow"}


@dataclass(frozen=True)
class Request:
    """What is to be reproduced, and where it goes."""

    names: list[str]
    scale: Scale
    seed: int
    seeds: int | None
    folder: Path


def reproduce(
    ids: Annotated[list[str], typer.Argument(metavar="list|plan|all|ID...", show_default=False)],
    scale: Annotated[str, typer.Option(help="smoke, small or paper")] = "small",
    seed: Annotated[int, typer.Option(help="the first seed")] = 0,
    seeds: Annotated[int | None, typer.Option(help="how many seeds", show_default=False)] = None,
    kind: Annotated[
        str | None, typer.Option(help="simulation, training", show_default=False)
    ] = None,
    minutes: Annotated[
        float | None, typer.Option(help="stop after so long; rerun to continue", show_default=False)
    ] = None,
    folder: Annotated[Path, typer.Option("--out", help="where results go")] = _RESULTS,
    runs: Annotated[
        Path | None,
        typer.Option(help="a file of finished runs to take from and add to", show_default=False),
    ] = None,
) -> None:
    """Compute the paper's figures and tables, and judge its claims.

    \b
    normscope reproduce list                                  what there is, its cost, its verdicts
    normscope reproduce convergence_sim                       one of them
    normscope reproduce all --kind simulation --scale paper   everything without image training
    normscope reproduce accuracies wd_cut --minutes 9         as much as fits; rerun to continue
    normscope reproduce accuracies --runs results/runs.jsonl  train only what others have not
    normscope reproduce plan --minutes 30 --runs results/runs.jsonl   what to train next

    Writes a JSON file each, figures as PDF and PNG, and RESULTS.md. Exit status 0 when every
    claim could be judged, with any verdict; 1 when an experiment broke; 2 on bad arguments; 3
    when --minutes were over before all was done.
    Ctrl-C keeps what is finished. Runs are kept below $NORMSCOPE_RUNS (default runs/), shared
    between experiments, and resumed. The same command in a second process trains what the first
    has not begun.
    """
    if folder.exists() and not folder.is_dir():
        refuse(f"--out must be a folder, got {str(folder)!r}.")
    _check_numbers(scale, seed, seeds, minutes)
    stored = stored_results(folder)  # a foreign file there is refused before anything is run
    names = _names(["all"] if ids in (["list"], ["plan"]) else ids, kind)
    if ids == ["list"]:
        return _list(stored, names)
    if ids == ["plan"]:
        return _plan(folder, runs, cast(Scale, scale), minutes)
    simple = all(load(name).SEEDS[cast(Scale, scale)] == 1 for name in names)
    if seeds is not None and seeds < 2 and not (seeds == 1 and simple):
        refuse(f"--seeds must be at least 2, got {seeds}. One seed has no confidence interval.")
    writable_folder(folder)
    request = Request(names, cast(Scale, scale), seed, seeds, folder)
    refuse_to_replace(names, request.scale, seed, seeds, folder)
    sweep = Sweep(ledger=_ledger(runs), minutes=math.inf if minutes is None else minutes)
    raise typer.Exit(_reproduce(request, sweep))


def _check_numbers(scale: str, seed: int, seeds: int | None, minutes: float | None) -> None:
    if scale not in SCALES:
        refuse(f"--scale must be one of {', '.join(SCALES)}, got {scale!r}.")
    if not 0 <= seed < 2**31:
        refuse(f"--seed must be from 0 to {2**31 - 1}, got {seed}.")
    if seeds is not None and seeds > _MOST_SEEDS:
        refuse(f"--seeds must be at most {_MOST_SEEDS}, got {seeds}.")
    if minutes is not None and not 0 < minutes < 60 * 24 * 365:
        refuse(f"--minutes must be more than 0 and less than a year, got {minutes:g}.")


def _names(ids: list[str], kind: str | None) -> list[str]:
    """The experiments asked for, each once."""
    if kind not in (None, "simulation", "training"):
        refuse(f"--kind must be simulation or training, got {kind!r}.")
    names = list(EXPERIMENTS) if ids == ["all"] else list(dict.fromkeys(ids))
    unknown = [name for name in names if name not in EXPERIMENTS]
    if unknown:
        known = ", ".join(EXPERIMENTS)
        near = _meant(unknown[0])
        advice = f"Did you mean {near}?" if near else "See `normscope reproduce list`."
        wanted = f"among {known}, or all, list or plan alone"
        refuse(f"ID must be {wanted}, got {unknown[0]!r}. {advice}")
    names = [name for name in names if kind in (None, load(name).KIND)]
    if not names:
        refuse(f"--kind must be that of some experiment asked for, got {kind!r}.")
    return names


def _meant(text: str) -> str | None:
    """The ID that is spelt nearly so, or whose figure or table is named: figure3, table-2."""
    place = re.fullmatch(r"(fig|tab)\w*?[ _-]?(\d+)", text.lower())
    for name in EXPERIMENTS:
        kind, *numbers = re.findall(r"[a-z]+|\d+", load(name).PLACE.lower())
        if place is not None and kind.startswith(place[1]) and place[2] in numbers:
            return name
    return next(iter(get_close_matches(text, EXPERIMENTS, n=1)), None)


def _ledger(runs: Path | None) -> Ledger | None:
    if runs is None:
        return None
    if runs.suffix != ".jsonl" or (runs.exists() and not runs.is_file()):
        refuse(f"--runs must be a file named *.jsonl, got {str(runs)!r}.")
    if not runs.exists():
        line = f"{runs} does not exist yet: its runs are trained here."
        errors.print(line, markup=False, highlight=False)
    ledger = Ledger(runs)
    writable_folder(ledger.path.parent, "--runs")
    return ledger


def _reproduce(request: Request, sweep: Sweep) -> int:
    """Run them one after another; the exit status."""
    done: list[tuple[str, list[Claim]]] = []
    broken: list[str] = []
    unsummed, late = None, False
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    try:
        with Progress(*columns, TimeElapsedColumn(), console=errors) as progress:
            task = progress.add_task("", total=len(request.names))
            for name in request.names:
                progress.update(task, description=name)
                if sweep.time_is_up():
                    raise OutOfTime
                if load(name).KIND == "training":
                    progress.stop()  # each run has a bar of its own
                try:
                    _, claims = run_experiment(
                        name,
                        scale=request.scale,
                        seed=request.seed,
                        seeds=request.seeds,
                        folder=request.folder,
                        sweep=sweep,
                    )
                    done.append((name, claims))
                    unsummed = _summed(request.folder)
                except Exception as error:
                    broken.append(f"{name}: {type(error).__name__}: {error}")
                progress.start()
                progress.advance(task)
    except KeyboardInterrupt as stop:
        late = sweep.time_is_up()
        _say_stopped(request, done, why="The time is up" if late else "Stopped")
        if not late:
            return 128 + getattr(stop, "signal_number", signal.SIGINT)
    else:
        _print_claims(done)
    broken += [] if unsummed is None else [f"RESULTS.md: {unsummed}"]
    for line in broken:
        errors.print(f"broke: {line}", style="red", markup=False, soft_wrap=True)
    if done:
        kept = "Results and figures" if unsummed else "Results, figures and RESULTS.md"
        out.print(f"{kept} are in {request.folder}.", markup=False)
    return 1 if broken else 3 if late else 0


def _say_stopped(request: Request, done: list[tuple[str, list[Claim]]], *, why: str) -> None:
    kept = f"{len(done)} of {len(request.names)} are finished and kept in {request.folder}"
    errors.print(f"{why}. {kept}; a run that was begun is saved, and the same command resumes it.")
    _print_claims(done)


def _summed(folder: Path) -> str | None:
    """Write RESULTS.md; why that failed, if another result there can't be read."""
    try:
        write_summary(folder)
    except (ValueError, OSError) as error:
        return str(error)
    return None


def _print_claims(done: list[tuple[str, list[Claim]]]) -> None:
    """Each with its verdict first, as wide as the terminal is."""
    for name, claims in done:
        out.print(f"[bold]{name}[/]")
        for claim in claims:
            number = f"{claim.sentence}: {claim.value_text}"
            printed = claim.paper if claim.paper == NOT_IN_PAPER else f"paper: {claim.paper}"
            about = f"{claim.recipe}; {printed}; true if {claim.region_text}"
            verdict = f"[{COLORS[claim.verdict]}]{claim.verdict}[/]"
            line = f"{verdict}: {escape(number)} [dim]({escape(about)})[/]"
            out.print(Padding(line, (0, 0, 0, 2)), highlight=False)


def _list(found: list[Results], names: list[str]) -> None:
    """Every experiment with its cost and the verdicts of the largest scale that is stored."""
    stored = {results.experiment: results for results in found}
    if not found:
        errors.print("No stored results here: --out names their folder, such as results.")
    for name in names:
        experiment = load(name)
        verdicts = "not run yet"
        if results := stored.get(name):
            verdicts = f"{_verdicts(results)} ({results.scale}, {_took(results)})"
        title = f"{experiment.TITLE} ({experiment.PLACE})"
        out.print(f"[bold]{name}[/]: {escape(title)}", highlight=False)
        about = f"{experiment.KIND}; {experiment.COST} at paper scale; {verdicts}"
        out.print(Padding(escape(about), (0, 0, 0, 4)), highlight=False)
        out.print(Padding(f"src/{file_of(name)}", (0, 0, 0, 4)), highlight=False, style="dim")


def _plan(folder: Path, runs: Path | None, scale: Scale, minutes: float | None) -> None:
    """What to train next, and what it would decide."""
    limit = math.inf if minutes is None else minutes
    steps = plan(folder, _ledger(runs), scale=scale, minutes=limit)
    for step in steps:
        long = "of unknown length" if step.seconds is None else f"some {_minutes(step.seconds)}"
        seeds = f"{step.before} to {step.seeds} seeds" if step.before else "not trained yet"
        least = "" if hasattr(load(step.experiment), "cells") or step.before else "at least "
        title = f"[bold]{step.experiment}[/]: {seeds}, {least}{step.runs} runs, {long}"
        out.print(title, highlight=False)
        lines = [f"may decide {len(step.decides)} of {step.undecided} open claims:"]
        lines += [f"- {sentence}" for sentence in step.decides]
        if not step.before:
            lines = [f"tests {step.undecided} claims that so far have only smaller-scale results"]
        out.print(Padding(escape("\n".join(lines)), (0, 0, 0, 4)), highlight=False)
        option = "" if runs is None else f" --runs {runs}"
        option += "" if folder == _RESULTS else f" --out {folder}"
        out.print(f"    {escape(step.command + option)}", style="dim", soft_wrap=True)
    if not steps:
        within = "" if minutes is None else f" within {minutes:g} minutes"
        out.print(f"More seeds would decide no open claim at {scale} scale{within}.")


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} minutes"


def _took(results: Results) -> str:
    """How long its runs were trained, and on what; of a simulation, how long it ran."""
    made = results.made
    seconds = made.trained_seconds or made.seconds
    long = f"{max(1, round(seconds))} s" if seconds < 120 else f"{seconds / 60:.0f} min"
    where = {made.hardware, *(run.hardware for run in made.runs.values())}
    gpus = [place.split(",")[0] for place in where if place.startswith("NVIDIA")]
    return f"{long} on {gpus[0]}" if gpus else long


def _verdicts(results: Results) -> str:
    """How many there are of each kind."""
    try:
        counts = tally(claims_of(results))
    except ValueError:
        return "stored by another version: run it again"
    return ", ".join(f"{n} {verdict}" for verdict, n in counts.items() if n)
