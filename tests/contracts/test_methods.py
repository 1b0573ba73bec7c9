"""What every method promises, and that every intervention composes with every method."""

import math
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from normscope.engine import RunSpec, compose, train
from normscope.engine.compose import build, invariant_names
from normscope.interventions import GradScale
from normscope.methods import METHODS, StepOutput

INTERVENTIONS = {"cut": {"cut": 3.0}, "GradScale": {"grad_scale": 1.0}}


def step(spec: RunSpec) -> StepOutput:
    return build(spec, side=8)(torch.rand(2, 16, 3, 8, 8), torch.arange(16) % 4)


@pytest.mark.parametrize("name", METHODS)
def test_method_trains_two_epochs_with_falling_loss_and_finite_norms(
    name: str, tmp_path: Path
) -> None:
    # MoCo's queue begins with random directions, which are easy to tell from a key: as long as
    # they are there the loss is low, so it is compared from the time when they are gone
    full_after = {"moco_v2": 4}.get(name, 0)
    spec = RunSpec(method=name, epochs=2, log_every=1, batch=128)
    result = train(spec, folder=tmp_path / "run", device="cpu", quiet=True)
    losses = [r["loss"] for r in result.metrics("step")][full_after:]
    half = len(losses) // 2
    assert sum(losses[half:]) / (len(losses) - half) < sum(losses[:half]) / half
    for record in result.metrics("step"):
        assert math.isfinite(record["norm_mean"])
        assert record["norm_mean"] > 0
    assert 0 <= result.knn <= 1
    names = {p.name for p in result.folder.iterdir()}
    assert names >= {"spec.json", "metrics.jsonl", "checkpoint.pt", "encoder.safetensors"}


@pytest.mark.parametrize("name", METHODS)
def test_method_gives_a_step_of_the_stated_shapes(name: str) -> None:
    out = step(RunSpec(method=name))
    assert out.loss.shape == ()
    assert out.embeddings.shape == out.targets.shape
    assert len(out.features) == len(out.embeddings)
    assert out.embeddings.dtype == torch.float32


@pytest.mark.parametrize("name", METHODS)
def test_method_gives_a_gradient_to_all_but_its_target(name: str) -> None:
    method = build(RunSpec(method=name), side=8)
    before = {n: p.clone() for n, p in method.named_parameters()}
    method(torch.rand(2, 16, 3, 8, 8), torch.arange(16) % 4).loss.backward()
    for n, p in method.named_parameters():
        assert (p.grad is not None) == p.requires_grad, n
    copies = {n for n in before if n.startswith("momentum")}
    with torch.no_grad():
        for n, p in method.named_parameters():
            if n not in copies:
                p.add_(1.0)
    method.after_step(0.5)
    after = dict(method.named_parameters())
    assert {n for n in copies if not torch.equal(after[n], before[n])} == copies


@pytest.mark.parametrize("name", METHODS)
def test_layers_end_where_the_loss_acts(name: str) -> None:
    method = build(RunSpec(method=name), side=8)
    views = torch.rand(2, 16, 3, 8, 8)
    out = method(views, torch.arange(16) % 4)
    method = build(RunSpec(method=name), side=8)  # batch statistics as they were
    *_, z = method.layers(views.flatten(0, 1)[: len(out.embeddings)]).values()
    torch.testing.assert_close(z.float(), out.embeddings, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("kind", INTERVENTIONS)
def test_intervention_composes_with_method(name: str, kind: str, tmp_path: Path) -> None:
    spec = RunSpec(method=name, epochs=1, log_every=1, **INTERVENTIONS[kind])
    method = build(spec, side=8)
    assert isinstance(method.embedder[-1], GradScale) == (kind == "GradScale")
    assert ("cut_init_c" in method.state_dict()) == (kind == "cut")
    result = train(spec, folder=tmp_path / "run", device="cpu", quiet=True)
    assert math.isfinite(result.loss)
    assert math.isfinite(result.norm)


def test_networks_built_in_several_threads_are_the_same() -> None:
    with ThreadPoolExecutor(4) as pool:
        built = list(pool.map(lambda _: build(RunSpec(), side=8).state_dict(), range(12)))
    for name, value in built[0].items():
        assert all(torch.equal(value, other[name]) for other in built), name


@pytest.mark.parametrize("name", METHODS)
def test_cut_divides_every_parameter_once(name: str) -> None:
    plain = build(RunSpec(method=name), side=8).state_dict()
    cut = build(RunSpec(method=name, cut=3.0), side=8)
    for n, p in cut.named_parameters():
        torch.testing.assert_close(p.detach() * 3, plain[n])


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("scope", ["last", "rest", "invariant"])
def test_a_narrow_cut_takes_the_online_weights_and_their_copies(name: str, scope: str) -> None:
    spec = RunSpec(method=name, cut=2.0, cut_scope=scope)
    if (name, scope) == ("dino", "invariant"):  # a transformer, and no norm in its head
        with pytest.raises(ValueError, match="parameters in scope"):
            build(spec, side=8)
        return
    plain = dict(build(RunSpec(method=name), side=8).named_parameters())
    cut = build(spec, side=8)
    moved = {n for n, p in cut.named_parameters() if not torch.equal(p, plain[n])}
    online = {n for n in moved if not n.startswith("momentum")}
    assert online
    if scope == "last":
        layers = [layer for layer in cut.embedder if isinstance(layer, torch.nn.Linear)]
        last = {id(p) for p in layers[-1].parameters()}
        assert {id(p) for n, p in cut.named_parameters() if n in online} == last
    if scope == "rest":  # what starts at zero no cut moves
        invariant = invariant_names(cut, 8)
        filled = {n for n, p in plain.items() if p.any() and not n.startswith("momentum")}
        assert online == filled - invariant
    before = {n: p.clone() for n, p in cut.named_parameters()}
    cut.follow(0.0)
    assert all(torch.equal(p, before[n]) for n, p in cut.named_parameters())


@pytest.mark.parametrize(
    ("net", "side"),
    [("resnet18", 32), ("resnet10_narrow", 64), ("vit_tiny", 32), ("vit_tiny_fixed", 64)],
)
def test_a_network_is_probed_whatever_side_it_trains_at(net: str, side: int) -> None:
    method = build(RunSpec(data="cifar10", net=net, options={"dimension": 8}), side=side)
    names = invariant_names(method, side)
    assert any(n.startswith("backbone") for n in names) == ("resnet" in net)


def test_a_network_is_probed_by_one_thread(monkeypatch) -> None:
    during = []

    def found(*_: object) -> set[str]:
        during.append(torch.get_num_threads())
        return set()

    monkeypatch.setattr(compose, "scale_invariant_parameters", found)
    monkeypatch.setattr(compose, "_invariant", {})
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        invariant_names(build(RunSpec(), side=8), 8)
        assert during == [1]
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("name", METHODS)
def test_grad_scale_changes_gradients_and_not_the_loss(name: str) -> None:
    plain, scaled = (build(RunSpec(method=name, grad_scale=p), side=8) for p in (0.0, 1.0))
    views, labels = torch.rand(2, 16, 3, 8, 8), torch.arange(16) % 4
    losses = [m(views, labels).loss for m in (plain, scaled)]
    assert losses[0] == losses[1]
    for loss in losses:
        loss.backward()
    some = [[p.grad for p in m.embedder.parameters()] for m in (plain, scaled)]
    assert not all(torch.equal(a, b) for a, b in zip(*some, strict=True))
