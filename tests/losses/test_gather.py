"""Two real processes against one on the joined batch."""

import subprocess
import sys
from contextlib import ExitStack
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest
import torch

WORKER = Path(__file__).with_name("gather_worker.py")


def load_worker():
    spec = spec_from_file_location("gather_worker", WORKER)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run_two(folder: Path, case: str) -> list[dict]:
    command = [sys.executable, str(WORKER)]
    with ExitStack() as stack:
        processes = [
            stack.enter_context(
                subprocess.Popen([*command, str(rank), str(folder), case], stderr=subprocess.PIPE)
            )
            for rank in range(2)
        ]
        for process in processes:
            stack.callback(process.kill)  # a hung one must not outlive the test
        ends = [process.communicate(timeout=120)[1].decode() for process in processes]
    assert [process.returncode for process in processes] == [0, 0], ends
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(2)]


def test_info_nce_gather_on_two_processes_equals_one_on_the_joined_batch(tmp_path: Path) -> None:
    worker = load_worker()
    x1, x2 = worker.images()
    joined = worker.step(worker.network(), x1, x2, gather=False)
    for rank, got in enumerate(run_two(tmp_path, "even")):
        torch.testing.assert_close(got["loss"], joined["loss"], rtol=1e-6, atol=1e-6)
        for value, expected in zip(got["grads"], joined["grads"], strict=True):
            torch.testing.assert_close(value, expected, rtol=1e-6, atol=1e-6)
        own = joined["z1_grad"][rank * worker.ROWS : (rank + 1) * worker.ROWS]
        # DDP divides by the number of processes, so each sends that many times the gradient
        torch.testing.assert_close(got["z1_grad"], worker.WORLD * own, rtol=1e-6, atol=1e-6)


def test_info_nce_gather_differs_from_training_on_each_half_alone(tmp_path: Path) -> None:
    worker = load_worker()
    x1, x2 = worker.images()
    alone = worker.step(worker.network(), x1[: worker.ROWS], x2[: worker.ROWS], gather=False)
    got = run_two(tmp_path, "even")[0]
    assert abs(got["loss"] - alone["loss"]) > 0.1


@pytest.mark.parametrize("case", ["uneven", "temperature"])
def test_info_nce_gather_refuses_what_differs_between_processes(tmp_path: Path, case: str) -> None:
    for got in run_two(tmp_path, case):
        assert "must be alike on every process" in got["error"]
