"""Ctrl-C during training: answered at once, and heeded at the next safe point."""

import os
import signal
import threading
import time
from pathlib import Path

import pytest
import torch

from normscope.engine import RunFolder, RunSpec, Stopped, loop, train
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


def test_a_second_signal_stops_though_both_came_in_one_operation() -> None:
    a = torch.ones(1500, 1500, dtype=torch.float64)
    answered: list[float] = []
    with Interrupts(lambda: answered.append(time.monotonic())):
        for seconds in (0.05, 0.7):
            threading.Timer(seconds, interrupt).start()
        with pytest.raises(KeyboardInterrupt):
            torch.linalg.svd(torch.cat([a, a]))  # Python itself sees one signal, when this ends
    assert len(answered) == 1


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


def test_a_signal_that_is_sent_twice_is_one_request() -> None:
    with Interrupts(lambda: None) as interrupts:
        interrupt()
        interrupt()
    assert interrupts.received == signal.SIGINT


def test_a_second_ctrl_c_stops_without_saving(tmp_path: Path, capfd, monkeypatch) -> None:
    def twice(*_: object) -> bool:
        interrupt()
        time.sleep(0.6)
        interrupt()
        return True

    monkeypatch.setattr(loop.Loop, "_asked_to_stop", twice)
    with pytest.raises(KeyboardInterrupt) as caught:
        train(RunSpec(epochs=500), folder=tmp_path / "run", device="cpu")
    assert not isinstance(caught.value, Stopped)
    assert "press Ctrl-C again to stop without saving" in capfd.readouterr().err
    assert not RunFolder(tmp_path / "run").checkpoint.exists()
