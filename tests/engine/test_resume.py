"""Runs that are killed, stopped and resumed, as real processes."""

import json
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tests.bits import assert_same  # pyright: ignore[reportMissingImports]

from normscope.engine import RunFolder, RunResult, RunSpec, Stopped, evaluate, loop, train
from normscope.report.run_curves import curves, summary_table

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


def test_steps_of_a_known_angle_go_on_to_the_bit(tmp_path: Path, monkeypatch) -> None:
    spec = RunSpec(optimizer="angular", epochs=2, log_every=3)
    options: Any = {"device": "cpu", "quiet": True}
    train(spec, folder=tmp_path / "whole", **options)
    with monkeypatch.context() as patch:
        patch.setattr(loop.Loop, "_asked_to_stop", lambda self, _: self.progress.step == 25)
        with pytest.raises(Stopped):
            train(spec, folder=tmp_path / "parts", **options)
    train(spec, folder=tmp_path / "parts", resume=True, **options)
    assert_same(tmp_path / "parts", tmp_path / "whole")


def test_a_finished_run_is_found_though_its_data_is_gone(tmp_path: Path) -> None:
    path, folder = tmp_path / "few.npz", tmp_path / "run"
    images, labels = np.zeros((8, 3, 8, 8), np.uint8), np.arange(8) % 2
    arrays = {"train_images": images, "train_labels": labels}
    np.savez(path, **arrays, test_images=images, test_labels=labels)
    spec = RunSpec(data=f"npz:{path}", net="resnet10_narrow", batch=4, epochs=1, knn_k=1)
    trained = train(spec, folder=folder, device="cpu", quiet=True)
    path.unlink()
    assert train(spec, folder=folder, resume=True, device="cpu", quiet=True) == trained


def test_a_begun_run_is_not_overwritten_without_resume(undisturbed: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"The run is finished\. Name another folder"):
        train(SPEC, folder=undisturbed, device="cpu", quiet=True)
    begun = Path(shutil.copytree(undisturbed, tmp_path / "begun"))
    (begun / "result.json").unlink()
    with pytest.raises(ValueError, match="Pass --resume"):
        train(SPEC, folder=begun, device="cpu", quiet=True)


def test_another_spec_or_foreign_folder_is_refused(undisturbed: Path, tmp_path: Path) -> None:
    other = RunSpec(method="simsiam", epochs=7)
    with pytest.raises(ValueError, match="folder must be empty or this run's"):
        train(other, folder=undisturbed, resume=True, device="cpu", quiet=True)
    (tmp_path / "letter.txt").write_text("dear reader")
    with pytest.raises(ValueError, match="folder must be empty or a run's"):
        train(other, folder=tmp_path, resume=True, device="cpu", quiet=True)
    assert [p.name for p in tmp_path.iterdir()] == ["letter.txt"]


def copied(undisturbed: Path, folder: Path, **changes: object) -> Path:
    """The run as if it were not finished, with some of spec.json's entries changed."""
    folder.mkdir()
    for name in ("checkpoint.pt", "metrics.jsonl"):
        (folder / name).write_bytes((undisturbed / name).read_bytes())
    about = json.loads((undisturbed / "spec.json").read_text()) | changes
    (folder / "spec.json").write_text(json.dumps(about))
    return folder


def refusal(folder: Path) -> str:
    with pytest.raises(ValueError, match="must be") as caught:
        train(SPEC, folder=folder, resume=True, device="cpu", quiet=True)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("content", [b"", b"garbage", "half", "tensor", "other run"])
