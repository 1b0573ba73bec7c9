"""The HTML page of stored results: claims with verdicts, and figures drawn from the numbers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from normscope.extend import invalid, versions
from normscope.report import Mark, Page, Picture, Section, Table, style
from normscope_paper.harness.claims import Claim, Verdict, tally
from normscope_paper.harness.registry import EXPERIMENTS, load
from normscope_paper.harness.results import Results
from normscope_paper.harness.summary import (
    caption_of,
    claims_of,
    heading_of,
    made_by,
    stored_results,
)

_MARKS: dict[Verdict, Mark] = {
    "reproduced": "yes",
    "not reproduced": "no",
    "inconclusive": "open",
}
_HEADINGS = ("claim", "recipe", "paper", "true if", "ours", "verdict")


def results_page(places: Sequence[Path]) -> Page:
    """All that stored results decide, judged and drawn from their numbers alone.

    Args:
        places: results' files, or folders of them.

    Raises:
        ValueError: if some lack the numbers that their experiment computes.
    """
    stored: list[Results] = []
    for place in places:
        found = stored_results(place) if place.is_dir() else [Results.load(place)]
        for results in found:
            if results.experiment not in EXPERIMENTS:
                advice = "Choose a file that `reproduce` wrote."
                raise invalid(str(place), "of a known experiment", results.experiment, advice)
        stored += found
    judged = [(results, claims_of(results)) for results in stored]
    every = [claim for _, claims in judged for claim in claims]
    counts = ", ".join(f"{n} {verdict}" for verdict, n in tally(every).items() if n)
    lead = (
        f"{len(every)} claims: {counts}. A claim is reproduced if the 95 % interval over seeds "
        "lies where its sentence is true, not reproduced if it lies outside, inconclusive between."
    )
    sections = [_section(results, claims) for results, claims in judged]
    return Page("Results", lead, sections, f"normscope {versions()['normscope']}.")


def _drawn(results: Results) -> Picture:
    with style():
        figure = results.read(load(results.experiment).plot)
    return Picture.of(figure, f"{heading_of(results)}, {results.scale} scale.")


def _section(results: Results, claims: list[Claim]) -> Section:
    rows = [
        [c.sentence, c.recipe.replace("_", " "), c.paper, c.region_text, c.value_text, c.verdict]
        for c in claims
    ]
    marks: dict[tuple[int, int], Mark] = {
        (i, len(_HEADINGS) - 1): _MARKS[claim.verdict] for i, claim in enumerate(claims)
    }
    return Section(
        heading_of(results),
        [caption_of(results), made_by(results)],
        Table(_HEADINGS, rows, numeric=(4,), marks=marks),
        [_drawn(results)],
        [results.made.command],
    )
