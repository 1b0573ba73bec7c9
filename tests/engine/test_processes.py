"""Two processes train as one does on the joined batch."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.command import normscope  # pyright: ignore[reportMissingImports]

EPOCHS = 1
# in float32 rounding grows some tenfold a step, and hides whether the two are the same
PRECISION = "64"


def losses(folder: Path) -> list[float]:
    records = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    return [r["loss"] for r in records if r["kind"] == "step"]


def run(method: str, folder: Path, *more: str) -> list[float]:
    words = ["train", method, "--epochs", EPOCHS, "--log-every", 1, "--out", folder, "--quiet"]
    words += ["--precision", PRECISION]
    done = normscope(*words, "--device", "cpu", *more)
    assert done.returncode == 0, done.stderr
    return losses(folder)


@pytest.mark.parametrize(
    ("method", "optimizer"), [("simclr", "sgd"), ("simsiam", "sgd"), ("simclr", "angular")]
)
def test_two_processes_give_the_loss_curve_of_one(method, optimizer, tmp_path: Path) -> None:
    one = run(method, tmp_path / "one", "--optimizer", optimizer)
    two = run(method, tmp_path / "two", "--optimizer", optimizer, "--devices", "2")
    assert len(one) == len(two) == EPOCHS * 21
    assert one[-1] < one[0]
    assert two == pytest.approx(one, rel=1e-6, abs=1e-7)


def start_two(folder: Path, *more: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "normscope.cli", "train", "simclr", "--devices", "2"]
    command += ["--epochs", "200", "--device", "cpu", "--quiet", "--out", str(folder), *more]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


def test_a_signal_to_two_processes_saves_and_says_how_to_go_on(tmp_path: Path) -> None:
    metrics = tmp_path / "run" / "metrics.jsonl"
    process = start_two(tmp_path / "run", "--log-every", "21")
    while process.poll() is None and not (metrics.exists() and metrics.stat().st_size):
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate()
    assert process.returncode == 128 + signal.SIGTERM
    first, second = errors.strip().splitlines()
    assert "saved in" in first
    assert second.endswith("--resume")
    assert (tmp_path / "run" / "checkpoint.pt").exists()


def test_a_refusal_by_one_process_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear reader")
    process = start_two(tmp_path)
    _, errors = process.communicate()
    assert process.returncode == 2
    assert len(errors.strip().splitlines()) == 1


def test_a_batch_that_does_not_divide_is_refused(tmp_path: Path) -> None:
    words = ["train", "simclr", "--batch", 255, "--devices", 2, "--device", "cpu"]
    done = normscope(*words, "--out", tmp_path / "run")
    assert done.returncode == 2
    assert done.stderr.startswith("batch must be a multiple of 2 processes")
