"""What is committed under results/ is what the code says of it."""

from pathlib import Path

from normscope.experiments import EXPERIMENTS, load
from normscope.experiments.summary import results_markdown, stored_results

FOLDER = Path(__file__).parents[2] / "results"


def test_results_md_is_made_from_the_stored_results() -> None:
    assert (FOLDER / "RESULTS.md").read_text() == results_markdown(FOLDER)


def test_every_experiment_is_stored_with_both_figures_and_simulations_at_the_papers_scale() -> None:
    stored = {results.experiment: results for results in stored_results(FOLDER)}
    assert stored.keys() == EXPERIMENTS.keys()
    for name, results in stored.items():
        scale = results.scale
        assert scale == "paper" or load(name).KIND == "training"
        assert results.seeds >= load(name).SEEDS[scale]
        assert (FOLDER / "figures" / f"{name}.{scale}.png").exists()
        assert (FOLDER / "figures" / f"{name}.{scale}.pdf").exists()
