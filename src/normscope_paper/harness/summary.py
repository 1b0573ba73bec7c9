"""RESULTS.md, made from the stored results and from nothing else."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from normscope.extend import invalid, typed
from normscope_paper.harness.cell_tables import tables_markdown
from normscope_paper.harness.cells import RunTable
from normscope_paper.harness.claims import NOT_IN_PAPER, Claim, tally
from normscope_paper.harness.registry import EXPERIMENTS, caption, file_of, load
from normscope_paper.harness.results import SCALES, Made, Results
from normscope_paper.harness.statements import lines
from normscope_paper.harness.sweep import datasets_at, spec_at

HEADING = "# Results\n\nComputed by `normscope reproduce`"
_TEMPLATE = "RESULTS.md.jinja"


@dataclass(frozen=True)
class EarlierVersion:
    """How a version of the code that trained stored runs differed from today's.

    Attributes:
        exact_knn: whether its kNN kept apart cosines in a narrow cone of features.
        same_bits: whether a seed gave the same bits each time on a GPU.
    """

    exact_knn: bool
    same_bits: bool


class Judged(NamedTuple):
    """Stored results with their claims."""

    results: Results
    claims: list[Claim]


def stored_paths(folder: Path) -> list[Path]:
    """The file of each experiment that a folder holds, of the largest scale."""
    found = []
    for name in EXPERIMENTS:
        paths = [folder / f"{name}.{scale}.json" for scale in reversed(SCALES)]
        found += [path for path in paths if path.is_file()][:1]
    return found


def stored_results(folder: Path) -> list[Results]:
    """The largest scale stored of each experiment, in the registry's order."""
    found = []
    for path in stored_paths(folder):
        results = Results.load(path)
        if results.file_name != path.name:
            advice = "Delete it, or give it its own name."
            raise invalid(str(path), "results of that name", results.experiment, advice)
        found.append(results)
    return found


def earlier_versions(folder: Path) -> dict[str, EarlierVersion]:
    """What a folder's versions.json records of the code that trained its runs; it may be absent."""
    path = folder / "versions.json"
    try:
        stored = json.loads(path.read_text()) if path.exists() else {}
        return typed(dict[str, EarlierVersion], stored, "it")
    except (OSError, ValueError, RecursionError) as error:
        wanted = "versions with exact_knn and same_bits"
        raise invalid(str(path), wanted, "another file", f"{error}.") from None


def claims_of(results: Results) -> list[Claim]:
    """The claims on stored results; those that another version wrote are refused by name."""
    return results.read(load(results.experiment).check)


def heading_of(results: Results) -> str:
    """Where the paper has it, and what it shows."""
    experiment = load(results.experiment)
    return f"{experiment.PLACE}: {experiment.TITLE}"


def caption_of(results: Results) -> str:
    """What is shown, and what was trained for it."""
    return caption(results.experiment) + results.read(_trained)


def made_by(results: Results, earlier: Mapping[str, EarlierVersion] = {}) -> str:
    """Seeds, time, hardware and versions, of the runs too."""
    made, last = results.made, results.seed + results.seeds - 1
    seeds = f"seed {last}" if results.seeds == 1 else f"seeds {results.seed} to {last}"
    versions = ", ".join(f"{name} {version}" for name, version in made.versions.items())
    text = f"{seeds}, {made.seconds} s on {made.hardware}; {versions}."
    return text + (_runs(list(made.runs.values()), earlier) if made.runs else "")


