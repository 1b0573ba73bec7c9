"""What is committed under results/ is what the code says of it."""

import re
from pathlib import Path

import pytest

from normscope.experiments import EXPERIMENTS, load
from normscope.experiments.cells import course
from normscope.experiments.ledger import Ledger
from normscope.experiments.results import Results
from normscope.experiments.results_page import results_page
from normscope.experiments.summary import claims_of, ours, results_markdown, stored_results

FOLDER = Path(__file__).parents[2] / "results"


def test_results_md_is_made_from_the_stored_results() -> None:
    assert (FOLDER / "RESULTS.md").read_text() == results_markdown(FOLDER)


def test_both_pages_say_what_was_trained() -> None:
    results = Results.load(FOLDER / "accuracies.small.json")
    told = "Trained here: resnet18, 30 or 50 epochs, on cifar10, cifar100."
    assert told in (FOLDER / "RESULTS.md").read_text()
    (section,) = results_page([results]).sections
    assert any(text.endswith(told) for text in section.texts)


def test_every_experiment_is_stored_with_both_figures_and_simulations_at_the_papers_scale() -> None:
    stored = {results.experiment: results for results in stored_results(FOLDER)}
    assert stored.keys() == EXPERIMENTS.keys()
    for name, results in stored.items():
        scale = results.scale
        assert scale == "paper" or load(name).KIND == "training"
        assert results.seeds >= load(name).SEEDS[scale]
        assert (FOLDER / "figures" / f"{name}.{scale}.png").exists()
        assert (FOLDER / "figures" / f"{name}.{scale}.pdf").exists()


def test_stored_runs_are_those_of_the_tables() -> None:
    ledger = {run.spec.name: run for run in Ledger(FOLDER / "runs.jsonl")}
    seen = {(run.spec.data, run.made["data_checksum"]) for run in ledger.values()}
    assert seen
    assert len(seen) == len({data for data, _ in seen})
    for results in stored_results(FOLDER):
        for cell in results.data.get("cells", []) if results.scale == "small" else []:
            for record in cell["runs"]:
                assert record["knn"] == pytest.approx(
                    course(ledger[record["run"]])["knn"], rel=1e-4
                )


def test_intervals_in_the_findings_are_those_of_the_results() -> None:
    findings = (FOLDER.parent / "docs" / "findings.md").read_text()
    found = re.findall(r"-?[\d.]+ \[-?[\d.]+, -?[\d.]+\]", findings)
    assert len(found) == findings.count(" [")
    claimed = {
        ours(claim) for path in FOLDER.glob("*.json") for claim in claims_of(Results.load(path))
    }
    assert [value for value in found if value not in claimed] == []
