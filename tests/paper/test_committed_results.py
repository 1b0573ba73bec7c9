"""What is committed under results/ is what the code computes, and what the pages say of it."""

import json
import re
from pathlib import Path

import pytest

from normscope_paper.harness import (
    EXPERIMENTS,
    Ledger,
    Results,
    StoredRun,
    Sweep,
    claims_of,
    load,
    numbers,
    results_page,
    stored_results,
)
from normscope_paper.harness.cells import RunTable
from normscope_paper.harness.summary import earlier_versions, results_markdown

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "results"
PAGES = [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md", FOLDER / "NOTES.md"]
FILES = sorted(FOLDER.glob("*.s*.json")) + sorted(FOLDER.glob("*.paper.json"))
INTERVAL = r"-?[\d.]+ \[-?[\d.]+, -?[\d.]+\]"


def test_results_md_is_made_from_the_stored_results() -> None:
    assert (FOLDER / "RESULTS.md").read_text() == results_markdown(FOLDER)


def test_both_pages_say_what_was_trained() -> None:
    trained = "Trained here: resnet18, 30 or 50 epochs, on cifar10, cifar100."
    assert trained in (FOLDER / "RESULTS.md").read_text()
    (section,) = results_page([FOLDER / "accuracies.small.json"]).sections
    assert any(text.endswith(trained) for text in section.texts)


def test_every_experiment_is_stored_with_both_figures_and_simulations_at_the_papers_scale() -> None:
    stored = {results.experiment: results for results in stored_results(FOLDER)}
    assert stored.keys() == EXPERIMENTS.keys()
    for name, results in stored.items():
        scale = results.scale
        assert scale == "paper" or load(name).KIND == "training"
        assert results.seeds >= load(name).SEEDS[scale]
        assert (FOLDER / "figures" / f"{name}.{scale}.png").exists()
        assert (FOLDER / "figures" / f"{name}.{scale}.pdf").exists()


def test_stored_runs_of_a_dataset_saw_the_same_images() -> None:
    seen = {(run.spec.data, run.made.data_checksum) for run in Ledger(FOLDER / "runs.jsonl")}
    assert seen
    assert len(seen) == len({data for data, _ in seen})


def test_it_is_known_how_each_version_that_trained_stored_runs_differs() -> None:
    versions = {run.made.versions["normscope"] for run in Ledger(FOLDER / "runs.jsonl")}
    # add what later runs are trained with
    current = {"from source 19f05efb97", "from source 7b536836d8"}
    assert versions - earlier_versions(FOLDER).keys() == current


def test_a_run_has_one_knn_wherever_it_is_stored() -> None:
    found: dict[str, set[float]] = {}
    for results in map(Results.load, FILES):
        for cell in RunTable.of(results).cells if "cells" in results.data else ():
            for run in cell.runs:
                found.setdefault(run.run, set()).add(run.knn)
    assert len(found) > 300
    assert {name: knns for name, knns in found.items() if len(knns) > 1} == {}


def test_tables_of_images_come_out_again_from_the_stored_runs(tmp_path: Path, monkeypatch) -> None:
    for name in ("NORMSCOPE_RUNS", "NORMSCOPE_DATA"):
        monkeypatch.setenv(name, str(tmp_path / "none"))  # whatever would be trained is refused
    small = [results for results in stored_results(FOLDER) if results.scale == "small"]
    tables = [results for results in small if "cells" in results.data]
    assert len(tables) >= 8
    sweep = Sweep(ledger=Ledger(FOLDER / "runs.jsonl"))
    for stored in tables:
        sweep.used.clear()
        made = numbers(stored.experiment, stored.scale, stored.seed, stored.seeds, sweep)
        assert json.dumps(made.data) == json.dumps(stored.data)
        assert sweep.used == stored.made.runs


def lines_of(name: str) -> dict[str, str]:
    """The lines of a file of runs by the run's name, of several the first."""
    lines = (FOLDER / name).read_text().splitlines()
    return {StoredRun.read(line).spec.name: line for line in reversed(lines)}


def test_a_file_of_runs_is_rewritten_byte_for_byte() -> None:
    for name in ("runs.jsonl", "again.jsonl", "earlier.jsonl"):
        lines = (FOLDER / name).read_text().splitlines()
        assert [StoredRun.read(line).line() for line in lines] == lines


def test_a_run_that_was_trained_twice_is_stored_with_the_same_numbers() -> None:
    stored = lines_of("runs.jsonl")
    ((name, line),) = lines_of("again.jsonl").items()
    first, again = StoredRun.read(stored[name]), StoredRun.read(line)
    assert first.made.seconds != again.made.seconds  # no copy
    assert (first.spec, first.knn, first.norm) == (again.spec, again.knn, again.norm)
    assert first.records == again.records


def test_the_page_on_retraining_counts_the_verdicts_that_changed(tmp_path: Path) -> None:
    earlier = lines_of("earlier.jsonl")
    before = tmp_path / "before.jsonl"
    before.write_text("\n".join((lines_of("runs.jsonl") | earlier).values()))
    sweep, pairs = Sweep(ledger=Ledger(before)), []
    for stored in map(Results.load, sorted(FOLDER.glob("*.small.json"))):
        if earlier.keys() & stored.made.runs.keys() and "cells" in stored.data:
            made = numbers(stored.experiment, stored.scale, stored.seed, stored.seeds, sweep)
            pairs += zip(load(stored.experiment).check(made), claims_of(stored), strict=True)
    turned = [(a.verdict, b.verdict, b.value_text) for a, b in pairs if a.verdict != b.verdict]
    assert {(a, b) for a, b, _ in turned} == {
        ("inconclusive", "reproduced"),
        ("not reproduced", "inconclusive"),
    }
    page = (ROOT / "docs/findings/one-seed-twice.md").read_text()
    assert len(turned) == 2
    assert f"the {len(pairs)} verdicts of the five tables" in page
    assert "two changed" in page
    assert all(interval in page for *_, interval in turned)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_intervals_on_a_page_are_those_of_the_experiments_that_it_names(page: Path) -> None:
    text = page.read_text()
    named = set(re.findall(r"`(?:normscope reproduce )?(\w+)[^`]*`", text)) & EXPERIMENTS.keys()
    named |= set(re.findall(r"normscope reproduce (\w+)", text)) & EXPERIMENTS.keys()
    known = {
        claim.value_text
        for name in named
        for path in FOLDER.glob(f"{name}.*.json")
        for claim in claims_of(Results.load(path))
    }
    prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)  # a block quotes a command's own output
    assert [found for found in re.findall(INTERVAL, prose) if found not in known] == []


def test_the_findings_give_their_intervals() -> None:
    findings = "".join(page.read_text() for page in (ROOT / "docs/findings").glob("*.md"))
    assert len(re.findall(INTERVAL, findings)) > 50