def test_a_checkpoint_that_is_not_this_runs_is_refused(
    undisturbed: Path, tmp_path: Path, content: bytes | str
) -> None:
    folder = copied(undisturbed, tmp_path / "run")
    file = folder / "checkpoint.pt"
    whole = file.read_bytes()
    if isinstance(content, bytes):
        file.write_bytes(content)
    elif content == "half":
        file.write_bytes(whole[: len(whole) // 2])
    elif content == "tensor":
        torch.save(torch.zeros(3), file)
    else:
        torch.save(torch.load(file, weights_only=True) | {"spec_hash": "another"}, file)
    assert "this run's checkpoint" in refusal(folder)


def test_a_damaged_weight_is_noticed(undisturbed: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(undisturbed, tmp_path / "run")
    path = RunFolder(folder).checkpoint
    content = bytearray(path.read_bytes())
    middle = len(content) // 2  # of a file that is nearly all weights
    content[middle : middle + 64] = bytes(64)
    path.write_bytes(content)
    with pytest.raises(ValueError, match="a damaged part"):
        evaluate(folder)


def test_a_folder_whose_first_write_was_killed_can_be_used(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / ".lock").touch()
    (folder / ".spec.json.1234.partial").write_text("{")
    assert train(RunSpec(epochs=1), folder=folder, device="cpu", quiet=True).steps == 21
    assert not list(folder.glob(".*.partial"))


def test_a_run_that_is_refused_leaves_what_another_process_writes(undisturbed: Path) -> None:
    half = undisturbed / ".evaluation.json.1234.partial"
    half.write_text("{")
    try:
        with pytest.raises(ValueError, match="The run is finished"):
            train(SPEC, folder=undisturbed, device="cpu", quiet=True)
        assert half.exists()
    finally:
        half.unlink()


def test_damaged_metrics_are_named(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    for text in ('{"kind": "step"', "[1]", '{"step": 1}'):
        folder.metrics.write_text('{"kind": "step"}\n' + text)
        with pytest.raises(ValueError, match=r"metrics\.jsonl must be as train wrote it"):
            folder.read_metrics()


FULL = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
from normscope.cli import run
run()
"""


def test_a_checkpoint_that_finds_no_space_is_reported_in_one_line(tmp_path: Path) -> None:
    words = ["train", "simclr", "--epochs", "1", "--out", str(tmp_path / "run"), "--quiet"]
    done = subprocess.run(
        [sys.executable, "-c", FULL, *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "checkpoint.pt" in done.stderr
    assert "Traceback" not in done.stderr
    assert not list((tmp_path / "run").glob(".*.partial"))


def test_a_signal_in_the_last_evaluation_stops_the_caller(tmp_path: Path, monkeypatch) -> None:
    judge = loop.knn_and_norm

    def interrupted(*args, **options):
        os.kill(os.getpid(), signal.SIGINT)
        return judge(*args, **options)

    monkeypatch.setattr(loop, "knn_and_norm", interrupted)
    with pytest.raises(Stopped, match="is finished"):
        train(RunSpec(epochs=1), folder=tmp_path / "run", device="cpu", quiet=True)
    assert RunResult.load(tmp_path / "run").steps == 21


def test_other_images_under_the_same_name_are_noticed(undisturbed: Path, tmp_path: Path) -> None:
    folder = copied(undisturbed, tmp_path / "run", data_checksum="other")
    assert "the images that the run began with" in refusal(folder)
    with pytest.raises(ValueError, match="the images that the run began with"):
        evaluate(folder)


@pytest.mark.parametrize(
    "changes",
    [{"spec": None}, {"spec": []}, {"hash": 3}, {"spec": {"method": []}}, {"spec": {"data": 3}}],
)
def test_an_edited_spec_is_refused(undisturbed: Path, tmp_path: Path, changes) -> None:
    assert "must be" in refusal(copied(undisturbed, tmp_path / "run", **changes))


def test_a_changed_value_under_the_old_hash_is_noticed(undisturbed: Path, tmp_path: Path) -> None:
    values = json.loads((undisturbed / "spec.json").read_text())["spec"] | {"lr": 99.0}
    assert "as train wrote it" in refusal(copied(undisturbed, tmp_path / "run", spec=values))


def test_metrics_that_were_cut_are_noticed(undisturbed: Path, tmp_path: Path) -> None:
    folder = copied(undisturbed, tmp_path / "run")
    (folder / "metrics.jsonl").write_text("")
    assert "as the run left it" in refusal(folder)


@pytest.mark.parametrize("content", ["[]", "{", '{"knn": 1}'])
def test_a_foreign_result_is_refused(undisturbed: Path, tmp_path: Path, content: str) -> None:
    folder = copied(undisturbed, tmp_path / "run")
    (folder / "result.json").write_text(content)
    assert "as train wrote it" in refusal(folder)


def test_a_refused_run_leaves_its_folder_alone(tmp_path: Path) -> None:
    for values in ({"batch": 4096}, {"knn_k": 5000}):
        with pytest.raises(ValueError, match="must be"):
            train(RunSpec(**values), folder=tmp_path / "run", device="cpu", quiet=True)
        assert not (tmp_path / "run").exists()
    with pytest.raises(ValueError, match="device must be"):
        train(RunSpec(), folder=tmp_path / "run", device="gpu", quiet=True)


def test_a_run_that_diverges_says_so_and_its_result_is_json(tmp_path: Path) -> None:
    spec = RunSpec(epochs=1, lr=1e30, log_every=5)
    result = train(spec, folder=tmp_path / "run", device="cpu", quiet=True)
    assert math.isnan(result.loss)
    assert json.loads((tmp_path / "run" / "result.json").read_text())["loss"] is None
    assert any("NaN" in r["line"] or "finite" in r["line"] for r in result.metrics("alarm"))
    assert curves({"diverged": result})
    assert "nan" in summary_table({"diverged": result}).rows[0]


def test_two_processes_cannot_train_one_run(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    process = start(folder)
    wait_for_lines(RunFolder(folder), 1, process)
    os.kill(process.pid, signal.SIGSTOP)
    try:
        with pytest.raises(ValueError, match="folder must be unused by other processes"):
            train(SPEC, folder=folder, resume=True, device="cpu", quiet=True)
    finally:
        process.kill()
        process.communicate()


PLAN = {"warmup_epochs": 1.0, "horizon_epochs": 5.0, "log_every": 3}


def test_a_finished_run_is_extended_to_the_weights_of_the_longer_one(tmp_path: Path) -> None:
    short, long = (RunSpec(epochs=epochs, **PLAN) for epochs in (2, 4))
    whole, folder = tmp_path / "whole", tmp_path / "run"
    options = {"device": "cpu", "quiet": True}
    train(long, folder=whole, **options)
    first = train(short, folder=folder, **options)
    with pytest.raises(ValueError, match="empty or this run's"):
        train(long, folder=folder, **options)  # without resume
    second = train(long, folder=folder, resume=True, **options)
    assert (first.steps, second.steps) == (42, 84)
    one, other = (load_file(place / "encoder.safetensors") for place in (folder, whole))
    assert one.keys() == other.keys()
    assert all(torch.equal(weight, other[name]) for name, weight in one.items())
    assert evaluate(folder)["epoch"] == 4
    assert train(long, folder=folder, resume=True, **options) == second


def test_an_extension_that_was_killed_before_it_saved_goes_on(tmp_path: Path) -> None:
    short, long = (RunSpec(epochs=epochs, **PLAN) for epochs in (1, 2))
    run = RunFolder(tmp_path / "run")
    train(short, folder=run.path, device="cpu", quiet=True)
    with run.locked():
        run.begin(long, resume=True, checksum=run.made()["data_checksum"], device="cpu")
    assert not run.result_file.exists()
    assert train(long, folder=run.path, resume=True, device="cpu", quiet=True).steps == 42


def test_an_extension_leaves_no_evaluation_of_the_shorter_run(tmp_path: Path) -> None:
    short, long = (RunSpec(epochs=epochs, **PLAN) for epochs in (1, 2))
    train(short, folder=tmp_path, device="cpu", quiet=True)
    before = {path.name for path in tmp_path.iterdir()}
    evaluate(tmp_path)
    train(long, folder=tmp_path, resume=True, device="cpu", quiet=True)
    assert {path.name for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("fault", ["other images", "no checkpoint"])
def test_an_extension_that_is_refused_leaves_the_run_as_it_was(tmp_path: Path, fault: str) -> None:
    short, long = (RunSpec(epochs=epochs, **PLAN) for epochs in (1, 2))
    run = RunFolder(tmp_path)
    first = train(short, folder=tmp_path, device="cpu", quiet=True)
    checksum = "other" if fault == "other images" else run.made()["data_checksum"]
    if fault == "no checkpoint":
        run.checkpoint.unlink()
    with run.locked(), pytest.raises(ValueError, match="must be"):
        run.begin(long, resume=True, checksum=checksum, device="cpu")
    assert RunResult.load(tmp_path) == first


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ({"epochs": 2}, {"epochs": 4}, "Its rate fell to zero over 2 epochs"),
        ({"horizon_epochs": 2.0}, {"horizon_epochs": 2.0}, "Its rate is zero after 2 epochs"),
        ({"method": "byol"}, {"method": "byol"}, "Its momentum rises over the whole run"),
    ],
)
def test_what_cannot_be_extended_says_why(tmp_path: Path, old, new, why: str) -> None:
    plan = {} if old == {"epochs": 2} else PLAN
    specs = [RunSpec(**{**plan, "epochs": e, **v}) for e, v in ((2, old), (4, new))]
    run = RunFolder(tmp_path / "run")
    with run.locked():
        run.begin(specs[0], resume=False, checksum="", device="cpu")
        with pytest.raises(ValueError, match=why):
            run.begin(specs[1], resume=True, checksum="", device="cpu")
