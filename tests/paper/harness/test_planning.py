"""What `reproduce plan` advises: seeds that decide, in order of claims for the time."""

import math
from pathlib import Path

import numpy as np
import pytest
from tests.command import normscope  # pyright: ignore[reportMissingImports]

from normscope_paper.harness.claims import Claim
from normscope_paper.harness.ledger import Ledger
from normscope_paper.harness.planning import MOST_SEEDS, plan, seeds_to_decide
from normscope_paper.harness.results import Results

STORED = Path(__file__).parents[3] / "results"


def open_claim(values, region=(0.0, math.inf)) -> Claim:
    return Claim.over_seeds("x grows", values, region, paper="+", recipe="text")


def test_the_advised_seeds_decide_most_claims() -> None:
    random, decided = np.random.default_rng(0), []
    while len(decided) < 400:
        claim = open_claim(random.normal(1.0, 1.0, 4))
        if claim.verdict == "inconclusive" and (n := seeds_to_decide(claim, 4)) and n <= 60:
            more = open_claim(random.normal(claim.value, 1.0, n))
            decided.append(more.verdict != "inconclusive")
    assert 0.7 < np.mean(decided) < 0.97


def test_no_number_of_seeds_decides_at_an_edge_or_without_a_known_noise() -> None:
    assert seeds_to_decide(Claim("x", "+", 0.0, (-1.0, 1.0), (0.0, 9.0), "text"), 3) is None
    unknown = (-math.inf, math.inf)
    assert seeds_to_decide(Claim("x", "+", 1.0, unknown, (0.0, 9.0), "text"), 3) is None


def test_a_mean_beyond_the_region_needs_seeds_as_one_within_it_does() -> None:
    within = Claim("x", "+", 1.0, (-0.5, 2.5), (0.0, math.inf), "text")
    beyond = Claim("x", "+", -1.0, (-2.5, 0.5), (0.0, math.inf), "text")
    assert seeds_to_decide(within, 2) == seeds_to_decide(beyond, 2)


def test_the_plan_fits_into_its_minutes_and_names_open_claims_alone() -> None:
    ledger = Ledger(STORED / "runs.jsonl")
    every = plan(STORED, ledger, scale="small")
    short = plan(STORED, ledger, scale="small", minutes=12)
    assert sum(step.seconds or 0 for step in short) <= 12 * 60
    assert 0 < len(short) < len(every)
    trained = [step for step in every if step.before]
    assert trained == every[-len(trained) :]  # what is not trained comes first
    for step in trained:
        stored = Results.load(STORED / f"{step.experiment}.small.json")
        assert stored.seeds == step.before < step.seeds <= MOST_SEEDS
        assert 0 < len(step.decides) <= step.undecided


def test_the_command_prints_what_to_train_and_how() -> None:
    done = normscope("reproduce", "plan", "--out", STORED, "--minutes", "1000")
    assert done.returncode == 0
    assert "open claims" in done.stdout
    assert "normscope reproduce norm_as_confidence --scale small --seeds 4" in done.stdout


@pytest.mark.parametrize("words", [["plan", "fig1"], ["plan", "--minutes", "0"]])
def test_the_plan_takes_no_experiments_and_some_minutes(words) -> None:
    assert normscope("reproduce", *words, "--out", STORED).returncode == 2
