from pathlib import Path

import pytest

from normscope_paper.harness.claims import NOT_IN_PAPER, Claim
from normscope_paper.harness.statements import STATEMENTS, claims_on, lines, verdict_of
from normscope_paper.harness.summary import claims_of, stored_results

FOLDER = Path(__file__).parents[3] / "results"


def claim(low: float, high: float) -> Claim:
    return Claim("x grows", "+", (low + high) / 2, (low, high), (0.0, 9.0), "text")


YES, NO, OPEN = claim(1, 2), claim(-2, -1), claim(-1, 2)


@pytest.mark.parametrize(
    ("claims", "verdict"),
    [
        ([YES, YES], "holds"),
        ([NO], "does not hold"),
        ([OPEN, OPEN], "open"),
        ([YES, OPEN, OPEN], "holds in 1 of 3, the rest open"),
        ([NO, OPEN], "fails in 1 of 2, the rest open"),
        ([YES, NO], "mixed: holds in 1, fails in 1"),
        ([YES, NO, NO, OPEN], "mixed: holds in 1, fails in 2, open in 1"),
    ],
)
def test_a_verdict_over_several_claims_hides_none(claims: list[Claim], verdict: str) -> None:
    assert verdict_of(claims) == verdict


def test_every_claim_of_the_paper_tests_exactly_one_statement() -> None:
    for results in stored_results(FOLDER):
        for one in claims_of(results):
            if one.paper != NOT_IN_PAPER:
                found = [s.text for s in STATEMENTS if claims_on(s, results, [one])]
                assert len(found) == 1, (results.experiment, one.sentence, one.recipe, found)


def test_every_statement_is_tested() -> None:
    judged = [(results, claims_of(results)) for results in stored_results(FOLDER)]
    for statement in STATEMENTS:
        found = [claims_on(statement, results, claims) for results, claims in judged]
        assert sum(map(len, found)) > 0, statement.text
    assert len(lines(judged)) == len(STATEMENTS)
