"""Runs that are killed, stopped and resumed, as real processes."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from normscope.engine import RunFolder, RunSpec, train

COMMAND = [sys.executable, "-m", "normscope.cli", "train", "simsiam"]
# several micro-batches a step, so that a kill can fall between them
OPTIONS = ["--epochs", "6", "--batch", "128", "--accumulate", "2", "--log-every", "3"]
SPEC = RunSpec(method="simsiam", epochs=6, batch=128, accumulate=2, log_every=3)


def start(folder: Path, *more: str) -> subprocess.Popen[str]:
    words = [*COMMAND, *OPTIONS, "--device", "cpu", "--quiet", "--out", str(folder), "--resume"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen([*words, "--checkpoint-seconds", "0", *more], text=True, **pipes)


def finish(process: subprocess.Popen[str]) -> None:
    _, errors = process.communicate()
    assert process.returncode == 0, errors


def wait_for_lines(run: RunFolder, count: int, process: subprocess.Popen[str]) -> None:
    while process.poll() is None:
        if run.metrics.exists() and run.metrics.read_bytes().count(b"\n") >= count:
            return
        time.sleep(0.002)


def contents(folder: Path) -> tuple[dict[str, torch.Tensor], bytes]:
    run = RunFolder(folder)
    state = torch.load(run.checkpoint, weights_only=True)
    flat = {f"method.{k}": v for k, v in state["method"].items()}
    for index, values in state["optimizer"]["state"].items():
        flat |= {f"optimizer.{index}.{k}": v for k, v in values.items() if v is not None}
    return flat, run.metrics.read_bytes()


def assert_same(folder: Path, reference: Path) -> None:
    weights, metrics = contents(folder)
    expected_weights, expected_metrics = contents(reference)
    assert metrics == expected_metrics
    assert weights.keys() == expected_weights.keys()
    for name, value in expected_weights.items():
        assert torch.equal(weights[name], value), name


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    finish(start(folder))
    return folder


def test_kill_at_five_random_points_changes_nothing(undisturbed: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    draw = random.Random()
    total = (undisturbed / "metrics.jsonl").read_bytes().count(b"\n")
    kills = 0
    for point in sorted(draw.sample(range(total - 1), 5)):
        process = start(folder)
        wait_for_lines(RunFolder(folder), point, process)
        time.sleep(draw.random() * 0.1)
        process.kill()
        kills += process.wait() == -signal.SIGKILL
        process.communicate()
    finish(start(folder))
    assert kills >= 4  # the last one may have come too late
    assert_same(folder, undisturbed)
    assert not list(folder.glob(".*.partial"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_says_how_to_go_on(
    undisturbed: Path, tmp_path: Path, number: signal.Signals
) -> None:
    folder = tmp_path / "run"
    process = start(folder, "--checkpoint-seconds", "3600")
    wait_for_lines(RunFolder(folder), 3, process)
    process.send_signal(number)
    errors = process.communicate()[1]
    assert process.returncode == 128 + number
    assert "Traceback" not in errors
    first, second = errors.strip().splitlines()
    assert "saved in" in first
    assert second.strip().startswith("normscope train simsiam --epochs 6")
    assert second.endswith("--resume")
    finish(start(folder))
    assert_same(folder, undisturbed)


def test_a_finished_run_is_returned_and_not_trained_again(undisturbed: Path) -> None:
    before = (undisturbed / "checkpoint.pt").stat().st_mtime_ns
    result = train(SPEC, folder=undisturbed, resume=True, device="cpu", quiet=True)
    assert result.steps == 6 * 10
    assert (undisturbed / "checkpoint.pt").stat().st_mtime_ns == before


def test_a_begun_run_is_not_overwritten_without_resume(undisturbed: Path) -> None:
    with pytest.raises(ValueError, match="pass --resume"):
        train(SPEC, folder=undisturbed, device="cpu", quiet=True)


def test_another_spec_or_foreign_folder_is_refused(undisturbed: Path, tmp_path: Path) -> None:
    other = RunSpec(method="simsiam", epochs=7)
    with pytest.raises(ValueError, match="folder must be empty or this run's"):
        train(other, folder=undisturbed, resume=True, device="cpu", quiet=True)
    (tmp_path / "letter.txt").write_text("dear reader")
    with pytest.raises(ValueError, match="folder must be empty or a run's"):
        train(other, folder=tmp_path, resume=True, device="cpu", quiet=True)
    assert [p.name for p in tmp_path.iterdir()] == ["letter.txt"]


def test_a_broken_checkpoint_is_one_line(undisturbed: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "spec.json").write_text((undisturbed / "spec.json").read_text())
    whole = (undisturbed / "checkpoint.pt").read_bytes()
    (folder / "checkpoint.pt").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match="checkpoint must be one that normscope wrote") as caught:
        train(SPEC, folder=folder, resume=True, device="cpu", quiet=True)
    assert "\n" not in str(caught.value)


def test_other_images_under_the_same_name_are_noticed(undisturbed: Path, tmp_path: Path) -> None:
    about = json.loads((undisturbed / "spec.json").read_text()) | {"data_checksum": "other"}
    (tmp_path / "spec.json").write_text(json.dumps(about))
    with pytest.raises(ValueError, match="the images that the run began with"):
        train(SPEC, folder=tmp_path, resume=True, device="cpu", quiet=True)


def test_two_processes_cannot_train_one_run(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    process = start(folder)
    wait_for_lines(RunFolder(folder), 1, process)
    os.kill(process.pid, signal.SIGSTOP)
    try:
        with pytest.raises(ValueError, match="folder must be in use by nobody"):
            train(SPEC, folder=folder, resume=True, device="cpu", quiet=True)
    finally:
        process.kill()
        process.communicate()
