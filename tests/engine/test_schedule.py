"""Learning rates by hand, decay by policy, and LARS against its sums."""

import math

import pytest
import torch
from torch import nn

from normscope.engine import RunSpec
from normscope.engine.compose import build
from normscope.engine.optimizers import optimizer_for, set_lr_
from normscope.engine.schedule import lr_share, peak_lr
from normscope.optim import LARS, OPTIMIZERS


def test_lr_is_linear_in_the_batch() -> None:
    assert peak_lr(RunSpec(data="cifar10", batch=1024)) == pytest.approx(4 * 0.18)


def test_cosine_clock_starts_at_the_warm_ups_end_or_at_zero() -> None:
    values = {"data": "cifar10", "epochs": 100, "warmup_epochs": 20.0}
    text = RunSpec(**values)
    coded = RunSpec(**values, cosine_start="zero", horizon_epochs=200.0)
    assert lr_share(text, 20) == 1
    assert lr_share(text, 60) == pytest.approx(0.5)
    assert lr_share(coded, 20) == pytest.approx((1 + math.cos(math.pi * 0.1)) / 2)
    assert lr_share(coded, 100) == pytest.approx(0.5)


def test_no_warm_up_starts_at_the_peak() -> None:
    assert lr_share(RunSpec(data="cifar10", warmup_epochs=0.0), 0) == 1


def _decaying(decay: str) -> set[int]:
    spec = RunSpec(decay=decay, weight_decay=0.1)
    optimizer = optimizer_for(build(spec, side=8), spec)
    groups = [g for g in optimizer.param_groups if g["weight_decay"] > 0]
    return {p.ndim for g in groups for p in g["params"]}


def test_decay_all_takes_biases_and_norms_and_no_bias_norm_leaves_them() -> None:
    assert _decaying("all") == {1, 2, 4}
    assert _decaying("no_bias_norm") == {2, 4}


def test_every_parameter_with_a_gradient_is_in_one_group() -> None:
    for method in ("simsiam", "byol"):
        spec = RunSpec(method=method, predictor_lr=0.2)
        network = build(spec, side=8)
        optimizer = optimizer_for(network, spec)
        members = [id(p) for g in optimizer.param_groups for p in g["params"]]
        assert sorted(members) == sorted(id(p) for p in network.parameters() if p.requires_grad)


def test_predictor_keeps_its_own_learning_rate() -> None:
    spec = RunSpec(method="simsiam", predictor_lr=0.2)
    network = build(spec, side=8)
    optimizer = optimizer_for(network, spec)
    set_lr_(optimizer, 0.01)
    predictor = {id(p) for p in network.predictor.parameters()}
    for group in optimizer.param_groups:
        own = {id(p) for p in group["params"]} <= predictor
        assert group["lr"] == (0.2 if own else 0.01)


@pytest.mark.parametrize("rate", ["outside", "inside"])
def test_lars_takes_the_steps_of_its_formula_while_its_rate_falls(rate) -> None:
    torch.manual_seed(0)
    layer = nn.Linear(3, 2).double()
    w, b = layer.weight.detach().clone(), layer.bias.detach().clone()
    settings = {"momentum": 0.9, "weight_decay": 0.01, "trust": 0.1}
    optimizer = LARS(layer.parameters(), lr=0.5, **settings, rate=rate)
    velocity_w, velocity_b = torch.zeros_like(w), torch.zeros_like(b)
    for lr in (0.5, 0.4, 0.1):
        optimizer.param_groups[0]["lr"] = lr
        before, after = (lr, 1.0) if rate == "inside" else (1.0, lr)
        x = torch.randn(4, 3, dtype=torch.float64)
        optimizer.zero_grad()
        layer(x).square().sum().backward()
        assert layer.weight.grad is not None
        assert layer.bias.grad is not None
        g_w, g_b = layer.weight.grad + 0.01 * w, layer.bias.grad + 0.01 * b
        velocity_w = 0.9 * velocity_w + before * 0.1 * w.norm() / g_w.norm() * g_w
        velocity_b = 0.9 * velocity_b + before * g_b
        w, b = w - after * velocity_w, b - after * velocity_b
        optimizer.step()
        torch.testing.assert_close(layer.weight.detach(), w)
        torch.testing.assert_close(layer.bias.detach(), b)


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_every_optimizer_lowers_the_loss(kind: str) -> None:
    spec = RunSpec(optimizer=kind, lr=0.01, weight_decay=0.0)
    network = build(spec, side=8)
    optimizer = optimizer_for(network, spec)
    views, labels = torch.rand(2, 32, 3, 8, 8), torch.zeros(32, dtype=torch.long)
    losses = []
    for _ in range(8):
        loss = network(views, labels).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]


def test_lars_takes_a_closure_as_lightning_gives_it() -> None:
    weight = nn.Parameter(torch.tensor([[3.0, 4.0]]))
    optimizer = LARS([weight], lr=1.0, momentum=0.0)

    def closure() -> float:
        optimizer.zero_grad()
        loss = weight.square().sum()
        loss.backward()
        return loss.item()

    assert optimizer.step(closure) == 25
    assert weight.norm().item() == pytest.approx(5 - 0.001 * 5)
