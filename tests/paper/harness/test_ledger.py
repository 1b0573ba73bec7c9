"""A file of finished runs: what it keeps, and that nothing it has is trained again."""

import dataclasses
import json
import math
import re
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

from normscope.cli import app
from normscope.engine import RunResult, RunSpec
from normscope_paper.harness import Ledger, Results, StoredRun, Sweep, claims_of
from normscope_paper.harness.cells import Cell, intervention_cells, train_cells
from normscope_paper.harness.ledger import POINTS, _course
from normscope_paper.harness.sweep import spec_at

SPEC = RunSpec(data="digits", epochs=3, log_every=5)
EPOCH = {"kind": "epoch", "epoch": 3, "knn": 0.5, "norm_test": 1.0}
COURSE = {"kind": "course", "steps": [], "lrs": [], "norms": []}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Of a run."""
    root = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NORMSCOPE_RUNS", str(root))
        Sweep().runs([SPEC])
    return root / SPEC.name


def test_what_is_kept_is_what_the_run_measured(folder: Path) -> None:
    result = RunResult.load(folder)
    run = StoredRun.read(StoredRun.of(result).line())
    assert (run.spec, run.knn, run.norm) == (SPEC, result.knn, result.norm)
    assert run.made.seconds == result.seconds
    assert run.made.data_checksum == json.loads((folder / "spec.json").read_text())["data_checksum"]
    knns = [r["knn"] for r in result.metrics("epoch") if "knn" in r]
    assert [r["knn"] for r in run.metrics("epoch")] == pytest.approx(knns, rel=1e-4)
    assert [r["epoch"] for r in run.metrics("step")] == [1, 2, 3]
    last = [r["opposite_halves"] for r in result.metrics("step") if r["epoch"] == 2][-POINTS:]
    assert len(last) == POINTS
    kept = run.metrics("step")[1]
    assert kept["opposite_halves"] == pytest.approx(statistics.fmean(last), rel=1e-4)
    assert "norm_by_class" not in kept
    (course,) = run.metrics("course")
    assert len(course["steps"]) == len(result.metrics("step"))  # a short run's is whole
    assert course["norms"][4] == pytest.approx(result.metrics("step")[4]["norm_mean"], rel=1e-4)


def test_a_run_of_the_file_is_neither_trained_nor_looked_for(
    folder: Path, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setenv("NORMSCOPE_RUNS", str(tmp_path / "runs"))
    shutil.copytree(folder, tmp_path / "runs" / SPEC.name)
    path = tmp_path / "runs.jsonl"
    (first,) = Sweep(ledger=Ledger(path)).runs([SPEC])
    shutil.rmtree(tmp_path / "runs")
    sweep = Sweep(ledger=Ledger(path))
    assert sweep.runs([SPEC]) == [first]
    assert sweep.used == {SPEC.name: first.made}
    assert not (tmp_path / "runs").exists()
    assert Ledger(path).get(RunSpec(data="digits", epochs=4, log_every=5)) is None


def test_a_run_whose_weights_are_needed_is_kept_too_and_not_replaced(
    folder: Path, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setenv("NORMSCOPE_RUNS", str(folder.parent))
    path = tmp_path / "runs.jsonl"
    (run,) = Sweep(ledger=Ledger(path)).runs([SPEC], weights=True)
    assert Ledger(path).get(SPEC) == run
    known = dataclasses.replace(run, made=dataclasses.replace(run.made, seconds=1.5))
    assert Ledger(path).add(known) == run  # which was there before
    other = tmp_path / "other.jsonl"
    Ledger(other).add(known)
    sweep = Sweep(ledger=Ledger(other))
    assert sweep.runs([SPEC], weights=True) == [run]  # whose weights are there
    assert sweep.runs([SPEC]) == [known]
    assert Ledger(other).get(SPEC) == known


def test_a_run_that_lost_its_metrics_is_not_added(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "run")
    metrics = tmp_path / "run" / "metrics.jsonl"
    lines = metrics.read_text().splitlines()
    first = next(i for i, line in enumerate(lines) if json.loads(line)["kind"] == "epoch")
    for kept in ("", "\n".join(lines[: first + 1])):
        metrics.write_text(kept)
        with pytest.raises(ValueError, match="lacks the last epoch"):
            StoredRun.of(RunResult.load(tmp_path / "run"))
    path = tmp_path / "runs.jsonl"
    with pytest.raises(ValueError, match="epochs, steps, alarms"):
        Ledger(path).add(dataclasses.replace(StoredRun.of(RunResult.load(folder)), records=[]))
    assert not path.exists()


def test_a_broken_network_comes_back_as_one(folder: Path) -> None:
    run = StoredRun.of(RunResult.load(folder))
    lost = EPOCH | {"knn": None, "norm_test": None}
    again = StoredRun.read(StoredRun(run.spec, math.nan, math.nan, run.made, [lost, COURSE]).line())
    assert math.isnan(again.knn)
    assert math.isnan(again.norm)
    assert again.metrics("epoch") == [lost]


ADD = """
import sys
from pathlib import Path
from normscope.engine import RunSpec
from normscope_paper.harness import Ledger, StoredRun
from normscope_paper.harness.results import Made

