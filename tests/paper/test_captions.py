"""What the experiments compute is what their captions say, not only that they compute."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from normscope_paper.figures import class_imbalance
from normscope_paper.figures.density import scaled
from normscope_paper.harness import Results, load
from normscope_paper.simulation import (
    RECIPES,
    converge_pairs,
    density_correlation,
    train_latent_classes,
)


def test_density_sets_the_trained_beside_the_untrained_network() -> None:
    data = load("density").run("smoke", 0, 2).data
    for name, recipe in RECIPES.items():
        done = train_latent_classes(scaled(recipe, "smoke"), seeds=[0, 1])
        for state, every in (("trained", done.embeddings), ("untrained", done.untrained)):
            found = density_correlation(every[1], done.data.labels[1])
            expected = pytest.approx([found.overall, found.within], abs=1e-4)
            assert data["correlations"][name][state][1] == expected


def test_class_imbalance_runs_three_readings_and_takes_the_papers_last_epoch(monkeypatch) -> None:
    seen = []

    def fake(recipe, seeds):
        seen.append(recipe)
        norms = torch.arange(101.0)[None, :, None] * torch.tensor([4.0, 3.0, 2.0, 1.0])
        return SimpleNamespace(norms=norms + torch.arange(len(seeds))[:, None, None])

    monkeypatch.setattr(class_imbalance, "train_latent_classes", fake)
    results = class_imbalance.run("paper", 0, 3)
    assert [r.noise for r in seen] == [1.0, pytest.approx(math.sqrt(0.1)), 1.0]
    assert [r.observation_scale for r in seen] == [10.0, 1.0, 1.0]
    assert {r.weights for r in seen} == {"geometric"}
    assert results.data["ends"]["text"]["last"][0] == [196.0, 147.0, 98.0, 49.0]
    growth = next(c for c in class_imbalance.check(results) if "trend" in c.sentence)
    assert growth.value == pytest.approx(49)


def test_weight_decay_and_convergence_run_the_readings_they_name() -> None:
    data = load("weight_decay_convergence").run("smoke", 0, 2).data
    for reading in ("norm", "squared"):
        expected = converge_pairs([1, 4, 7], [0.0], weight_decay=1.0, decay=reading, seeds=[0, 1])
        assert data["steps"][reading]["1"] == expected.steps[:, :, 0].tolist()
    assert data["outcomes"]["norm"]["10"] == [["overshoots"] * 3] * 2
    data = load("convergence_sim").run("smoke", 0, 2).data
    expected = converge_pairs(data["norms"], [0.0], moves="one", seeds=[0, 1])
    assert data["steps"]["text"] == expected.steps[:, :, 0].tolist()
    assert data["turned"]["3pi/4"] > data["turned"]["pi/2"] > data["turned"]["pi/4"]


def test_the_theorem_is_judged_on_real_steps() -> None:
    data = load("convergence_rate").run("smoke", 0, 1).data
    assert data["counterexample"] == pytest.approx(1.138, abs=5e-4)
    assert 0.25 < data["beyond"]["paper"] < 0.31
    assert data["beyond"]["valid"] == 0


def test_latents_are_measured_before_and_after_and_against_the_truth() -> None:
    accuracy = load("latents").run("smoke", 0, 2).data["accuracy"]
    assert min(accuracy["original"]) > 0.9  # noise of .1 keeps eight classes apart
    assert accuracy["trained"] != accuracy["untrained"]
    assert all(0.125 < a <= 1 for a in accuracy["untrained"])


@pytest.mark.parametrize(
    ("shift", "verdict"), [(-1.0, "reproduced"), (1.0, "not reproduced"), (0.0, "inconclusive")]
)
def test_density_can_come_out_each_way(shift: float, verdict: str) -> None:
    spread = np.array([-0.1, 0.0, 0.1])[:, None]
    states = {"trained": (shift * 0.5 + spread + [0, 0]).tolist(), "untrained": [[0.0, 0.0]] * 3}
    results = Results("density", "smoke", 3, 0, {"correlations": {"text": states}})
    claims = load("density").check(results)
    assert [claim.verdict for claim in claims] == [verdict] * 4
