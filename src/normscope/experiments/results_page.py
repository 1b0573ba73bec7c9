"""The page of stored results: claims with verdicts, and figures drawn anew."""

from __future__ import annotations

from collections.abc import Sequence

from normscope._checks import invalid
from normscope._environment import versions
from normscope.experiments.registry import load
from normscope.experiments.results import Claim, Results, Verdict
from normscope.experiments.summary import caption_of, claims_of, made_by, ours, true_if
from normscope.report.figures import style
from normscope.report.html import Mark, Page, Picture, Section, Table

_MARKS: dict[Verdict, Mark] = {
    "reproduced": "yes",
    "not reproduced": "no",
    "inconclusive": "open",
}
_HEADINGS = ("claim", "recipe", "paper", "true if", "ours", "verdict")


def results_page(stored: Sequence[Results]) -> Page:
    """All that the numbers decide, judged and drawn from them alone.

    Args:
        stored: as `Results.load` gives them, at least one.

    Raises:
        ValueError: if some lack the numbers that their experiment makes.
    """
    judged = [(results, _judged(results)) for results in stored]
    verdicts = [claim.verdict for _, (claims, _) in judged for claim in claims]
    tally = ", ".join(f"{verdicts.count(v)} {v}" for v in _MARKS if v in verdicts)
    lead = (
        f"{len(verdicts)} claims: {tally}. A claim is reproduced if the 95 % interval over seeds "
        "lies where its sentence is true, not reproduced if it lies outside, inconclusive between."
    )
    sections = [_section(results, claims, drawn) for results, (claims, drawn) in judged]
    return Page("Results", lead, sections, f"normscope {versions()['normscope']}.")


def _judged(results: Results) -> tuple[list[Claim], Picture]:
    experiment, claims = load(results.experiment), claims_of(results)
    try:
        with style():
            figure = experiment.plot(results)
    except Exception as error:  # numbers that are not there raise errors of any kind
        name, why = f"{results.experiment}.{results.scale}.json", f"{type(error).__name__}: {error}"
        advice = f"Run normscope reproduce {results.experiment} --scale {results.scale} again."
        raise invalid(name, "as `reproduce` writes it now", why, advice) from error
    return claims, Picture.of(figure, f"{experiment.TITLE}, {results.scale} scale.")


def _section(results: Results, claims: list[Claim], drawn: Picture) -> Section:
    rows = [
        [c.sentence, c.recipe.replace("_", " "), c.paper, true_if(c), ours(c), c.verdict]
        for c in claims
    ]
    marks: dict[tuple[int, int], Mark] = {
        (i, len(_HEADINGS) - 1): _MARKS[claim.verdict] for i, claim in enumerate(claims)
    }
    return Section(
        load(results.experiment).TITLE,
        [caption_of(results), made_by(results)],
        Table(_HEADINGS, rows, numeric=(4,), marks=marks),
        [drawn],
        [results.provenance["command"]],
    )
