"""RESULTS.md, made from the stored results and from nothing else."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from normscope._checks import invalid
from normscope.experiments.cell_views import tables_markdown
from normscope.experiments.registry import EXPERIMENTS, load
from normscope.experiments.results import NOT_IN_PAPER, SCALES, Claim, Results
from normscope.experiments.runs import spec_at

T = TypeVar("T")
HEADING = "# Results\n\nMade from the JSON files in this folder by `normscope reproduce`"
_HEAD = f"""{HEADING}; do not edit. A verdict is
computed: *reproduced* if the 95 % confidence interval over seeds lies within the values for which
the sentence is true, *not reproduced* if it lies outside, *inconclusive* if it straddles an edge.
A claim that came out false stays, marked false. Where the paper prints words and no number, the
edge is ours.
Where a cell of a table is set against another of its method, the noise is that of the two, and what
all the method's cells say of it (once each cell has its mean and each seed of a column its own)
counts as one seed more: the same runs can have a wider interval in one table than in another. In a
table's cells, brackets hold the lowest and the highest seed. A network that broke (NaN) counts as
0; its cell, and one whose seeds are all alike, says nothing of the others' noise. So made,
intervals cover the truth in 95 % of cases or more (92 % in tables of three or four cells), also if
the noise of cells differs threefold; in nine of ten if the two are three times as noisy as all
others, and in five of six if ten times.
On one GPU of the same kind, with the same versions, a seed gives the same bits each time. Runs that
are older than that are counted under their table: trained again, they come out a little different,
and a verdict near its edge can change.
The command under a table trains its runs. With `--runs results/runs.jsonl` it takes those on images
from there, without data or a GPU, but for Section 5's figures (in_out_violin, norm_as_confidence,
cifar_norms), which need the networks. A table's JSON names the run of every seed; of those on
images runs.jsonl has the spec, the course and what made it (Section 5's are other trainings of the
same specs; runs on digits take minutes and are not kept). What was made "from source" names the
first digits of the SHA-256 of its modules (the first runs name none). A dash stands for what
nothing can be said of.
"""
_ROUNDING = 1e-9  # of an interval: a mean of differences that is nearer to zero is zero
# whose kNN of images was taken in bfloat16 and TF32, where a narrow cone of features is lost
_COARSE = {"from source", "from source 7ecdf6f8fd", "from source 28403ab054"}
# by which a seed gave other bits each time on a GPU
UNORDERED = _COARSE | {
    "from source 88a670065c",
    "from source 1dd2c9f99b",
    "from source 59293e8709",
    "from source 5f3503c57f",
}


def stored_results(folder: Path) -> list[Results]:
    """The largest scale stored of each experiment, in the registry's order."""
    found = []
    for name in EXPERIMENTS:
        paths = [folder / f"{name}.{scale}.json" for scale in reversed(SCALES)]
        path = next((path for path in paths if path.exists()), None)
        if path is not None:
            found.append(Results.load(path))
            if f"{found[-1].experiment}.{found[-1].scale}.json" != path.name:
                advice = "Delete it, or give it its own name."
                raise invalid(str(path), "results of that name", found[-1].experiment, advice)
    return found


def claims_of(results: Results) -> list[Claim]:
    """The claims on stored results; those that another version wrote are refused by name."""
    return _read(results, load(results.experiment).check)


def _tables(results: Results) -> list[str]:
    """The tables of runs, if there are any."""
    if "cells" not in results.data:
        return []
    more = getattr(load(results.experiment), "MORE", {})
    return _read(results, lambda results: tables_markdown(results, more))


def _read(results: Results, reader: Callable[[Results], T]) -> T:
    try:
        return reader(results)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        name, why = f"{results.experiment}.{results.scale}.json", f"{type(error).__name__}: {error}"
        advice = f"Run normscope reproduce {results.experiment} --scale {results.scale} again."
        raise invalid(name, "as `reproduce` writes it now", why, advice) from error


def results_markdown(folder: Path) -> str:
    """The text of RESULTS.md for the results in a folder."""
    everything = [(results, load(results.experiment)) for results in stored_results(folder)]
    judged = [(results, claims_of(results)) for results, _ in everything]
    parts = [_HEAD, *_tallies(judged)]
    for (results, experiment), (_, claims) in zip(everything, judged, strict=True):
        parts += [
            f"## {experiment.TITLE}" + ("" if results.scale == "paper" else f" ({results.scale})"),
            caption_of(results),
            f"![{experiment.TITLE}](figures/{results.experiment}.{results.scale}.png)",
            *_tables(results),
            claims_table(claims),
            f"`{results.provenance['command']}`: {made_by(results)}",
        ]
    return "\n\n".join(parts) + "\n"


