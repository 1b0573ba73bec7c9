"""What is committed under results/ is what the code says of it."""

import json
import re
from pathlib import Path

from normscope.experiments import EXPERIMENTS, load
from normscope.experiments.ledger import Ledger, Run
from normscope.experiments.results import Results
from normscope.experiments.results_page import results_page
from normscope.experiments.runs import noted
from normscope.experiments.summary import (
    UNORDERED,
    claims_of,
    ours,
    results_markdown,
    stored_results,
)

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


def test_stored_runs_of_a_dataset_saw_the_same_images() -> None:
    seen = {(run.spec.data, run.made["data_checksum"]) for run in Ledger(FOLDER / "runs.jsonl")}
    assert seen
    assert len(seen) == len({data for data, _ in seen})


def test_of_every_stored_run_it_is_known_whether_its_seed_gives_the_same_bits() -> None:
    versions = {run.made["versions"]["normscope"] for run in Ledger(FOLDER / "runs.jsonl")}
    assert versions - UNORDERED == {"from source 19f05efb97"}  # add what is trained later


def test_a_run_has_one_knn_wherever_it_is_stored() -> None:
    found: dict[str, set[float]] = {}
    for path in FOLDER.glob("*.json"):
        for cell in Results.load(path).data.get("cells", []):
            for run in cell["runs"]:
                found.setdefault(run["run"], set()).add(run["knn"])
    assert len(found) > 300
    assert {name: knns for name, knns in found.items() if len(knns) > 1} == {}


def test_tables_of_images_come_out_again_from_the_stored_runs(tmp_path: Path, monkeypatch) -> None:
    for name in ("NORMSCOPE_RUNS", "NORMSCOPE_DATA"):
        monkeypatch.setenv(name, str(tmp_path / "none"))  # whatever would be trained is refused
    small = [results for results in stored_results(FOLDER) if results.scale == "small"]
    tables = [results for results in small if "cells" in results.data]
    assert len(tables) >= 8
    ledger = Ledger(FOLDER / "runs.jsonl")
    for stored in tables:
        with noted(ledger) as used:
            made = load(stored.experiment).run(stored.scale, stored.seed, stored.seeds)
        assert json.loads(json.dumps(made.data)) == stored.data
        assert used == stored.provenance["runs"]


def lines_of(name: str) -> dict[str, str]:
    """The lines of a file of runs by the run's name, of several the first."""
    lines = (FOLDER / name).read_text().splitlines()
    return {Run.read(line).spec.name: line for line in reversed(lines)}


def test_a_run_that_was_trained_twice_is_stored_with_the_same_numbers() -> None:
    stored = lines_of("runs.jsonl")
    ((name, line),) = lines_of("again.jsonl").items()
    first, again = Run.read(stored[name]), Run.read(line)
    assert first.made.pop("seconds") != again.made.pop("seconds")  # no copy
    assert again == first


def test_the_findings_tell_what_changed_with_the_runs_that_were_trained_anew(tmp_path) -> None:
    earlier = lines_of("earlier.jsonl")
    before = tmp_path / "before.jsonl"
    before.write_text("\n".join((lines_of("runs.jsonl") | earlier).values()))
    pairs = []
    for path in FOLDER.glob("*.small.json"):
        stored = Results.load(path)
        if "cells" in stored.data and earlier.keys() & {
            run["run"] for cell in stored.data["cells"] for run in cell["runs"]
        }:
            experiment = load(stored.experiment)
            with noted(Ledger(before)):
                made = experiment.run(stored.scale, stored.seed, stored.seeds)
            pairs += zip(experiment.check(made), claims_of(stored), strict=True)
    turned = [(a.verdict, b.verdict, ours(b)) for a, b in pairs if a.verdict != b.verdict]
    assert {(a, b) for a, b, _ in turned} == {
        ("inconclusive", "reproduced"),
        ("not reproduced", "inconclusive"),
    }
    findings = (FOLDER.parent / "docs" / "findings.md").read_text()
    (told,) = (line for line in findings.split("\n") if "verdicts of the five tables" in line)
    assert f"Of the {len(pairs)} verdicts" in told
    assert f"the {len(earlier)}, two changed" in told
    assert len(turned) == 2
    assert all(interval in told for *_, interval in turned)


def test_intervals_in_the_findings_are_those_of_the_results_that_they_name() -> None:
    claimed = {
        name: {
            ours(claim)
            for path in FOLDER.glob(f"{name}.*.json")
            for claim in claims_of(Results.load(path))
        }
        for name in EXPERIMENTS
    }
    findings, checked, latest = (FOLDER.parent / "docs" / "findings.md").read_text(), 0, set()
    for paragraph in findings.split("\n"):
        words = set(re.findall(r"\w+", paragraph))
        named = words & EXPERIMENTS.keys()
        known = set().union(*(claimed[name] for name in named | latest))
        found = re.findall(r"-?[\d.]+ \[-?[\d.]+, -?[\d.]+\]", paragraph)
        assert [value for value in found if value not in known] == []
        checked += len(found)
        if named and not paragraph.startswith(("- ", "![")):  # which add to what their text names
            latest = named
    assert checked == len(re.findall(r" \[-?[\d.]+, ", findings)) > 50
