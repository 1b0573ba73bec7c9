"""Runs that experiments share: trained once, by several processes, until the time is up."""

import math
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from normscope.engine import RunSpec
from normscope_paper.harness import Sweep
from normscope_paper.harness.cells import Cell, RunTable, TrainedRun, train_cells
from normscope_paper.harness.sweep import OutOfTime, folder_of

SWEEP = """
import sys
from normscope.engine import RunSpec
from normscope_paper.harness import Sweep
Sweep().runs([RunSpec(epochs=int(epochs)) for epochs in sys.argv[1:]])
"""


def test_cells_are_trained_with_each_seed_and_share_their_runs(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("NORMSCOPE_RUNS", str(tmp_path))
    cells = [Cell("a", "digits", {"epochs": 1}), Cell("b", "digits", {"epochs": 1, "cut": 2.0})]
    results = train_cells("accuracies", "smoke", 5, 2, cells, Sweep())
    names = [run.run for cell in RunTable.of(results).cells for run in cell.runs]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(set(names))
    assert len(set(names)) == 4
    assert RunSpec(epochs=1, seed=6, cut=2.0).name == names[3]
    again = train_cells("accuracies", "smoke", 5, 2, cells[:1], Sweep())
    assert again.data["cells"] == results.data["cells"][:1]


def test_a_run_that_broke_counts_as_nothing(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("NORMSCOPE_RUNS", str(tmp_path))
    (run,) = Sweep().runs([RunSpec(epochs=2, lr=1e30, warmup_epochs=0)])
    assert math.isnan(run.knn)
    kept = TrainedRun.of(run, {})
    assert (kept.knn, kept.knns[-1]) == (0, 0)
    assert kept.broke


def test_time_that_is_up_stops_a_run_where_it_can_go_on(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("NORMSCOPE_RUNS", str(tmp_path))
    spec = RunSpec(epochs=500)
    with pytest.raises(KeyboardInterrupt):
        Sweep(minutes=0.02).runs([spec])
    assert (tmp_path / spec.name / "checkpoint.pt").exists()
    assert not (tmp_path / spec.name / "result.json").exists()
    with pytest.raises(OutOfTime):
        Sweep(minutes=1e-9).runs([spec])


def test_processes_share_a_sweep_and_wait_for_each_other(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("NORMSCOPE_RUNS", str(tmp_path))
    theirs, ours = RunSpec(epochs=3), RunSpec(epochs=1)
    metrics = folder_of(theirs) / "metrics.jsonl"
    with subprocess.Popen([sys.executable, "-c", SWEEP, "3", "1"]) as other:
        try:
            while other.poll() is None and not metrics.exists():
                time.sleep(0.01)
            os.kill(other.pid, signal.SIGSTOP)
            with pytest.raises(OutOfTime):  # while the other stands still
                Sweep(minutes=0.1).runs([theirs, ours])
            assert (folder_of(ours) / "result.json").exists()
            assert not (folder_of(theirs) / "result.json").exists()
            goes_on = threading.Timer(1.5, os.kill, (other.pid, signal.SIGCONT))
            goes_on.start()
            (run,) = Sweep().runs([theirs])
        finally:
            os.kill(other.pid, signal.SIGCONT)
    assert other.returncode == 0
    steps = [point["step"] for point in run.metrics("step")]
    assert steps == sorted(set(steps))
    assert run.metrics("epoch")[-1]["epoch"] == 3


def test_missing_data_are_an_error_before_anything_is_trained(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("NORMSCOPE_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("NORMSCOPE_DATA", str(tmp_path / "none"))
    with pytest.raises(ValueError, match="normscope data fetch cifar10"):
        Sweep().runs([RunSpec(epochs=1), RunSpec(data="cifar10")])
    assert not (tmp_path / "runs").exists()


def test_runs_go_where_the_environment_says(monkeypatch) -> None:
    spec = RunSpec()
    for value, root in (("", Path("runs")), ("~/r", Path.home() / "r"), ("/r", Path("/r"))):
        monkeypatch.setenv("NORMSCOPE_RUNS", value)
        assert folder_of(spec) == root / spec.name