def caption_of(results: Results) -> str:
    """What is shown, and what was trained for it."""
    shown = (load(results.experiment).__doc__ or "").split("\n\n")[1].replace("\n", " ")
    return shown + _read(results, _trained)


def made_by(results: Results) -> str:
    """Seeds, time, hardware and versions, of the runs too."""
    made = results.provenance
    versions = ", ".join(f"{name} {version}" for name, version in made["versions"].items())
    took = f"{made['seconds']} s on {made['hardware']}"
    return f"{_seeds(results)}, {took}; {versions}.{_runs(made)}"


def _trained(results: Results) -> str:
    """What was trained for it, and on what."""
    runs = results.provenance.get("runs", {})
    if not runs:
        return ""
    values = [cell["values"] for cell in results.data.get("cells", [{"values": {}}])]
    datasets = sorted({name.split("-", 1)[1].rpartition("-")[0] for name in runs})
    # what is left to the spec depends on the dataset alone
    specs = [spec_at(results.scale, **{"data": datasets[0], **every}) for every in values]
    nets = sorted({spec.net for spec in specs})
    epochs = sorted({spec.epochs for spec in specs})
    return (
        f" Trained here: {', '.join(nets)}, {' or '.join(map(str, epochs))} epochs, on "
        f"{', '.join(datasets)}."
    )


def _tallies(judged: list[tuple[Results, list[Claim]]]) -> list[str]:
    """How many verdicts there are of each kind, a line for each scale."""
    lines = []
    for scale in reversed(SCALES):
        here = [(results, claims) for results, claims in judged if results.scale == scale]
        every = [claim for _, claims in here for claim in claims]
        of_paper = [claim for claim in every if claim.paper != NOT_IN_PAPER]
        own = [claim for claim in every if claim.paper == NOT_IN_PAPER]
        if every:
            told = f"the paper's claims: {_tally(of_paper)}; our own: {_tally(own)}."
            kinds = {
                load(results.experiment).KIND for results, _ in judged if results.scale == scale
            }
            lines.append(f"At {scale} scale ({' and '.join(sorted(kinds))}), {told}")
    return lines


def claims_table(claims: list[Claim]) -> str:
    """The claims as a Markdown table."""
    rows = ["| claim | recipe | paper | true if | ours | verdict |", "|---|---|---|---|---|---|"]
    for claim in claims:
        cells = (claim.sentence, claim.recipe, claim.paper, true_if(claim), ours(claim))
        cells = (*cells, f"**{claim.verdict}**")
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(rows)


def ours(claim: Claim) -> str:
    """Our value with its interval, where it has one; nothing where any value is possible.

    >>> ours(Claim("x", "2", 2.0, (1.9, 2.1), (0.0, 9.0), "text"))
    '2 [1.9, 2.1]'
    """
    low, high = claim.interval
    if math.isinf(low) and math.isinf(high):
        return "-"  # too little was seen
    value = 0.0 if abs(claim.value) < _ROUNDING * (high - low) else claim.value
    return f"{value:.4g}" + ("" if low == high else f" [{low:.4g}, {high:.4g}]")


def true_if(claim: Claim) -> str:
    """The region of a claim.

    >>> true_if(Claim("x", "2", 2.0, (1.9, 2.1), (0.0, math.inf), "text"))
    'at least 0'
    """
    least, most = claim.region
    if math.isinf(most):
        return f"at least {least:.4g}"
    return f"at most {most:.4g}" if math.isinf(least) else f"{least:.4g} to {most:.4g}"


def _tally(claims: list[Claim]) -> str:
    verdicts = [claim.verdict for claim in claims]
    return ", ".join(f"{verdicts.count(v)} {v}" for v in sorted(set(verdicts))) or "none"


def trained_for(made: dict[str, Any]) -> float:
    """The seconds that the runs of stored results took, wherever they were trained."""
    return sum(run["seconds"] for run in made.get("runs", {}).values())


def _runs(made: dict[str, Any]) -> str:
    """How many runs were trained for it, how long, and on what."""
    runs = list(made.get("runs", {}).values())
    if not runs:
        return ""
    seconds = trained_for(made)
    places = ", ".join(sorted({run["hardware"] for run in runs}))
    told = f" {len(runs)} runs, shared with other experiments: {seconds:,.0f} s on {places}."
    by = [run["versions"].get("normscope") for run in runs]
    unordered, coarse = (sum(v in old for v in by) for old in (UNORDERED, _COARSE))
    if unordered:
        told += f" {unordered} of them were trained before a seed gave the same bits on a GPU."
    if coarse:
        told += f" The kNN of {coarse} was taken by an earlier version (see the changelog)."
    return told


def _seeds(results: Results) -> str:
    if results.seeds == 1:
        return f"seed {results.seed}"
    return f"seeds {results.seed} to {results.seed + results.seeds - 1}"
