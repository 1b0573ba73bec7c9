"""Runs one experiment: numbers, verdicts and figure, each stored whole or not at all."""

from __future__ import annotations

import time
from pathlib import Path

import torch

from normscope._checks import invalid
from normscope._files import whole_file
from normscope.experiments.ledger import Ledger
from normscope.experiments.registry import load
from normscope.experiments.results import Claim, Results, Scale, provenance
from normscope.experiments.runs import noted
from normscope.experiments.summary import HEADING, results_markdown
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
    experiment, count = load(name), _count(name, scale, seeds)
    start = time.perf_counter()
    with noted(ledger) as runs:
        results = experiment.run(scale, seed, count)
    command = f"normscope reproduce {name} --scale {scale} --seed {seed} --seeds {count}"
    gpu = experiment.KIND == "training" and torch.cuda.is_available()
    results.provenance = provenance(command, time.perf_counter() - start, gpu=gpu)
    if runs:
        results.provenance["runs"] = dict(runs)
    claims = experiment.check(results)  # before anything is stored: what can't be judged is broken
    refuse_to_replace([name], scale, seed, seeds, folder)  # of another process, meanwhile
    path = results.save(folder)
    draw(Results.load(path), folder)
    return results, claims


def _count(name: str, scale: Scale, seeds: int | None) -> int:
    """How many seeds: where nothing is random there is one, whatever is asked for."""
    usual = load(name).SEEDS[scale]
    return usual if seeds is None or usual == 1 else seeds


def refuse_to_replace(
    names: list[str], scale: Scale, seed: int, seeds: int | None, folder: Path
) -> None:
    """Refuse to write over what more or other seeds have made, and over a RESULTS.md of another's.

    Raises:
        ValueError: if something is there that would be lost.
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
    summary = folder / "RESULTS.md"
    if summary.is_file() and not summary.read_bytes().startswith(HEADING.encode()):
        advice = "Name another --out, or move it."
        raise invalid(str(summary), "one that `reproduce` wrote", "another", advice)


def write_summary(folder: Path) -> None:
    """Make RESULTS.md anew from all that is stored in a folder."""
    with whole_file(folder / "RESULTS.md") as partial:
        partial.write_text(results_markdown(folder), encoding="utf-8")


def draw(results: Results, folder: Path) -> list[Path]:
    """Draw the figure of stored results, as PDF and PNG."""
    with figures.style():
        figure = load(results.experiment).plot(results)
    return figures.save(figure, folder / "figures" / f"{results.experiment}.{results.scale}")
