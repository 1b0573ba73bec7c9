"""Runs one experiment: numbers, verdicts and figure, each stored whole or not at all."""

from __future__ import annotations

import time
from pathlib import Path

import torch

from normscope._files import whole_file
from normscope.experiments.ledger import Ledger
from normscope.experiments.registry import load
from normscope.experiments.results import Claim, Results, Scale, provenance
from normscope.experiments.runs import noted
from normscope.experiments.summary import results_markdown
from normscope.report import figures


def reproduce(
    name: str,
    *,
    scale: Scale,
    seed: int,
    seeds: int | None,
    folder: Path,
    ledger: Ledger | None = None,
) -> tuple[Results, list[Claim]]:
    """Run an experiment and store its results and its figure.

    Args:
        name: the experiment's ID.
        scale: `"smoke"`, `"small"` or `"paper"`.
        seed: the first seed.
        seeds: how many; the experiment's own number for the scale unless given.
        folder: where `<name>.<scale>.json` and `figures/` go.
        ledger: runs that need not be trained; those that are trained are added.
    """
    experiment = load(name)
    # where nothing is random there is one seed, whatever is asked for
    count = experiment.SEEDS[scale] if seeds is None or experiment.SEEDS[scale] == 1 else seeds
    start = time.perf_counter()
    with noted(ledger) as runs:
        results = experiment.run(scale, seed, count)
    command = f"normscope reproduce {name} --scale {scale} --seed {seed} --seeds {count}"
    gpu = experiment.KIND == "training" and torch.cuda.is_available()
    results.provenance = provenance(command, time.perf_counter() - start, gpu=gpu)
    if runs:
        results.provenance["runs"] = dict(runs)
    claims = experiment.check(results)  # before anything is stored: what can't be judged is broken
    path = results.save(folder)
    draw(Results.load(path), folder)
    return results, claims


def write_summary(folder: Path) -> None:
    """Make RESULTS.md anew from all that is stored in a folder."""
    with whole_file(folder / "RESULTS.md") as partial:
        partial.write_text(results_markdown(folder))


def draw(results: Results, folder: Path) -> list[Path]:
    """Draw the figure of stored results, as PDF and PNG."""
    with figures.style():
        figure = load(results.experiment).plot(results)
    return figures.save(figure, folder / "figures" / f"{results.experiment}.{results.scale}")
