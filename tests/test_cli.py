"""The command line as a user meets it: real processes, exit statuses, one-line errors."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.command import FRESH, normscope  # pyright: ignore[reportMissingImports]

from normscope_paper.figures import fig1
from normscope_paper.harness import EXPERIMENTS, Results, Scale, Sweep, reproduce
from normscope_paper.harness.results import Provenance

ROOT = Path(__file__).parents[1]


def test_reproduce_leaves_results_figures_and_summary(tmp_path: Path) -> None:
    done = normscope("reproduce", "fig1", "opposite_halves", "--scale", "smoke", "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("reproduced") >= 4
    names = {path.name for path in tmp_path.rglob("*")}
    assert {"fig1.smoke.json", "fig1.smoke.png", "opposite_halves.smoke.pdf", "RESULTS.md"} <= names
    listing = normscope("reproduce", "list", "--out", tmp_path)
    assert listing.returncode == 0
    assert re.search(r"3 reproduced \(smoke, \d+ s\)", listing.stdout)
    assert listing.stdout.count("not run yet") == len(EXPERIMENTS) - 2


def test_results_of_another_version_do_not_hide_the_others(tmp_path: Path) -> None:
    whole = json.loads((ROOT / "results/fig1.paper.json").read_text())
    (tmp_path / "fig1.paper.json").write_text(json.dumps(whole | {"data": {"other": 1}}))
    listing = normscope("reproduce", "list", "--out", tmp_path)
    assert listing.returncode == 0
    assert "stored by another version: run it again (paper, " in listing.stdout
    assert listing.stdout.count("not run yet") == len(EXPERIMENTS) - 1
    done = normscope("reproduce", "opposite_halves", "--scale", "smoke", "--out", tmp_path)
    assert done.returncode == 1
    assert "broke: RESULTS.md: fig1.paper.json must be as `reproduce` writes it now" in done.stderr
    assert f"Results and figures are in {tmp_path}." in done.stdout.replace("\n", "")


@pytest.mark.parametrize("command", ["demo", "train", "evaluate", "score", "reproduce"])
def test_help_keeps_its_examples_line_by_line(command: str) -> None:
    done = normscope(command, "--help")
    assert done.returncode == 0
    assert "\\b" not in done.stdout
    assert [line for line in done.stdout.splitlines() if line.startswith(f"  normscope {command}")]


def test_time_that_is_up_has_a_status_of_its_own(tmp_path: Path) -> None:
    words = ("reproduce", "convergence_rate", "fig1", "--scale", "smoke", "--minutes", "1e-6")
    done = normscope(*words, "--out", tmp_path)
    assert done.returncode == 3
    assert "The time is up. 0 of 2 are finished" in " ".join(done.stderr.split())
    assert not list(tmp_path.glob("*.json"))


def test_a_false_claim_is_no_failure(tmp_path: Path) -> None:
    done = normscope("reproduce", "convergence_rate", "--scale", "smoke", "--out", tmp_path)
    assert done.returncode == 0
    assert "not reproduced" in done.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["reproduce", "fig9"], "convergence_sim, density, class_imbalance"),
        (["reproduce", "fig1", "--scale", "huge"], "--scale must be one of smoke, small, paper"),
        (["reproduce", "density", "--seeds", "1000000000"], "--seeds must be at most 10000"),
        (["reproduce", "all", "--kind", "x"], "--kind must be simulation or training"),
        (["reproduce", "density", "--seeds", "1"], "--seeds must be at least 2, got 1."),
        (["reproduce", "list", "--out", "/dev/null"], "--out must be a folder"),
        (["reproduce", "accuracies", "--runs", "/dev/null"], "--runs must be a file named *.jsonl"),
        (["reproduce", "fig1", "--seed", "-1"], "--seed must be from 0"),
        (["reproduce", "all", "fig1"], "or all, list or plan alone, got 'all'"),
        (["reproduce", "Figure3"], "Did you mean in_out_violin?"),
        (["reproduce", "table-2"], "Did you mean wd_cut?"),
        (["reproduce", "fig1", "--kind", "training"], "--kind must be that of some experiment"),
        (["reproduce", "fig1", "--scale", "smoke", "--out", "/proc/x"], "--out must be writable"),
    ],
)
def test_bad_arguments_are_one_line_and_status_two(words: list[str], message: str) -> None:
    done = normscope(*words)
    assert done.returncode == 2
    lines = [line for line in done.stderr.splitlines() if "must be" in line]
    assert len(lines) == 1
    assert message in lines[0]
    assert "Traceback" not in done.stderr


def test_a_broken_experiment_is_status_one_and_the_others_are_kept(tmp_path: Path) -> None:
    code = (
        "from normscope_paper.figures import fig1\n"
        "def broken(*_): raise ZeroDivisionError('by purpose')\n"
        "fig1.run = broken\n"
        "from normscope._start import run; run()"
    )
    words = ["reproduce", "fig1", "cos_sim_surface", "--scale", "smoke", "--out", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "fig1: ZeroDivisionError: by purpose" in done.stderr
    assert (tmp_path / "cos_sim_surface.smoke.json").exists()
    assert not (tmp_path / "fig1.smoke.json").exists()


def test_ctrl_c_keeps_what_is_finished(tmp_path: Path) -> None:
    words = ["reproduce", "cos_sim_surface", "class_imbalance", "--scale", "paper"]
    with subprocess.Popen(
        [*FRESH, *words, "--out", str(tmp_path)], stderr=subprocess.PIPE, text=True
    ) as process:
        finished = tmp_path / "RESULTS.md"
        deadline = time.monotonic() + 60
        while not finished.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(0.3)  # the next one is under way
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "1 of 2 are finished and kept" in errors
    assert "Traceback" not in errors
    assert (tmp_path / "cos_sim_surface.paper.json").exists()
    assert not (tmp_path / "class_imbalance.paper.json").exists()


def test_a_foreign_file_in_the_folder_is_named_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "density.smoke.json").write_text("{bad")
    for words in (["list"], ["fig1", "--scale", "smoke"]):
        done = normscope("reproduce", *words, "--out", tmp_path)
        assert done.returncode == 2
        assert "density.smoke.json must be a file that `reproduce` wrote" in done.stderr
        assert "Traceback" not in done.stderr
    assert not (tmp_path / "fig1.smoke.json").exists()


def test_seeds_are_used_and_recorded_where_something_is_random(tmp_path: Path) -> None:
    words = ["--scale", "smoke", "--seed", 5, "--seeds", 4, "--out", tmp_path]
    assert normscope("reproduce", "opposite_halves", "fig1", *words).returncode == 0
    random = Results.load(tmp_path / "opposite_halves.smoke.json")
    assert len(random.data["shares"]) == random.seeds == 4
    assert random.made.command.endswith("--scale smoke --seed 5 --seeds 4")
    assert Results.load(tmp_path / "fig1.smoke.json").seeds == 1
    before = (tmp_path / "opposite_halves.smoke.json").read_bytes()
    fewer = normscope("reproduce", "opposite_halves", *words[:4], "--seeds", 3, "--out", tmp_path)
    assert fewer.returncode == 2
    assert "--seeds must be at least 4, got 3." in fewer.stderr
    others = normscope("reproduce", "opposite_halves", *words[:2], "--seeds", 4, "--out", tmp_path)
    assert others.returncode == 2
    assert "--seed must be 5, with as many --seeds or more, got 0." in others.stderr
    assert (tmp_path / "opposite_halves.smoke.json").read_bytes() == before


def test_what_another_process_stored_meanwhile_is_not_written_over(
    tmp_path: Path, monkeypatch
) -> None:
    whole = fig1.run

    def overtaken(scale: Scale, seed: int, seeds: int) -> Results:
        results = whole(scale, seed, seeds)
        made = Provenance.of("of another", 1.0, gpu=False, runs={})
        Results("fig1", scale, 3, 0, results.data, made).save(tmp_path)
        return results

    monkeypatch.setattr(fig1, "run", overtaken)
    with pytest.raises(ValueError, match="--seeds must be at least 3, got 1"):
        reproduce("fig1", scale="smoke", seed=0, seeds=1, folder=tmp_path, sweep=Sweep())
    assert Results.load(tmp_path / "fig1.smoke.json").seeds == 3


def test_a_summary_of_anothers_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "RESULTS.md").write_text("# Results\n\nmy notes\n")
    done = normscope("reproduce", "fig1", "--scale", "smoke", "--out", tmp_path)
    assert done.returncode == 2
    assert "RESULTS.md must be one that `reproduce` wrote" in done.stderr
    assert (tmp_path / "RESULTS.md").read_text().endswith("my notes\n")
    assert not (tmp_path / "fig1.smoke.json").exists()


def test_a_sweep_that_is_terminated_says_so_and_keeps_its_run(tmp_path: Path) -> None:
    words = ["reproduce", "cut_batch_size", "--scale", "smoke", "--out", str(tmp_path / "out")]
    environment = os.environ | {"NORMSCOPE_RUNS": str(tmp_path / "runs"), "COLUMNS": "300"}
    with subprocess.Popen(
        [*FRESH, *words], stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        deadline = time.monotonic() + 120
        while not list(tmp_path.glob("runs/*/metrics.jsonl")) and time.monotonic() < deadline:
            time.sleep(0.05)
        process.terminate()
        _, errors = process.communicate(timeout=120)
    assert process.returncode == 128 + signal.SIGTERM
    assert "the same command resumes it" in errors
    assert list(tmp_path.glob("runs/*/checkpoint.pt"))


def test_a_smaller_scale_leaves_the_larger_ones_figure_and_summary(tmp_path: Path) -> None:
    for scale in ("small", "smoke"):
        words = ["convergence_rate", "--scale", scale, "--out", tmp_path]
        assert normscope("reproduce", *words).returncode == 0
    summary = (tmp_path / "RESULTS.md").read_text()
    assert "figures/convergence_rate.small.png" in summary
    assert "--scale small" in summary
    assert (tmp_path / "figures/convergence_rate.small.png").exists()


def test_help_shows_examples() -> None:
    done = normscope("reproduce", "--help")
    assert done.returncode == 0
    assert "normscope reproduce all --kind simulation --scale paper" in done.stdout


def test_reproduce_says_how_many_runs_it_trains_and_where(tmp_path: Path, monkeypatch) -> None:
    for name in ("NORMSCOPE_RUNS", "NORMSCOPE_DATA"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    done = normscope("reproduce", "accuracies", "--scale", "small", "--out", tmp_path / "out")
    assert done.returncode == 1  # for want of images
    assert "30 runs to train, on " in done.stderr
    assert "Run: normscope data fetch cifar10." in done.stderr
