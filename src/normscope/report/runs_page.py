"""The page that compares runs."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from normscope._environment import versions
from normscope.engine import RunResult
from normscope.report.evaluated import as_written, stored_evaluation
from normscope.report.html import Page, Picture, Section, Table
from normscope.report.norm_sections import short
from normscope.report.run_curves import check_logged, curves, summary_table
from normscope.report.run_page import command, plain


def runs_page(folders: Sequence[Path]) -> Page:
    """Several finished runs beside each other: curves, numbers, and norms where evaluated.

    Raises:
        ValueError: if a folder is no finished run's, or a file in it is damaged.
    """
    results = [RunResult.load(folder) for folder in folders]
    for result in results:
        check_logged(result)
    runs = dict(zip(_names(folders), results, strict=True))
    evaluated = {name: stored_evaluation(run.folder) for name, run in runs.items()}
    lead = f"{len(runs)} runs. {_best({name: run.knn for name, run in runs.items()})}"
    drawn = curves(runs)
    sections = [
        Section(
            "Training",
            table=summary_table(runs),
            figures=[Picture.of(figure, f"Over epochs: {what}.") for what, figure in drawn.items()],
        ),
        _differences(results, list(runs)),
        _norms_section(evaluated, {name: run.folder for name, run in runs.items()}),
        Section("Commands", commands=[command(run.spec) for run in results], folded=True),
    ]
    return Page("Runs compared", lead, sections, f"normscope {versions()['normscope']}.")


def _best(knn: Mapping[str, float]) -> str:
    """Which run has the highest accuracy, among those that have one."""
    finished = {name: value for name, value in knn.items() if not math.isnan(value)}
    if not finished:
        return "None of them has a kNN accuracy: they diverged, or their images have no classes."
    best = max(finished, key=lambda name: finished[name])
    return f"The best by kNN is {best}, with {finished[best]:.1%}."


def _names(folders: Sequence[Path]) -> list[str]:
    """A name for each run: its folder's, or as much of the path as distinguishes them."""
    names = [folder.resolve().name for folder in folders]
    if len(set(names)) == len(names):
        return names
    common = os.path.commonpath([folder.resolve() for folder in folders])
    return [os.path.relpath(folder.resolve(), common) for folder in folders]


def _differences(results: Sequence[RunResult], names: Sequence[str]) -> Section:
    """The fields of the specs in which the runs differ."""
    specs = [result.spec.to_dict() for result in results]
    fields = [name for name in specs[0] if any(s[name] != specs[0][name] for s in specs)]
    if not fields:
        return Section("What differs", ["Nothing: their specs are equal."])
    rows = [[name, *(plain(s[f]) for f in fields)] for name, s in zip(names, specs, strict=True)]
    return Section("What differs", table=Table(("run", *fields), rows))


def _norms_section(
    stored: Mapping[str, Mapping[str, Any] | None], folders: Mapping[str, Path]
) -> Section:
    title = "What the norms say"
    evaluated = {name: found for name, found in stored.items() if found is not None}
    lacking = [name for name in stored if name not in evaluated]
    if not evaluated:
        return Section(title, ["None of them was evaluated yet: normscope evaluate RUN."])
    new = {name for found in evaluated.values() for name in found["novelty"]}
    rows = []
    for name, found in evaluated.items():
        with as_written(folders[name] / "evaluation.json"):
            splits, knn = found["splits"], found["confidence"].get("knn", {})
            means = [short(splits.get(split, {"mean": None})["mean"]) for split in sorted(new)]
            numbers = [
                knn.get("auroc"),
                knn.get("spearman"),
                (found["calibration"] or {}).get("aurc"),
            ]
            rows.append([name, *means, *(short(value, ".3f") for value in numbers)])
    headings = ("run", *(f"norm on {split}" for split in sorted(new)))
    headings += ("AUROC of being right", "Spearman", "AURC")
    text = "Norms on new images are over the mean of the training images."
    if lacking:
        text += f" Not evaluated yet: {', '.join(lacking)}."
    return Section(title, [text], Table(headings, rows, numeric=range(1, len(headings))))
