"""Each logger with its real package: what it was given is there to read."""

import json
import sqlite3
import time
from dataclasses import replace
from pathlib import Path

import pytest

import normscope as ns
from normscope import data
from normscope.monitors import LOGGERS, open_logger

CONFIG = {"method": "simclr", "options": {"temperature": 0.5}, "seed": 3}
RECORDS = [
    {"kind": "layers", "step": 0, "names": ["w"]},
    {"kind": "step", "step": 1, "epoch": 1, "norm_mean": 1.5, "by_class": [1.0]},
    {"kind": "step", "step": 2, "epoch": 1, "norm_mean": 2.5},
]
MORE = [{"step": 3, "epoch": 1, "norm_mean": 3.5}]  # as NormMonitor.records has them


def logged(name: str, folder: Path) -> None:
    """A run of two steps, then the same one resumed for a third."""
    for records in (RECORDS, MORE):
        logger = open_logger(name, folder, key="abc123", config=CONFIG)
        for record in records:
            logger.log(record)
        logger.close()


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    (tmp_path / "my-run").mkdir()
    return tmp_path / "my-run"


def tensorboard_scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder / "tensorboard")).Reload()
    tags = events.Tags()["scalars"]
    return {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in tags}


def test_tensorboard_holds_each_number_at_its_step(run_folder: Path) -> None:
    pytest.importorskip("tensorboard", reason="needs the extra tensorboard")
    logged("tensorboard", run_folder)
    expected = {"step/norm_mean": [(1, 1.5), (2, 2.5), (3, 3.5)]}
    assert tensorboard_scalars(run_folder) == expected


def test_wandb_holds_a_run_offline_under_the_folders_name(run_folder: Path, monkeypatch) -> None:
    pytest.importorskip("wandb", reason="needs the extra wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    logger = open_logger("wandb", run_folder, key="abc123", config=CONFIG)
    for record in RECORDS:
        logger.log(record)
    logger.close()
    (file,) = run_folder.glob("wandb/offline-run-*/run-abc123.wandb")
    deadline = time.monotonic() + 20  # its own process writes the file
    while b"step/norm_mean" not in (held := file.read_bytes()) and time.monotonic() < deadline:
        time.sleep(0.05)
    for word in (b"step/norm_mean", b"my-run", b"normscope", b"temperature"):
        assert word in held
    assert b"by_class" not in held


@pytest.mark.filterwarnings("ignore")  # its own, on deprecations in what it imports
def test_mlflow_holds_one_run_that_was_resumed(run_folder: Path, monkeypatch) -> None:
    mlflow = pytest.importorskip("mlflow", reason="needs the extra mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (run_folder / "mlruns").as_uri())
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    logged("mlflow", run_folder)
    client = mlflow.tracking.MlflowClient()
    (run,) = client.search_runs([client.get_experiment_by_name("normscope").experiment_id])
    assert (run.info.run_name, run.info.status) == ("my-run", "FINISHED")
    assert run.data.params["options"] == "{'temperature': 0.5}"
    history = client.get_metric_history(run.info.run_id, "step/norm_mean")
    assert [(m.step, m.value) for m in history] == [(1, 1.5), (2, 2.5), (3, 3.5)]


@pytest.mark.filterwarnings("ignore")
def test_mlflow_says_in_one_line_which_store_it_refuses(run_folder: Path, monkeypatch) -> None:
    pytest.importorskip("mlflow", reason="needs the extra mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "ftp://nowhere")
    with pytest.raises(ValueError, match="loggers must be ready to log, got 'mlflow'") as caught:
        open_logger("mlflow", run_folder, key="abc123", config=CONFIG)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.filterwarnings("ignore")
def test_trackio_holds_one_run_that_was_resumed(run_folder: Path, monkeypatch) -> None:
    monkeypatch.setenv("TRACKIO_DIR", str(run_folder / "trackio"))  # read as it is imported
    pytest.importorskip("trackio", reason="needs trackio, which wants pillow below 13")
    logged("trackio", run_folder)
    (store,) = (run_folder / "trackio").glob("normscope*.db")
    with sqlite3.connect(store) as rows:
        found = rows.execute("select run_name, step, metrics from metrics order by step").fetchall()
    assert {name for name, *_ in found} == {"my-run-abc123"}
    numbers = {step: json.loads(m)["step/norm_mean"] for _, step, m in found if step}
    assert numbers == {1: 1.5, 2: 2.5, 3: 3.5}


def test_a_run_logs_to_tensorboard_what_it_writes_itself(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="needs the extra tensorboard")
    digits = data.load("digits")
    splits = {
        name: replace(split, images=split.images[:64], labels=split.labels[:64])
        for name, split in (("train", digits.train), ("test", digits.test))
    }
    few = replace(digits, **splits)
    spec = ns.RunSpec(method="simclr", data="digits", epochs=1, batch=32, knn_k=5, log_every=1)
    ns.train(spec, folder=tmp_path, device="cpu", quiet=True, images=few, loggers=["tensorboard"])
    lines = map(json.loads, (tmp_path / "metrics.jsonl").read_text().splitlines())
    losses = [(r["step"], r["loss"]) for r in lines if r["kind"] == "step"]
    found = tensorboard_scalars(tmp_path)["step/loss"]
    assert [step for step, _ in found] == [step for step, _ in losses]
    assert [x for _, x in found] == pytest.approx([x for _, x in losses])


@pytest.mark.parametrize("name", ["paper", "tensorbord"])
def test_unknown_loggers_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="loggers must be among tensorboard, wandb, mlflow, trac"):
        open_logger(name, tmp_path, key="a", config={})
    assert name not in LOGGERS
