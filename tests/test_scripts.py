"""The README's code, the example and the benchmark run as a reader would run them."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.command import script  # pyright: ignore[reportMissingImports]

ROOT = Path(__file__).parents[1]
linux = pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")


def run(*command: object, **options) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *map(str, command)], capture_output=True, text=True, check=False, **options
    )


def test_readme_code_runs_as_printed() -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert blocks
    for block in blocks:
        done = run("-W", "error", "-c", block)
        assert done.returncode == 0, done.stderr


def test_plain_loop_is_short_and_runs() -> None:
    path = ROOT / "examples/plain_loop.py"
    text = path.read_text()
    assert len(text.splitlines()) <= 30
    for name in ("cut_init_", "scale_invariant_parameters", "NormMonitor"):
        assert f"ns.{name}(" in text
    done = run("-W", "error", path)
    assert done.returncode == 0, done.stderr
    assert "epoch 5: effective rate" in done.stdout


@pytest.mark.parametrize(
    "options", [["--device", "cuda"], ["--sizes", "0"], ["--rounds", "0"], ["--d", "-1"]]
)
def test_benchmark_refuses_what_it_cannot_measure_and_writes_nothing(tmp_path, options) -> None:
    if options[1] == "cuda" and torch.cuda.is_available():
        pytest.skip("there is a GPU")
    done = script(ROOT / "benchmarks/info_nce.py", *options, "--folder", tmp_path)
    assert done.returncode == 2
    assert "must be" in done.stderr.splitlines()[-1]
    assert not list(tmp_path.iterdir())


@linux
def test_benchmark_measures_every_way_it_can_import(tmp_path: Path) -> None:
    path = ROOT / "benchmarks/info_nce.py"
    done = script(path, "--sizes", 64, "--rounds", 1, "--repeats", 1, "--folder", tmp_path)
    assert done.returncode == 0, done.stderr
    stored = json.loads((tmp_path / "results/info_nce-cpu.json").read_text())
    ways = {row[1] for row in stored["rows"]}
    assert ways >= {"normscope", "full matrix"}
    skipped = [note for note in stored["notes"] if note.startswith("Skipped")]
    assert len(ways) + len(skipped) == 4
    assert stored["measured"]["64"]["normscope"]["bytes"] >= 0
    assert "| 64 | normscope |" in (tmp_path / "README.md").read_text()


@linux
def test_neighbours_are_measured_and_the_same_in_every_way(tmp_path: Path) -> None:
    sizes = ("--bank", 900, "--queries", 150, "--d", 16, "--k", 20)
    path = ROOT / "benchmarks/knn.py"
    done = script(path, *sizes, "--rounds", 1, "--repeats", 1, "--folder", tmp_path)
    assert done.returncode == 0, done.stderr
    stored = json.loads((tmp_path / "results/knn-cpu.json").read_text())
    assert set(stored["measured"]) >= {"normscope", "one matrix", "scikit-learn"}
    skipped = [note for note in stored["notes"] if note.startswith("Skipped")]
    assert len(stored["measured"]) + len(skipped) == 4
    assert all(way["shortfall"] < 1e-5 for way in stored["measured"].values())


def test_neighbours_that_are_not_the_nearest_fall_short() -> None:
    code = """
import torch, knn
bank, queries = torch.eye(4), torch.tensor([[4.0, 3.0, 2.0, 1.0]])
for found in ([[1, 0]], [[0, 2]], [[0, 0]]):
    print(f"{knn.shortfall(bank, queries, torch.tensor(found)):.3f}")
