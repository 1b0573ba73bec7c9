"""What the paper states, a line each, with the claims that put it to the test."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from normscope_paper.harness.claims import NOT_IN_PAPER, Claim, tally
from normscope_paper.harness.registry import load
from normscope_paper.harness.results import Results, Scale


class Statement(NamedTuple):
    """One statement of the paper.

    Attributes:
        place: where the paper makes it.
        text: what it says.
        measure: what the values of its claims are.
        experiment: whose claims test it.
        pattern: a regular expression that the sentences of those claims begin with.
        recipe: a regular expression of their recipes.
    """

    place: str
    text: str
    measure: str
    experiment: str
    pattern: str
    recipe: str


with (Path(__file__).with_name("statements.csv")).open(newline="", encoding="utf-8") as _file:
    STATEMENTS = tuple(Statement(**row) for row in csv.DictReader(_file))
_TRAINED: dict[Scale, str] = {
    "paper": "as in the paper",
    "small": "shorter",
    "smoke": "on digits only",
}
_SHOWN = 3  # values in a line; of more, the lowest and the highest


def claims_on(statement: Statement, results: Results, claims: Iterable[Claim]) -> list[Claim]:
    """The claims that test it; where the data are not the paper's, those on other data."""
    if results.experiment != statement.experiment:
        return []
    return [
        claim
        for claim in claims
        if (claim.paper != NOT_IN_PAPER or results.scale == "smoke")
        and re.match(statement.pattern, claim.sentence)
        and re.match(statement.recipe, claim.recipe)
    ]


def verdict_of(claims: list[Claim]) -> str:
    """One verdict over several claims.

    "holds" and "does not hold" need every claim decided alike; "mixed" needs two decided apart.

    >>> one = Claim("x", "+", 1.0, (0.5, 1.5), (0.0, 9.0), "text")
    >>> open_ = Claim("x", "+", 1.0, (-0.5, 1.5), (0.0, 9.0), "text")
    >>> verdict_of([one, one]), verdict_of([one, open_])
    ('holds', 'holds in 1 of 2, the rest open')
    """
    counts = tally(claims)
    yes, no, unsure = (counts[kind] for kind in ("reproduced", "not reproduced", "inconclusive"))
    if yes and no:
        return f"mixed: holds in {yes}, fails in {no}" + (f", open in {unsure}" if unsure else "")
    if not yes and not no:
        return "open"
    word, n = ("holds", yes) if yes else ("fails", no)
    whole = "holds" if yes else "does not hold"
    return f"{word} in {n} of {len(claims)}, the rest open" if unsure else whole


def lines(judged: Iterable[tuple[Results, list[Claim]]]) -> list[tuple[str, ...]]:
    """A line for each statement, from its experiment and place to its verdict."""
    stored = {results.experiment: (results, claims) for results, claims in judged}
    rows = []
    for statement in STATEMENTS:
        name = statement.experiment
        if name not in stored:
            continue
        results, claims = stored[name]
        found = claims_on(statement, results, claims)
        trains = load(name).KIND == "training"
        trained = _TRAINED[results.scale] if trains else "-"
        printed = "; ".join(dict.fromkeys(c.paper for c in found if c.paper != NOT_IN_PAPER))
        ours = "; ".join(claim.value_text for claim in found)
        if len(found) > _SHOWN:
            least, most = (pick(found, key=lambda claim: claim.value) for pick in (min, max))
            ours = f"{least.value_text} to {most.value_text} ({len(found)} comparisons)"
        row = (name, statement.place, statement.text, statement.measure, printed or "-", ours)
        rows.append((*row, trained, verdict_of(found)))
    return rows
