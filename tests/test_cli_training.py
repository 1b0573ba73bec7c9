"""train, evaluate, data and demo as a user meets them."""

import io
import json
import pickle
import re
import signal
import subprocess
import tarfile
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.command import FRESH, normscope  # pyright: ignore[reportMissingImports]

from normscope.cli.train import _run_to_extend
from normscope.engine import RunFolder, RunResult, RunSpec

BATCHES = [f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"]


class Evil:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return print, ("owned",)


def write_cifar10(root: Path, labels: int = 10) -> Path:
    """CIFAR-10's python layout with as many images as published, all black."""
    folder = root / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    rows = np.zeros((10_000, 3072), np.uint8)
    for name in BATCHES:
        content = {b"data": rows, b"labels": [i % labels for i in range(10_000)]}
        (folder / name).write_bytes(pickle.dumps(content, protocol=4))
    names = [f"class {i}".encode() for i in range(10)]
    (folder / "batches.meta").write_bytes(pickle.dumps({b"label_names": names}, protocol=4))
    return folder


def evil_tar(path: Path) -> Path:
    with tarfile.open(path, "w:gz") as packed:
        member = tarfile.TarInfo("../outside.txt")
        member.size = 4
        packed.addfile(member, io.BytesIO(b"evil"))
    return path


def test_train_then_evaluate_leaves_every_file(tmp_path: Path) -> None:
    run = tmp_path / "run"
    words = ["--epochs", 2, "--device", "cpu", "--cut", 3, "--set", "temperature=0.2"]
    done = normscope("train", "simclr", *words, "--log", "tensorboard", "--out", run)
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"kNN \d+\.\d%, test norm .*images/s.*", done.stdout.strip())
    spec = json.loads((run / "spec.json").read_text())
    assert spec["spec"]["cut"] == 3.0
    assert spec["spec"]["options"]["temperature"] == 0.2
    assert list((run / "tensorboard").iterdir())
    done = normscope("evaluate", run, "--device", "cpu")
    assert done.returncode == 0, done.stderr
    assert "projector" in done.stdout
    layers = json.loads((run / "evaluation.json").read_text())["layers"]
    assert layers["backbone"]["probe"] > 0.5
    with np.load(run / "embeddings.npz", allow_pickle=False) as arrays:
        assert arrays["train_embeddings"].shape == (1347, 64)
        assert arrays["test_labels"].shape == (450,)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train", "simlcr"], "Did you mean 'simclr'?"),
        (["train", "simclr", "--epochs", "0"], "epochs must be a whole number from 1 up"),
        (["train", "simclr", "--set", "x"], "--set must be NAME=VALUE, got 'x'"),
        (["train", "simclr", "--set", "epohcs=3"], "options must be one of"),
        (["train", "simclr", "--epochs", "2", "--set", "epochs=3"], "not repeat another option"),
        (["train", "simclr", "--set", "method=byol"], "not repeat another option, got 'method'"),
        (["train", "simclr", "--devices", "0"], "--devices must be at least 1"),
        (["train", "simclr", "--device", "tpu"], "--device must be auto, cpu, cuda or mps"),
        (["train", "simclr", "--batch", "4096"], "batch must be at most the 1347"),
        (["train", "simclr", "--log", "paper"], "loggers must be among"),
        (["train", "simclr", "--out", "/dev/null/x"], "folder must be"),
        (["evaluate", "/nowhere"], "run must be the folder of a run"),
        (["data", "check", "cifra10"], "cifar10"),
        (["data", "fetch", "digits"], "must be"),
        (["demo", "--epochs", "0"], "--epochs must be at least 1"),
    ],
)
def test_bad_arguments_are_one_line_and_status_two(
    words: list[str], message: str, tmp_path: Path
) -> None:
    place = [] if words[0] != "train" or "--out" in words else ["--out", str(tmp_path / "run")]
    done = normscope(*words, *place)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert message in done.stderr


def test_missing_data_says_how_to_fetch_it(tmp_path: Path) -> None:
    done = normscope("train", "simclr", "--data", "cifar10", "--data-root", tmp_path)
    assert done.returncode == 2
    assert done.stderr.strip().endswith("Run: normscope data fetch cifar10.")


@pytest.mark.parametrize("fault", ["truncated", "classes", "missing", "evil"])
def test_a_bad_file_is_one_line_and_status_two(tmp_path: Path, fault: str) -> None:
    folder = write_cifar10(tmp_path, labels=9 if fault == "classes" else 10)
    batch = folder / "data_batch_3"
    if fault == "truncated":
        batch.write_bytes(batch.read_bytes()[:-1000])
    elif fault == "missing":
        batch.unlink()
    elif fault == "evil":
        batch.write_bytes(pickle.dumps(Evil()))
    done = normscope("data", "check", "cifar10", "--root", tmp_path)
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1
    assert "owned" not in done.stdout
    assert "cifar-10-batches-py" in done.stderr


@pytest.mark.parametrize(
    ("name", "message"), [("cifar10", "6d958be0"), ("tiny-imagenet", "outside.txt")]
)
def test_an_evil_archive_is_refused_and_leaves_nothing(
    tmp_path: Path, name: str, message: str
) -> None:
    # CIFAR's is refused by its hash; no hash of Tiny ImageNet's is on record
    archive = evil_tar(tmp_path / "archive.tar.gz")
    root = tmp_path / "data"
    done = normscope("data", "fetch", name, "--from", archive, "--root", root)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "outside.txt").exists()
    assert not list(root.rglob("*"))