"""
    done = run("-c", code, cwd=ROOT / "benchmarks")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["0.000", f"{1 / 30**0.5:.3f}", "inf"]


def test_probes_are_measured_and_reach_the_same_loss(tmp_path: Path) -> None:
    sizes = ("--rows", 600, "--d", 16, "--classes", 3, "--rounds", 1)
    done = script(ROOT / "benchmarks/probe.py", *sizes, "--folder", tmp_path)
    assert done.returncode == 0, done.stderr
    stored = json.loads((tmp_path / "results/probe-cpu.json").read_text())
    assert set(stored["measured"]) == {"power law", "random layer"}
    for ways in stored["measured"].values():
        losses = [way["loss"] for way in ways.values()]
        assert len(losses) == 3
        assert max(losses) - min(losses) < 1e-6


def test_augmentations_are_measured_or_skipped_with_the_reason(tmp_path: Path) -> None:
    ways = ("normscope", "kornia", "torchvision, batched", "torchvision, per image")
    path = ROOT / "benchmarks/augment.py"
    sizes = ("--sizes", 8, 40, "--batch", 4, "--rounds", 2)
    done = script(path, *sizes, "--ways", *ways, "--folder", tmp_path)
    assert done.returncode == 0, done.stderr
    stored = json.loads((tmp_path / "results/augment-cpu.json").read_text())
    skipped = [note for note in stored["notes"] if note.startswith("Skipped")]
    for speeds in stored["measured"].values():
        assert next(iter(speeds)) == "normscope"
        assert len(speeds) + len(skipped) == 4
        assert min(speeds.values()) > 0


@linux
def test_scaling_fits_an_exponent_to_each_of_three(tmp_path: Path) -> None:
    sizes = {"images": 64, "batch": 8, "side": 8, "pairs": 2048, "bank": 800, "queries": 9, "d": 8}
    options = [word for name, value in sizes.items() for word in (f"--{name}", value)]
    done = script(ROOT / "benchmarks/scaling.py", *options, "--folder", tmp_path)
    assert done.returncode == 0, done.stderr
    stored = json.loads((tmp_path / "results/scaling-cpu.json").read_text())
    assert [of["sizes"][-1] for of in stored["measured"].values()] == [64, 2048, 800]
    for of in stored["measured"].values():
        fit, covariance = np.polyfit(np.log(of["sizes"]), np.log(of["values"]), 1, cov=True)
        assert of["exponent"] == pytest.approx(fit[0])
        assert of["standard_error"] == pytest.approx(covariance[0, 0] ** 0.5)


def test_training_is_measured_beside_its_network_and_peers_are_named_if_they_fail(tmp_path) -> None:
    sizes = ("--net", "resnet10_narrow", "--side", 8, "--images", 64, "--batch", 32, "--epochs", 1)
    done = script(ROOT / "benchmarks/training.py", *sizes, "--workers", 0, "--folder", tmp_path)
    assert done.returncode == 0, done.stderr
    stored = json.loads((tmp_path / "results/training-resnet10_narrow-cpu.json").read_text())
    found = stored["measured"]["simclr"]
    assert found["normscope"] > 0 < found["network"]
    missing = [note for note in stored["notes"] if "could not train simclr" in note]
    assert len(found) + len(missing) == 4
    ratio = next(row[4] for row in stored["rows"] if row[1] == "normscope")
    assert float(ratio) == pytest.approx(found["normscope"] / found["network"], abs=1e-3)


def test_breakdown_knows_kernels_by_name_and_counts_what_they_must_do() -> None:
    code = """
import breakdown
for name in ("sm90_xmma_wgrad_indexed", "_backward_apply", "multi_tensor_apply_kernel", "x"):
    print(breakdown.kind_of(name))
for name in ("_forward_sums", "_sums", "_forces"):
    print(breakdown.kind_of(name))
