"""What is committed under results/ is what the code says of it."""

from pathlib import Path

from normscope.experiments import EXPERIMENTS, load
from normscope.experiments.summary import results_markdown, stored_results

FOLDER = Path(__file__).parents[2] / "results"


def test_results_md_is_made_from_the_stored_results() -> None:
    assert (FOLDER / "RESULTS.md").read_text() == results_markdown(FOLDER)


def test_every_simulation_is_stored_at_the_papers_scale_with_both_figures() -> None:
    stored = {results.experiment: results for results in stored_results(FOLDER)}
    assert stored.keys() == EXPERIMENTS.keys()
    for name, results in stored.items():
        assert results.scale == "paper"
        assert results.seeds == load(name).SEEDS["paper"]
        assert (FOLDER / "figures" / f"{name}.paper.png").exists()
        assert (FOLDER / "figures" / f"{name}.paper.pdf").exists()