def test_demo_leaves_one_page_and_a_second_call_trains_nothing(tmp_path: Path) -> None:
    done = normscope("demo", "--epochs", 1, "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().endswith("report.html")
    page = (tmp_path / "report.html").read_text()
    assert "SimSiam, rate x 9" in page
    assert "What to do next" in page
    assert page.count("<img") == 11
    assert {path.name for path in tmp_path.iterdir()} == {"report.html", "runs"}
    checkpoints = sorted(tmp_path.rglob("checkpoint.pt"))
    assert len(checkpoints) == 5
    before = [c.stat().st_mtime_ns for c in checkpoints]
    again = normscope("demo", "--epochs", 1, "--out", tmp_path)
    assert again.returncode == 0
    assert [c.stat().st_mtime_ns for c in checkpoints] == before


def test_data_list_shows_every_dataset(tmp_path: Path) -> None:
    done = normscope("data", "list", "--root", tmp_path)
    assert done.returncode == 0
    for name in ("digits", "cifar100-unbalanced-as-coded", "imagenet100", "cifar10h", "npz:PATH"):
        assert name in done.stdout


def test_a_demo_that_is_stopped_saves_every_run_under_way(tmp_path: Path) -> None:
    words = ["demo", "--epochs", "500", "--out", str(tmp_path)]
    with subprocess.Popen([*FRESH, *words], stderr=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 120
        while not list(tmp_path.glob("runs/*/metrics.jsonl")) and time.monotonic() < deadline:
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "the same command continues" in errors
    begun = [path.parent for path in tmp_path.glob("runs/*/metrics.jsonl")]
    assert begun
    assert all((run / "checkpoint.pt").exists() for run in begun)
    for run in begun:  # nobody holds it any more
        with RunFolder(run).locked():
            pass


def test_resuming_with_more_epochs_says_what_differs(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["train", "simclr", "--device", "cpu", "--quiet", "--resume", "--epochs"]
    assert normscope(*words, 1).returncode == 0
    (first,) = Path("runs").iterdir()
    differing = "epochs 1 (now 2), warmup_epochs 0.2 (now 0.4), horizon_epochs 1 (now 2)"
    refused = normscope(*words, 2, "--out", first)
    assert refused.returncode == 2
    assert differing in refused.stderr
    assert "Its rate fell to zero over 1 epochs, which cannot be undone." in refused.stderr
    assert "start it with --horizon-epochs 2 and --warmup-epochs" in refused.stderr
    another = normscope(*words, 2)
    assert another.returncode == 0
    (second,) = set(Path("runs").iterdir()) - {first}
    assert f"{first} is finished, with {differing}" in another.stderr
    assert another.stderr.count("\n") == 1
    assert another.stderr.endswith(f"it starts from epoch 1, in {second}.\n")
    assert normscope(*words, 2).stderr == ""  # finished: nothing to say


def test_own_images_come_with_what_was_chosen_and_how_long_it_takes(tmp_path: Path) -> None:
    folder, run = tmp_path / "photos", tmp_path / "run"
    folder.mkdir()
    for i in range(12):
        Image.new("RGB", (40 + i, 40), (20 * i, 100, 50)).save(folder / f"{i}.jpg")
    words = ["train", "simclr", "--data", f"folder:{folder}", "--epochs", 1, "--out", run]
    done = normscope(*words, "--device", "cpu")
    assert done.returncode == 0, done.stderr
    chosen, classes, time_needed, *_ = done.stderr.splitlines()
    assert chosen.startswith("Chosen for 10 training and 2 test images on a CPU: net resnet10_narr")
    assert classes.startswith("There are no classes")
    assert time_needed.startswith(
        "It will take about 10 seconds on this CPU: an epoch of 10 images"
    )
    assert done.stdout.startswith("no kNN, test norm ")
    again = normscope(*words, "--device", "cpu", "--resume")  # finished: nothing to introduce
    assert again.stderr == ""
    assert again.stdout == done.stdout


PLAN = ("--horizon-epochs", 9, "--warmup-epochs", 1)


def test_an_extension_goes_on_and_is_found_again_when_it_is_complete(
    tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["train", "simclr", "--device", "cpu", "--quiet", "--resume", *PLAN, "--epochs"]
    assert normscope(*words, 1).returncode == 0
    (folder,) = Path("runs").iterdir()
    run = RunFolder(folder)
    long = RunSpec(epochs=2, horizon_epochs=9.0, warmup_epochs=1.0)
    with run.locked():  # an extension that is killed as soon as it begins
        run.begin(long, resume=True, checksum=run.made()["data_checksum"], device="cpu")
    for _ in range(2):
        done = normscope(*words, 2)
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""
        assert list(Path("runs").iterdir()) == [folder]
    assert RunResult.load(folder).steps == 42


def test_the_longest_run_is_extended(tmp_path: Path) -> None:
    def spec(epochs: int) -> RunSpec:
        return RunSpec(epochs=epochs, horizon_epochs=9.0, warmup_epochs=1.0)

    for epochs in (1, 2, 3, 4, 6):
        run = RunFolder(tmp_path / spec(epochs).name)
        with run.locked():
            run.begin(spec(epochs), resume=False, checksum="", device="cpu")
        if epochs != 4:
            run.result_file.touch()
    assert _run_to_extend(spec(5), tmp_path) == tmp_path / spec(3).name
    assert _run_to_extend(spec(8), tmp_path) == tmp_path / spec(6).name
