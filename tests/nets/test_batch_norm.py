"""Synchronised batch norm: two real processes against one on the joined batch."""

import subprocess
import sys
from contextlib import ExitStack
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest
import torch
from torch import nn

from normscope.nets import resnet10_narrow, synchronised
from normscope.nets.batch_norm import JoinedBatchNorm

WORKER = Path(__file__).with_name("norm_worker.py")


def load_worker():
    spec = spec_from_file_location("norm_worker", WORKER)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> list[dict]:
    """What each of two processes got."""
    folder = tmp_path_factory.mktemp("gloo")
    command = [sys.executable, "-W", "error", str(WORKER)]
    with ExitStack() as stack:
        processes = [
            stack.enter_context(
                subprocess.Popen([*command, str(rank), str(folder)], stderr=subprocess.PIPE)
            )
            for rank in range(2)
        ]
        for process in processes:
            stack.callback(process.kill)  # a hung one must not outlive the test
        ends = [process.communicate(timeout=120)[1].decode() for process in processes]
    assert [process.returncode for process in processes] == [0, 0], ends
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(2)]


def test_synchronised_on_two_processes_equals_one_on_the_joined_batch(two: list[dict]) -> None:
    worker = load_worker()
    joined = worker.train(worker.network(), worker.images(), slice(None))
    for rank, got in enumerate(two):
        own = slice(rank * worker.ROWS, (rank + 1) * worker.ROWS)
        torch.testing.assert_close(got["out"], joined["out"][own], rtol=1e-6, atol=1e-6)
        for kind in ("grads", "buffers"):
            assert len(got[kind]) == len(joined[kind]) > 0
            for value, expected in zip(got[kind], joined[kind], strict=True):
                torch.testing.assert_close(value, expected, rtol=1e-6, atol=1e-6)


def test_synchronised_in_eval_mode_uses_the_running_statistics(two: list[dict]) -> None:
    worker = load_worker()
    net, x = worker.network(), worker.images()
    worker.train(net, x, slice(None))
    for rank, got in enumerate(two):
        own = slice(rank * worker.ROWS, (rank + 1) * worker.ROWS)
        torch.testing.assert_close(got["evaluated"], net.eval()(x[-1][own]).detach())


def test_synchronised_differs_from_each_half_alone(two: list[dict]) -> None:
    worker = load_worker()
    alone = worker.train(worker.network(), worker.images(), slice(worker.ROWS))
    assert (two[0]["out"] - alone["out"]).abs().max() > 0.1


def test_synchronised_keeps_parameters_buffers_and_names() -> None:
    net = resnet10_narrow()
    before = dict(net.state_dict(keep_vars=True))
    assert synchronised(net) is net
    after = net.state_dict(keep_vars=True)
    assert list(after) == list(before)
    assert all(after[name] is before[name] for name in before)
    assert not any(type(m) is nn.BatchNorm2d for m in net.modules())


def test_synchronised_alone_is_an_ordinary_batch_norm() -> None:
    plain, joined = nn.BatchNorm1d(3), synchronised(nn.BatchNorm1d(3))
    assert isinstance(joined, JoinedBatchNorm)
    x = torch.randn(8, 3)
    for _ in range(2):
        assert torch.equal(joined(x), plain(x))
    for value, expected in zip(joined.buffers(), plain.buffers(), strict=True):
        assert torch.equal(value, expected)
    assert torch.equal(joined.eval()(x), plain.eval()(x))


def test_synchronised_twice_changes_nothing_more() -> None:
    net = synchronised(resnet10_narrow())
    layers = list(net.modules())
    assert list(synchronised(net).modules()) == layers


def test_synchronised_keeps_a_shared_layer_shared() -> None:
    norm = nn.BatchNorm1d(3)
    net = synchronised(nn.Sequential(norm, nn.ReLU(), norm))
    assert net[0] is net[2]
    assert isinstance(net[0], JoinedBatchNorm)


def test_synchronised_keeps_the_mode() -> None:
    assert not synchronised(nn.Sequential(nn.BatchNorm1d(3)).eval())[0].training


def test_joined_batch_norm_refuses_other_channels_in_one_line() -> None:
    layer = synchronised(nn.BatchNorm2d(3))
    with pytest.raises(ValueError, match=r"input must be a tensor \(n, 3, ...\), got a float32"):
        layer(torch.zeros(2, 4, 5, 5))


@pytest.mark.gpu
def test_synchronised_on_a_gpu_is_torchs_own() -> None:
    net = synchronised(resnet10_narrow().cuda())
    assert type(net.bn1) is nn.SyncBatchNorm
