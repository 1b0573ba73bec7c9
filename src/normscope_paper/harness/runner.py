"""Runs one experiment: numbers, verdicts and figure, each stored whole or not at all."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import torch

from normscope import report
from normscope.extend import invalid, whole_file
from normscope_paper.harness.cells import train_cells
from normscope_paper.harness.claims import Claim
from normscope_paper.harness.registry import load
from normscope_paper.harness.results import Provenance, Results, Scale
from normscope_paper.harness.summary import HEADING, earlier_versions, results_markdown
from normscope_paper.harness.sweep import Sweep


def reproduce(
    name: str, *, scale: Scale, seed: int, seeds: int | None, folder: Path, sweep: Sweep
) -> tuple[Results, list[Claim]]:
    """Run an experiment and store its results and its figure.

    Args:
        name: the experiment's ID.
        scale: `"smoke"`, `"small"` or `"paper"`.
        seed: the first seed.
        seeds: how many; the experiment's own number for the scale unless given.
        folder: where `<name>.<scale>.json` and `figures/` go.
        sweep: which finds or trains the runs.
    """
    experiment, count = load(name), _count(name, scale, seeds)
    start = time.perf_counter()
    sweep.used.clear()
    results = numbers(name, scale, seed, count, sweep)
    command = f"normscope reproduce {name} --scale {scale} --seed {seed} --seeds {count}"
    results.provenance = Provenance.of(
        command,
        time.perf_counter() - start,
        gpu=experiment.KIND == "training" and torch.cuda.is_available(),
        runs=dict(sweep.used),
    )
    claims = experiment.check(results)  # before anything is stored: what can't be judged is broken
    refuse_to_replace([name], scale, seed, seeds, folder)  # of another process, meanwhile
    path = results.save(folder)
    draw(Results.load(path), folder)
    return results, claims


def numbers(name: str, scale: Scale, seed: int, seeds: int, sweep: Sweep) -> Results:
    """What an experiment computes: by its `run`, or from the runs of its `cells`."""
    experiment: Any = load(name)
    if hasattr(experiment, "cells"):
        given = {"kept": "kept", "key": "KEY", "from_evaluation": "from_evaluation"}
        own = {k: getattr(experiment, v) for k, v in given.items() if hasattr(experiment, v)}
        return train_cells(name, scale, seed, seeds, experiment.cells(scale), sweep, **own)
    trains = experiment.KIND == "training"
    return experiment.run(scale, seed, seeds, *([sweep] if trains else []))


def _count(name: str, scale: Scale, seeds: int | None) -> int:
    """How many seeds; always one where nothing is random."""
    usual = load(name).SEEDS[scale]
    return usual if seeds is None or usual == 1 else seeds


def refuse_to_replace(
    names: list[str], scale: Scale, seed: int, seeds: int | None, folder: Path
) -> None:
    """Refuse to overwrite results of more or other seeds, or a RESULTS.md of another origin.

    Raises:
        ValueError: if existing files would be lost.
    """
    for name in names:
        path, count = folder / f"{name}.{scale}.json", _count(name, scale, seeds)
        if not path.exists():
            continue
        stored = Results.load(path)
        advice = f"{path} has those. Or name another --out, or remove it."
        if stored.seeds > count:
            raise invalid("--seeds", f"at least {stored.seeds}", count, advice)
        if not seed <= stored.seed <= stored.seed + stored.seeds <= seed + count:
            begins = f"{stored.seed}, with as many --seeds or more"
            raise invalid("--seed", begins, seed, advice)
    earlier_versions(folder)  # RESULTS.md needs it
    summary = folder / "RESULTS.md"
    if summary.is_file() and not summary.read_bytes().startswith(HEADING.encode()):
        advice = "Name another --out, or move it."
        raise invalid(str(summary), "one that `reproduce` wrote", "another", advice)


def write_summary(folder: Path) -> None:
    """Write RESULTS.md for all results that a folder holds."""
    with whole_file(folder / "RESULTS.md") as partial:
        partial.write_text(results_markdown(folder), encoding="utf-8")


def draw(results: Results, folder: Path) -> list[Path]:
    """Draw the figure of stored results, as PDF and PNG."""
    with report.style():
        figure = load(results.experiment).plot(results)
    return report.save(figure, folder / "figures" / f"{results.experiment}.{results.scale}")
