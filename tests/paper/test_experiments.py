"""Every experiment of the registry keeps the contract, at smoke scale."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from normscope import data
from normscope.data import ImageArrays, Split
from normscope.data.images import array_checksum
from normscope_paper.harness import EXPERIMENTS, SCALES, Results, Sweep, load, reproduce
from normscope_paper.harness.registry import caption
from normscope_paper.harness.runner import write_summary
from normscope_paper.harness.summary import heading_of
from normscope_paper.harness.sweep import SETTINGS
from normscope_paper.own import angular, cut_limits

SIMULATIONS = [name for name in EXPERIMENTS if load(name).KIND == "simulation"]
TRAINED = [name for name in EXPERIMENTS if name not in SIMULATIONS]


@pytest.fixture(scope="module", autouse=True)
def _short_runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """One epoch, of the digits a fifth: the contract asks for no more."""
    few = fifth(data.load("digits"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NORMSCOPE_RUNS", str(tmp_path_factory.mktemp("runs")))
        patch.setitem(SETTINGS, "smoke", {"epochs": 1})
        for name in ("digits", "digits-held-out"):
            images = replace(few, name=name)
            digits = replace(data.DATASETS[name], load=lambda _, images=images: images)
            patch.setitem(data.DATASETS, name, digits)
        for experiment in (angular, cut_limits):
            patch.setitem(experiment.EPOCHS, "smoke", 1)
        patch.setattr(angular, "CUTS", {"simclr": 3.0})
        patch.setattr(angular, "ANGLES", (0.02, 0.05))
        patch.setattr(angular, "RATES", (1.0, 9.0))
        yield


def fifth(whole: ImageArrays) -> ImageArrays:
    train, test = (
        Split(np.asarray(split.images)[::5], split.labels[::5])
        for split in (whole.train, whole.test)
    )
    return replace(whole, train=train, test=test, checksum=array_checksum(train, test))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("results")


@pytest.mark.parametrize("name", SIMULATIONS)
def test_simulation_runs_is_judged_and_is_drawn_from_its_json_alone(name, folder: Path) -> None:
    check_run(name, folder, Sweep())


def test_trained_experiments_are_judged_and_drawn_alike(folder: Path) -> None:
    sweep = Sweep()
    for name in TRAINED:  # in one test, for they share their runs
        check_run(name, folder, sweep, seeds=2)


def check_run(name: str, folder: Path, sweep: Sweep, seeds: int | None = None) -> None:
    options = {"seeds": seeds, "folder": folder, "sweep": sweep}
    results, claims = reproduce(name, scale="smoke", seed=3, **options)
    write_summary(folder)
    path = folder / f"{name}.smoke.json"
    stored = Results.load(path)
    assert path.stat().st_size < 300_000
    assert stored.made.versions["torch"]
    assert stored.data == json.loads(json.dumps(results.data))
    experiment = load(name)
    assert experiment.check(stored) == claims
    assert claims
    assert isinstance(experiment.plot(stored), Figure)
    for suffix, head in ((".png", b"\x89PNG"), (".pdf", b"%PDF")):
        assert (folder / "figures" / f"{name}.smoke{suffix}").read_bytes().startswith(head)
    summary = (folder / "RESULTS.md").read_text()
    assert f"## {heading_of(stored)} (smoke)" in summary
    assert not list(folder.rglob("*.partial"))


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_experiment_says_what_it_is(name: str) -> None:
    experiment = load(name)
    assert f"    normscope reproduce {name}" in (experiment.__doc__ or "").split("\n\n")[2]
    assert caption(name).endswith((".", ")"))
    assert experiment.PLACE
    assert experiment.KIND in ("simulation", "training")
    assert set(experiment.SEEDS) == set(SCALES)
    assert experiment.COST


# runs that were trained are shared, so the second time would find the first's; that training
# depends on its seed alone is tested with the engine
@pytest.mark.parametrize("name", SIMULATIONS)
def test_simulation_depends_on_its_seed_alone(name: str) -> None:
    experiment = load(name)
    seeds = min(2, experiment.SEEDS["smoke"])
    first, again = (experiment.run("smoke", 7, seeds).data for _ in range(2))
    assert first == again
