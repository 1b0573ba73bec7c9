"""Ctrl-C during training: answered at once, and heeded at the next safe point."""

import os
import signal
import threading
import time
from pathlib import Path

import pytest
import torch

from normscope.engine import RunFolder, RunSpec, Stopped, train
from normscope.engine.interrupts import Interrupts

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_an_operation_that_takes_long_does_not_delay_the_answer() -> None:
    answered: list[float] = []
    a = torch.ones(1500, 1500, dtype=torch.float64)
    with Interrupts(lambda: answered.append(time.monotonic())) as interrupts:
        threading.Timer(0.05, interrupt).start()
        torch.linalg.svd(a)  # one operation of more than a second
        ended = time.monotonic()
    assert interrupts.received == signal.SIGINT
    assert len(answered) == 1
    assert answered[0] < ended - 0.1


def test_without_a_signal_nothing_is_answered_and_all_is_as_before() -> None:
    before = signal.getsignal(signal.SIGINT), threading.active_count()
    with Interrupts(lambda: pytest.fail("answered")):
        pass
    assert (signal.getsignal(signal.SIGINT), threading.active_count()) == before
    assert signal.set_wakeup_fd(-1) == -1


def test_training_says_that_it_finishes_the_step_and_saves(tmp_path: Path, capfd) -> None:
    run = RunFolder(tmp_path / "run")

    def interrupt_once_it_logs() -> None:
        while not (run.metrics.exists() and run.metrics.stat().st_size):
            time.sleep(0.01)
        interrupt()

    threading.Thread(target=interrupt_once_it_logs).start()
    with pytest.raises(Stopped, match="saved in"):
        train(RunSpec(epochs=500), folder=run.path, device="cpu")
    assert capfd.readouterr().err.count("finishing the step, then saving") == 1
    assert run.checkpoint.exists()
