"""The range test on plain loops: what it finds, and that nothing of it stays."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from normscope import cut_init_, range_test
from normscope.losses import info_nce
from normscope.report import save_range_figure


def network() -> nn.Module:
    hidden = nn.Linear(16, 32, bias=False), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.1)
    return nn.Sequential(*hidden, nn.Linear(32, 8))


def steps_of(net: nn.Module, seed: int = 0) -> Callable[[], Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(512, 16, generator=generator)

    def step() -> Tensor:
        rows = x[torch.randint(512, (64,), generator=generator)]
        views = [net(rows + 0.3 * torch.randn(rows.shape, generator=generator)) for _ in range(2)]
        loss = info_nce(*views, temperature=0.5)
        loss.backward()
        return loss

    return step


def sgd(net: nn.Module, lr: float) -> torch.optim.Optimizer:
    return torch.optim.SGD(net.parameters(), lr=lr, momentum=0.9)


def test_everything_is_restored_bit_by_bit() -> None:
    net = network()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    step = steps_of(net)
    for _ in range(3):  # a state worth restoring
        optimizer.zero_grad()
        step()
        optimizer.step()
    weights = {name: t.clone() for name, t in net.state_dict().items()}
    state, random = optimizer.state_dict(), torch.get_rng_state()
    moments = {i: {k: v.clone() for k, v in s.items()} for i, s in state["state"].items()}
    gradients = [p.grad for p in net.parameters()]
    range_test(step, optimizer, net)
    assert all(torch.equal(weights[name], t) for name, t in net.state_dict().items())
    after = optimizer.state_dict()
    assert after["param_groups"] == state["param_groups"]
    assert after["state"].keys() == moments.keys()
    for i, values in moments.items():
        assert all(torch.equal(v, after["state"][i][k]) for k, v in values.items())
    assert torch.equal(random, torch.get_rng_state())
    assert all(p.grad is g for p, g in zip(net.parameters(), gradients, strict=True))


def test_an_interrupted_test_restores_too() -> None:
    net = network()
    optimizer, inner = sgd(net, 0.1), steps_of(net)
    before = {name: t.clone() for name, t in net.state_dict().items()}
    calls = 0

    def step() -> Tensor:
        nonlocal calls
        calls += 1
        if calls == 20:
            raise KeyboardInterrupt
        return inner()

    with pytest.raises(KeyboardInterrupt):
        range_test(step, optimizer, net)
    assert all(torch.equal(before[name], t) for name, t in net.state_dict().items())
    assert optimizer.param_groups[0]["lr"] == 0.1


@pytest.mark.parametrize("lr", [1e-5, 0.015, 30.0])
def test_the_advised_rate_does_not_depend_on_the_rate_that_is_set(lr: float) -> None:
    net = network()
    found = range_test(steps_of(net), sgd(net, lr), net)
    assert 0.008 < found.advised.lr < 0.03
    assert found.factor == pytest.approx(found.advised.lr / lr)
    said = {1e-5: "raise the lr", 0.015: "keep the lr", 30.0: "lower the lr"}
    assert found.advice.startswith(said[lr])
    assert found.lrs[0] < found.advised.lr < found.stable.lr <= found.lrs[-1]


def test_a_cut_of_three_asks_for_a_ninth_of_the_rate() -> None:
    net = nn.Sequential(nn.Linear(16, 64, bias=False), nn.BatchNorm1d(64), nn.ReLU())
    net.append(nn.Linear(64, 8, bias=False))
    net.append(nn.BatchNorm1d(8))  # all weights are scale-invariant
    whole = range_test(steps_of(net), sgd(net, 0.1), net)
    cut_init_(net, 3.0, {"0.weight", "3.weight"})
    cut = range_test(steps_of(net), sgd(net, 0.1), net)
    assert whole.advised.lr / cut.advised.lr == pytest.approx(9, rel=0.15)
    assert whole.advised.angle == pytest.approx(cut.advised.angle, rel=0.3)


def test_a_cut_is_advised_for_sgd_alone() -> None:
    net = network()
    found = range_test(steps_of(net), sgd(net, 1e-4), net)
    assert found.cut == pytest.approx(found.factor**0.5)
    assert "(or cut by" in found.advice
    adam = range_test(steps_of(net), torch.optim.AdamW(net.parameters(), lr=1e-6), net)
    assert adam.cut == 1.0
    assert "cut" not in adam.advice


def test_groups_keep_their_proportions_and_an_unscheduled_one_its_rate() -> None:
    net = network()
    groups: list[dict[str, Any]] = [
        {"params": net[0].parameters(), "lr": 0.1},
        {"params": net[1].parameters(), "lr": 0.3},
        {"params": net[4].parameters(), "lr": 0.7, "scheduled": False},
    ]
    optimizer = torch.optim.SGD(groups)
    seen = []
    inner = steps_of(net)

    def step() -> Tensor:
        seen.append([group["lr"] for group in optimizer.param_groups])
        return inner()

    with pytest.raises(ValueError, match="steps must be enough to reach an lr that is too high"):
        range_test(step, optimizer, net, steps=40)
    assert all(b == pytest.approx(3 * a) and c == 0.7 for a, b, c in seen)
    assert len({a for a, _, _ in seen}) > 30
    assert [group["lr"] for group in optimizer.param_groups] == [0.1, 0.3, 0.7]


def test_after_is_called_once_a_step_and_progress_told() -> None:
    net = network()
    calls, told = [], []
    found = range_test(
        steps_of(net),
        sgd(net, 0.1),
        net,
        after=lambda: calls.append(1),
        progress=lambda done, of: told.append((done, of)),
    )
    assert told == [(n + 1, 600) for n in range(len(told))]
    assert len(calls) == 1 + len(told) >= len(found.lrs)  # one finds where to begin


def test_the_figure_is_a_png(tmp_path) -> None:
    net = network()
    path = tmp_path / "range.png"
    save_range_figure(range_test(steps_of(net), sgd(net, 0.1), net), path)
    assert path.read_bytes().startswith(b"\x89PNG")


def test_wrong_arguments_are_named() -> None:
    net = network()
    optimizer, step = sgd(net, 0.1), steps_of(net)
    with pytest.raises(ValueError, match="steps must be an integer of at least 36"):
        range_test(step, optimizer, net, steps=5)
    with pytest.raises(ValueError, match="lr must be a positive finite number"):
        range_test(step, sgd(net, 0.0), net)
    with pytest.raises(ValueError, match="step must be one whose first loss is finite"):
        range_test(lambda: torch.tensor(math.nan), optimizer, net)
    with pytest.raises(ValueError, match="and turns the weights"):
        range_test(lambda: torch.tensor(1.0), optimizer, net)  # no backward
    with pytest.raises(ValueError, match="weights of two dimensions"):
        range_test(step, torch.optim.SGD([net[1].weight], lr=0.1), net)


@pytest.mark.filterwarnings("ignore")
def test_a_module_that_fabric_wraps_is_taken() -> None:
    fabric_of = pytest.importorskip("lightning_fabric").Fabric
    fabric = fabric_of(accelerator="cpu", devices=1)
    net = network()
    wrapped, optimizer = fabric.setup(net, sgd(net, 1e-4))
    x = torch.randn(128, 16)

    def step() -> Tensor:
        loss = info_nce(wrapped(x), wrapped(x + 0.1 * torch.randn_like(x)), temperature=0.5)
        fabric.backward(loss)
        return loss

    found = range_test(step, optimizer, wrapped)
    assert found.factor > 10
    assert "(or cut by" in found.advice