def results_markdown(folder: Path) -> str:
    """The text of RESULTS.md for the results in a folder."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    judged = [Judged(results, claims_of(results)) for results in stored_results(folder)]
    environment = Environment(
        loader=PackageLoader("normscope_paper.harness", ""),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    earlier = earlier_versions(folder)
    return environment.get_template(_TEMPLATE).render(
        heading=HEADING,
        overview=_overview(judged),
        totals=_totals(judged),
        statements=statements_table(judged),
        effects=_effects(judged),
        sections=[_section(one, earlier) for one in judged],
    )


def statements_table(judged: Sequence[Judged], page: str = "") -> str:
    """What holds of the paper, a line for each of its statements, as a Markdown table.

    Args:
        judged: stored results with their claims.
        page: the address of the page with their sections, if it is another one.
    """
    sections = {results.experiment: f"{page}#{_anchor(_heading(results))}" for results, _ in judged}
    rows = [
        (f"[{place}]({sections[name]})", *row, f"**{verdict}**")
        for name, place, *row, verdict in lines(judged)
    ]
    head = ("in the paper", "statement", "measured", "paper", "ours", "trained", "verdict")
    return _markdown(head, rows)


def claims_table(claims: list[Claim]) -> str:
    """The claims as a Markdown table."""
    rows = [
        (c.sentence, c.recipe, c.paper, c.region_text, c.value_text, f"**{c.verdict}**")
        for c in claims
    ]
    return _markdown(("claim", "recipe", "paper", "true if", "ours", "verdict"), rows)


def _overview(judged: list[Judged]) -> str:
    """One row for each experiment, with its verdict counts."""
    rows = []
    for results, claims in judged:
        experiment = load(results.experiment)
        counts = [str(n or "-") for n in tally(claims).values()]
        link = f"[{experiment.TITLE}](#{_anchor(_heading(results))})"
        code = f"[`{results.experiment}`](../src/{file_of(results.experiment)})"
        row = (experiment.PLACE, link, code, results.scale)
        rows.append((*row, *counts))
    head = (
        "in the paper",
        "what",
        "ID and code",
        "scale",
        "reproduced",
        "not reproduced",
        "inconclusive",
    )
    return _markdown(head, rows)


def _heading(results: Results) -> str:
    scale = "" if results.scale == "paper" else f" ({results.scale})"
    return heading_of(results) + scale


def _anchor(heading: str) -> str:
    """As GitHub and mkdocs make it."""
    kept = "".join(c for c in heading.lower().strip() if c.isalnum() or c in " -_")
    return kept.replace(" ", "-")


def _totals(judged: list[Judged]) -> list[str]:
    """How many verdicts there are of each kind, a line for each scale."""
    lines = []
    for scale in reversed(SCALES):
        here = [one for one in judged if one.results.scale == scale]
        every = [claim for _, claims in here for claim in claims]
        if every:
            kinds = sorted({load(results.experiment).KIND for results, _ in here})
            theirs = [claim for claim in every if claim.paper != NOT_IN_PAPER]
            own = [claim for claim in every if claim.paper == NOT_IN_PAPER]
            counts = f"the paper's claims: {_in_words(theirs)}; our own: {_in_words(own)}."
            lines.append(f"At {scale} scale ({' and '.join(kinds)}), {counts}")
    return lines


def _in_words(claims: list[Claim]) -> str:
    return ", ".join(f"{n} {verdict}" for verdict, n in tally(claims).items() if n) or "none"


def _effects(judged: list[Judged]) -> str:
    """What each intervention does to kNN, against its method's default."""
    rows: dict[str, tuple[list[str], list[str], list[str]]] = {}
    for results, claims in judged:
        for claim in claims:
            if claim.compares is None or not claim.compares.base.endswith("default"):
                continue
            row, _, column = claim.compares
            low, high = claim.interval
            under = " under Adam" if results.experiment == "adam_performance" else ""
            recipe = "" if claim.recipe == "text" else f", {claim.recipe.replace('_', ' ')}"
            place = 0 if low > 0 else 1 if high < 0 else 2
            effects = rows.setdefault(row + under, ([], [], []))
            effects[place].append(f"{column}{recipe}: {claim.value_text}")
    cells = [(row, *("<br>".join(e) or "-" for e in effects)) for row, effects in rows.items()]
    return _markdown(("against the default", "helps on", "hurts on", "undecided on"), cells)


def _section(judged: Judged, earlier: Mapping[str, EarlierVersion]) -> dict[str, Any]:
    results, claims = judged
    more = getattr(load(results.experiment), "MORE", {})
    tables = results.read(lambda r: tables_markdown(r, more)) if "cells" in results.data else []
    return {
        "heading": _heading(results),
        "caption": caption_of(results),
        "figure": f"figures/{results.experiment}.{results.scale}.png",
        "tables": [*tables, claims_table(claims)],
        "command": results.made.command,
        "made_by": made_by(results, earlier),
    }


def _markdown(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for row in rows:
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |")
    return "\n".join(lines)


def _trained(results: Results) -> str:
    """What was trained for it, and on what."""
    if not results.made.runs:
        return ""
    if "cells" in results.data:
        values = [dict(cell.values) for cell in RunTable.of(results).cells]
    else:
        names: tuple[str, ...] = getattr(load(results.experiment), "DATASETS", ())
        values = [{"data": name} for name in datasets_at(results.scale, *names)]
    # what the scale and the recipe leave open depends on the dataset alone
    specs = [spec_at(results.scale, **every) for every in values]
    nets, datasets = (sorted({getattr(s, name) for s in specs}) for name in ("net", "data"))
    epochs = sorted({spec.epochs for spec in specs})
    return (
        f" Trained here: {', '.join(nets)}, {' or '.join(map(str, epochs))} epochs, on "
        f"{', '.join(datasets)}."
    )


def _runs(runs: list[Made], earlier: Mapping[str, EarlierVersion]) -> str:
    """How many runs were trained for it, how long, and on what."""
    seconds, places = sum(run.seconds for run in runs), sorted({run.hardware for run in runs})
    count = "1 run" if len(runs) == 1 else f"{len(runs)} runs"
    text = f" {count}, shared with other experiments: {seconds:,.0f} s on {', '.join(places)}."
    known = [earlier.get(run.versions.get("normscope", "")) for run in runs]
    if other_bits := sum(v is not None and not v.same_bits for v in known):
        text += f" {other_bits} of them precede reproducible bits on a GPU."
    if coarse := sum(v is not None and not v.exact_knn for v in known):
        text += f" The kNN of {coarse} was measured by an earlier, coarser version."
    return text
