"""Averaged weights, and training that begins with smaller views."""

import copy
import time
from pathlib import Path

import pytest
import torch
from tests.bits import assert_same  # pyright: ignore[reportMissingImports]

from normscope import data, load_encoder
from normscope.engine import RunFolder, RunSpec, Stopped, evaluate, step, train
from normscope.engine.average import Average
from normscope.engine.compose import build

SHORT = {"method": "simclr", "epochs": 4, "batch": 128}
BOTH = RunSpec(**SHORT, small_views=0.5, average=0.9)


def test_average_follows_weights_and_statistics_by_its_formula() -> None:
    method = build(RunSpec(**SHORT), side=8)
    average, before = Average(method, 0.75), copy.deepcopy(method)
    with torch.no_grad():
        for x in (*method.parameters(), *method.buffers()):
            x.add_(1)
    average.follow()
    for was, now in zip(
        before.state_dict().items(), average.network.state_dict().items(), strict=True
    ):
        if was[1].is_floating_point():
            torch.testing.assert_close(now[1], was[1] + 0.25, msg=was[0])


def test_averaged_run_keeps_and_evaluates_the_average(tmp_path: Path) -> None:
    spec = RunSpec(**SHORT, average=0.9)
    result = train(spec, folder=tmp_path, device="cpu", quiet=True)
    assert evaluate(tmp_path)["layers"]["backbone"]["knn"] == pytest.approx(result.knn)
    state = torch.load(RunFolder(tmp_path).checkpoint, weights_only=True)
    kept = load_encoder(tmp_path).state_dict()
    name = next(n for n in state["average"] if n.startswith("backbone") and n.endswith("weight"))
    stored = next(v for n, v in kept.items() if n.endswith(name.removeprefix("backbone.")))
    torch.testing.assert_close(stored, state["average"][name])
    assert not stored.equal(state["method"][name])


@pytest.mark.parametrize("precision", ["32", "64"])
def test_average_ends_near_the_weights_and_not_where_they_began(
    tmp_path: Path, precision: str
) -> None:
    spec = RunSpec(**SHORT | {"epochs": 1}, average=0.5, precision=precision)
    train(spec, folder=tmp_path, device="cpu", quiet=True)
    state = torch.load(RunFolder(tmp_path).checkpoint, weights_only=True)
    began = build(spec, side=8).state_dict()
    for name, weight in state["method"].items():
        if weight.is_floating_point():
            average = state["average"][name]
            assert average.dtype == weight.dtype
            assert (average - weight).norm() < 0.5 * (began[name] - weight).norm(), name


def test_first_share_of_epochs_has_views_of_three_quarters_side(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sides = []
    seen = step.Step.gradients

    def noted(self: step.Step, *args: object, **options: object) -> object:
        sides.append(self.augment.size)
        return seen(self, *args, **options)

    monkeypatch.setattr(step.Step, "gradients", noted)
    train(RunSpec(**SHORT, small_views=0.5), folder=tmp_path, device="cpu", quiet=True)
    each = len(sides) // 2
    assert sides == [6] * each + [8] * each


@pytest.mark.parametrize("seconds", [0.5, 1.2])
def test_stopped_run_resumes_to_the_same_bits(tmp_path: Path, seconds: float) -> None:
    images = data.load("digits")
    whole = train(BOTH, folder=tmp_path / "whole", device="cpu", quiet=True, images=images)
    options = {"folder": tmp_path / "parts", "device": "cpu", "quiet": True, "images": images}
    with pytest.raises(Stopped):
        train(BOTH, **options, until=time.monotonic() + seconds * whole.seconds / 2)
    train(BOTH, **options, resume=True)
    assert_same(tmp_path / "parts", tmp_path / "whole")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"small_views": 1.5}, "small_views must be a share of the run"),
        ({"small_views": 0.5, "net": "vit_micro"}, "small_views must be 0 with vit_micro"),
        ({"average": 1.0}, "average must be below 1"),
    ],
)
def test_impossible_settings_are_refused(values: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RunSpec(**{**SHORT, **values})