ledger = Ledger(Path(sys.argv[1]))
for seed in range(int(sys.argv[2]), int(sys.argv[2]) + 20):
    made = Made(device="", hardware="", versions={}, data_checksum="", seconds=1.0)
    spec = RunSpec(data="digits", seed=seed)
    epoch = {"kind": "epoch", "epoch": spec.epochs, "knn": 0.5, "norm_test": 1.0}
    course = {"kind": "course", "steps": [], "lrs": [], "norms": []}
    ledger.add(StoredRun(spec, 0.5, 1.0, made, [epoch, course]))
"""


def test_processes_that_add_at_once_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    words = [sys.executable, "-c", ADD, str(path)]
    both = [subprocess.Popen([*words, first]) for first in ("0", "100")]
    assert [process.wait() for process in both] == [0, 0]
    assert sorted(run.spec.seed for run in Ledger(path)) == [*range(20), *range(100, 120)]
    names = [json.loads(line)["run"] for line in path.read_text().splitlines()]
    assert names == sorted(names)
    assert [p.name for p in tmp_path.iterdir()] == ["runs.jsonl"]


def test_runs_of_other_images_are_not_compared(folder: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("NORMSCOPE_RUNS", str(tmp_path / "runs"))
    ledger, made = Ledger(tmp_path / "runs.jsonl"), StoredRun.of(RunResult.load(folder)).made
    for seed, checksum in enumerate("ab"):
        spec = spec_at("smoke", seed=seed, data="digits")
        epoch = EPOCH | {"epoch": spec.epochs}
        ledger.add(
            StoredRun(
                spec, 0.5, 1.0, dataclasses.replace(made, data_checksum=checksum), [epoch, COURSE]
            )
        )
    cells = [Cell("default", "digits", {"data": "digits"})]
    with pytest.raises(ValueError, match="must be of the same images of digits"):
        train_cells("accuracies", "smoke", 0, 2, cells, Sweep(ledger=ledger))


def test_a_course_is_kept_closer_where_norms_change() -> None:
    points = [{"step": t, "lr": 0.1, "norm_mean": 1.0} for t in range(1, 1001)]
    for t in range(500, 505):
        points[t]["norm_mean"] = 2.0 ** (t - 499)
    points[505:] = [point | {"norm_mean": None} for point in points[505:]]
    course = _course(points)
    assert len(course["steps"]) == len(course["norms"]) == len(course["lrs"]) < 120
    assert [n for n in course["norms"] if n is not None and n > 1] == [2.0, 4.0, 8.0, 16.0, 32.0]
    assert course["norms"][-1] is None


@pytest.mark.parametrize(
    "spoilt",
    [
        lambda line: line[:100],
        lambda line: line.replace('"cut": 1.0', '"cut": 3.0'),
        lambda line: line.replace('"records"', '"others"'),
        lambda line: f"[{line}]",
        lambda line: line.replace('"knn": 0', '"knn": 7', 1),
        lambda line: line.replace('"knn": 0', '"knn": "0"', 1),
        lambda line: line.replace('"norm": ', '"norm": -', 1),
        lambda line: line.replace('"norm": ', '"norm": 1' + "0" * 400 + ", ", 1),
        lambda line: line.replace('"seconds": ', '"seconds": NaN, "s": ', 1),
        lambda line: line.replace('"seconds"', '"minutes"', 1),
        lambda line: line.replace('"course"', '"other"', 1),
        lambda line: line.replace('"epoch", "epoch"', '"step", "epoch"'),
        lambda line: line.replace('"run"', '"probe": 1, "run"', 1),
        lambda line: line.replace('"knn": 0.', '"knn": 0.0', 1),  # its last epoch has another
        lambda line: re.sub(r'"norm": [\d.]+', '"norm": null', line, count=1),
        lambda line: re.sub(r'"seconds": [\d.]+', '"seconds": 1e999', line, count=1),
        lambda line: line.replace('"seconds": ', '"seconds": -', 1),
        lambda line: line.replace('"torch": ', '"torch": [], "pytorch": ', 1),
        lambda line: line.replace('"norm_mean"', '"mean"'),
        lambda line: re.sub(r'"lr": [\d.e-]+', '"lr": "high"', line),
        lambda line: line.replace('"epoch": 1,', '"epoch": "1",'),
        lambda line: line.replace('"epoch", "epoch": 3', '"epoch", "epoch": 4'),
    ],
)
def test_another_file_is_refused_by_its_line(spoilt, folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    line = StoredRun.of(RunResult.load(folder)).line()
    path.write_text(f"{spoilt(line)}\n")
    with pytest.raises(ValueError, match=r"runs\.jsonl must be a file of runs .*line 1") as caught:
        Ledger(path)
    assert "\n" not in str(caught.value)


def test_another_run_of_a_spec_is_refused_and_the_same_one_is_not(
    folder: Path, tmp_path: Path
) -> None:
    path = tmp_path / "runs.jsonl"
    line = StoredRun.of(RunResult.load(folder)).line()
    path.write_text(f"{line}\n\n{line}\n \n")  # nor does an empty line
    assert [run.spec for run in Ledger(path)] == [SPEC]
    other = line.replace('"seconds": ', '"seconds": 1', 1)
    path.write_text(f"{line}\n{other}\n")
    with pytest.raises(ValueError, match=r"line 2: .* is there twice, with other numbers"):
        Ledger(path)


def test_a_run_with_an_impossible_number_is_refused_without_a_file_of_runs_too(
    folder: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "run"
    shutil.copytree(folder, copy)
    result = json.loads((copy / "result.json").read_text())
    (copy / "result.json").write_text(json.dumps(result | {"knn": 5.0}))
    with pytest.raises(ValueError, match=r"run must be a whole run, got '5\.0 is out of range'"):
        StoredRun.of(RunResult.load(copy))


def test_a_link_is_followed_and_a_loop_is_refused(folder: Path, tmp_path: Path) -> None:
    link, target = tmp_path / "link.jsonl", tmp_path / "store" / "runs.jsonl"
    target.parent.mkdir()
    link.symlink_to(target)
    Ledger(link).add(StoredRun.of(RunResult.load(folder)))
    assert link.is_symlink()
    assert [run.spec for run in Ledger(target)] == [SPEC]
    (tmp_path / "loop.jsonl").symlink_to(tmp_path / "loop.jsonl")
    with pytest.raises(ValueError, match=r"loop\.jsonl must be a file of runs"):
        Ledger(tmp_path / "loop.jsonl")


def test_the_command_takes_runs_from_the_file(folder: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("NORMSCOPE_RUNS", str(tmp_path / "runs"))
    ledger, made = Ledger(tmp_path / "runs.jsonl"), StoredRun.of(RunResult.load(folder)).made
    for seed in (0, 1):
        for cell in intervention_cells({"digits": "digits"}, {}):
            spec = spec_at("smoke", seed=seed, **cell.values)
            knn = 0.9 if spec.cut == 3 else 0.5 + 0.01 * seed
            epoch = {"kind": "epoch", "epoch": spec.epochs, "knn": knn, "norm_test": 1.0}
            ledger.add(StoredRun(spec, knn, 1.0, made, [epoch, COURSE]))
    words = ["reproduce", "accuracies", "--scale", "smoke", "--out", str(tmp_path / "out")]
    with pytest.raises(SystemExit) as end:
        app([*words, "--runs", str(ledger.path)])
    assert end.value.code == 0
    assert not (tmp_path / "runs").exists()
    claims = claims_of(Results.load(tmp_path / "out" / "accuracies.smoke.json"))
    assert [claim.verdict for claim in claims if "SimCLR, cut 3" in claim.sentence] == [
        "reproduced"
    ]
