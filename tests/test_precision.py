"""Nothing on the way from images to norms needs float64 on the device: Apple's GPUs have none."""

from collections.abc import Iterator

import pytest
import torch
from tests.no_float64 import (  # pyright: ignore[reportMissingImports]
    KIND,
    DeviceWithoutFloat64,
    OnDevice,
)
from torch import Tensor

import normscope as ns
from normscope import _precision, losses
from normscope.engine import RunSpec, build
from normscope.engine.optimizers import optimizer_for
from normscope.evaluation import knn, linear_probe, novelty_scores
from normscope.losses.partition import log_partition
from normscope.methods import METHODS


@pytest.fixture(autouse=True)
def _device(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(_precision, "WITHOUT_FLOAT64", {KIND})
    autocast = torch.autocast  # knows the device by its real name alone
    monkeypatch.setattr(torch, "autocast", lambda kind, **o: autocast(_known(kind), **o))
    before = torch.__future__.get_swap_module_params_on_conversion()
    torch.__future__.set_swap_module_params_on_conversion(True)
    with DeviceWithoutFloat64():
        yield
    torch.__future__.set_swap_module_params_on_conversion(before)


def _known(kind: str) -> str:
    return "cpu" if kind == KIND else kind


def both(*shape: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """The same numbers on the CPU and on the device."""
    x = torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
    return x, x.to(KIND)


def test_the_device_refuses_float64() -> None:
    x, there = both(2, 3)
    assert isinstance(there, OnDevice)
    assert there.device.type == KIND
    with pytest.raises(TypeError, match="no float64"):
        there.double()
    with pytest.raises(TypeError, match="no float64"):
        torch.zeros(2, device=KIND, dtype=torch.float64)
    assert torch.equal(there.cpu(), x)


def test_norms_of_any_size_are_those_of_the_cpu() -> None:
    x, _ = both(4, 8)
    x[0], x[1], x[2] = x[0] * 1e30, x[1] * 1e-30, 0.0
    there = x.to(KIND)
    torch.testing.assert_close(ns.grad_scale(there).cpu(), x)
    for ours, theirs in zip(_units(there), _units(x), strict=True):
        torch.testing.assert_close(ours.cpu(), theirs)


def _units(z: Tensor) -> tuple[Tensor, ...]:
    from normscope._sphere import norm_factor, safe_norm, unit

    return *unit(z), safe_norm(z), norm_factor(safe_norm(z), 1.0, "share")


def test_the_monitor_sees_what_it_sees_on_the_cpu() -> None:
    seen = []
    for z in both(20, 8):
        z.requires_grad_()
        losses.info_nce(*z.chunk(2), temperature=0.01).backward()
        monitor = ns.NormMonitor()
        monitor.observe(z, lr=0.1)
        seen.append(monitor.records()[-1])
    assert seen[0].keys() == seen[1].keys()
    for name, value in seen[0].items():
        assert seen[1][name] == pytest.approx(value, rel=1e-3, abs=1e-6, nan_ok=True), name


def test_knn_probe_and_novelty_answer_as_on_the_cpu() -> None:
    bank, queries = both(60, 8), both(12, 8, seed=1)
    y = torch.arange(60) % 3
    found = []
    for z, q, labels in ((bank[0], queries[0], y), (bank[1], queries[1], y.to(KIND))):
        vote, probe = knn(z, labels, q, k=5), linear_probe(z, labels, q)
        scores = novelty_scores(z, q, labels=labels)
        numbers = [vote.scores, probe.logits, *scores.values()]
        found.append([x.cpu().float() for x in numbers])
        assert 0 <= vote.accuracy(labels[:12]) <= 1
        assert 0 <= probe.accuracy(labels[:12]) <= 1
    for there, here in zip(*reversed(found), strict=True):
        torch.testing.assert_close(there, here, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_takes_a_step(method: str) -> None:
    spec = RunSpec(method=method, net="vit_micro", cut=3.0, grad_scale=1.0)
    net = build(spec, side=8).to(KIND)
    optimizer = optimizer_for(net, spec)
    views = torch.rand(2, 8, 3, 8, 8).to(KIND)
    out = net(views, (torch.arange(8) % 2).to(KIND))
    out.loss.backward()
    optimizer.step()
    net.after_step(0.5)
    assert out.loss.device.type == KIND


def test_a_sharp_loss_is_near_the_cpus() -> None:
    u = torch.nn.functional.normalize(both(16, 8)[0])
    here = log_partition(u, temperature=0.02).float()
    there = log_partition(u.to(KIND), temperature=0.02).cpu()
    torch.testing.assert_close(there, here, rtol=1e-4, atol=1e-4)