flops, moved = breakdown.counted("resnet18", 1)
print(flops / 2 / 3 / 1e9, moved)
"""
    done = run("-c", code, cwd=ROOT / "benchmarks")
    assert done.returncode == 0, done.stderr
    *kinds, last = done.stdout.splitlines()
    assert kinds[:4] == ["convolutions", "batch norms", "optimizer", "other"]
    assert kinds[4:] == ["batch norms", "loss", "loss"]
    gflops, moved = map(float, last.split())
    assert gflops == pytest.approx(1.11, rel=0.01)  # .56 billion multiply-adds an image
    numbers = (64 * 1024, 128 * 256, 256 * 64, 512 * 16)  # of an image at each stage
    passes = (8 + 2 * 20, *[20 + 8 + 20] * 3)  # stem; two blocks; a shortcut's norm from then on
    assert moved == 2 * 2 * sum(n * p for n, p in zip(numbers, passes, strict=True))


def test_accuracy_sets_the_fast_way_beside_the_plain_one_by_seed(tmp_path: Path) -> None:
    options = ("--epochs", 1, "--seeds", 2, "--folder", tmp_path)
    done = script(ROOT / "benchmarks/accuracy.py", *options)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "results/accuracy-cpu.json").read_text())["measured"]
    knns = {way: [run["knn"] for run in runs] for way, runs in found.items()}
    assert knns["fast"] == knns["plain"]  # on a CPU there is one way
    assert len(set(knns["fast"])) == 2


@pytest.mark.skipif(sys.platform == "win32", reason="signals of process groups")
def test_accuracy_keeps_the_seeds_before_it_was_stopped(tmp_path: Path) -> None:
    command = (ROOT / "benchmarks/accuracy.py", "--epochs", 1, "--seeds", 99, "--folder", tmp_path)
    stored = tmp_path / "results/accuracy-cpu.json"
    words = [sys.executable, *map(str, command)]
    with subprocess.Popen(
        words, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as started:
        deadline = time.monotonic() + 120
        while not stored.exists() and started.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        os.killpg(started.pid, signal.SIGINT)
        _, errors = started.communicate(timeout=60)
    assert errors.splitlines()[-1] == "stopped; the seeds before are stored"
    found = json.loads(stored.read_text())["measured"]
    assert 1 <= len(found["fast"]) == len(found["plain"]) < 99


def test_streaming_is_measured_beside_images_that_lie_in_memory(tmp_path: Path) -> None:
    options = ("--nets", "resnet10_narrow", "--sides", 32, "--images", 64, "--batch", 32)
    done = script(ROOT / "benchmarks/streaming.py", *options, "--folder", tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "results/streaming-cpu.json").read_text())["measured"]
    streamed, resident = (found["resnet10_narrow 32"][way] for way in ("streamed", "resident"))
    assert 0 < streamed["waited"] < streamed["seconds"]
    assert 0 <= resident["waited"] < resident["seconds"]


def test_a_speedrun_times_each_goal_and_says_which_seeds_missed_it(tmp_path: Path) -> None:
    options = ("--data", "digits", "--epochs", 2, "--seeds", 1, "--goals", 80, 90.6)
    done = script(ROOT / "benchmarks/speedrun.py", *options, "--folder", tmp_path)
    assert done.returncode == 0, done.stderr
    stored = json.loads((tmp_path / "results/speedrun-cpu.json").read_text())
    (reached,), (missed,) = stored["measured"]["ours"].values()
    assert reached["seconds"] > 0 < reached["evaluation"]
    assert reached["knn"] >= 80
    assert missed["seconds"] is None
    assert [row[2] for row in stored["rows"]] == ["1 of 1", "0 of 1"]


def test_optimizers_are_measured_beside_muon_on_the_matrices_both_take(tmp_path: Path) -> None:
    options = ("--net", "resnet10_narrow", "--side", 8, "--images", 64, "--batch", 32)
    done = script(ROOT / "benchmarks/optimizers.py", *options, "--rounds", 1, "--folder", tmp_path)
    assert done.returncode == 0, done.stderr
    stored = json.loads((tmp_path / "results/optimizers-cpu.json").read_text())
    own = stored["measured"]["step_ms"]
    assert {"AngularSGD, matrices", "torch.optim.Muon, matrices", "SGD"} <= own.keys()
    assert min(own.values()) > 0
    assert stored["measured"]["training_step_ms"]["angular"] > 0


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("training", ["--batch", "0"]),
        ("accuracy", ["--seeds", "0"]),
        ("streaming", ["--images", "0"]),
        ("knn", ["--k", "60000"]),
        ("augment", ["--sizes", "1"]),
        ("scaling", ["--images", "500"]),
        ("speedrun", ["--seeds", "0"]),
        ("optimizers", ["--rounds", "0"]),
    ],
)
def test_benchmarks_refuse_sizes_in_one_line(tmp_path, name, options) -> None:
    done = script(ROOT / f"benchmarks/{name}.py", *options, "--folder", tmp_path)
    assert done.returncode == 2
    assert f"{options[0]} must be at" in done.stderr.splitlines()[-1]
    assert not list(tmp_path.iterdir())


def test_benchmark_readme_is_made_from_its_results() -> None:
    code = "import tables; print(tables.readme(tables.HERE), end='')"
    done = run("-c", code, cwd=ROOT / "benchmarks")
    assert done.returncode == 0, done.stderr
    assert done.stdout == (ROOT / "benchmarks/README.md").read_text()


def test_code_of_your_loop_that_is_not_run_there_is_that_of_the_examples() -> None:
    page = (ROOT / "docs/your-loop.md").read_text()
    blocks = re.findall(r"<!-- not run: .*? -->\n```python\n(.*?)```", page, re.DOTALL)
    sources = [path.read_text() for path in (ROOT / "examples").glob("*.py")]
    lines = ["\n".join(line.strip() for line in source.splitlines()) for source in sources]
    assert len(blocks) == 3
    for block in blocks:
        assert any(block.strip() in source for source in lines), block
