"""Small runs side by side: a process with one thread for each core.

Two threads of one small run gain little on two quiet cores, and on busy ones they wait for each
other most of the time; two processes do not.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from normscope.cli import errors, refuse
from normscope.engine import RunFolder, RunSpec
from normscope.report import command

_ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


def train_side_by_side(runs: Mapping[str, tuple[RunSpec, Path]]) -> None:
    """Train or resume runs, by name, each in its folder; finished ones are left alone.

    Raises:
        KeyboardInterrupt: once all are saved.
    """
    waiting = [name for name, (_, path) in runs.items() if not RunFolder(path).result_file.exists()]
    running: dict[str, subprocess.Popen[str]] = {}
    columns = (TextColumn("{task.description:<18}"), BarColumn(), TextColumn("{task.fields[knn]}"))
    try:
        with Progress(*columns, TimeElapsedColumn(), console=errors) as progress:
            tasks = {
                name: progress.add_task(name, total=runs[name][0].epochs, start=False, knn="")
                for name in waiting
            }
            while waiting or running:
                while waiting and len(running) < (os.cpu_count() or 1):
                    name = waiting.pop(0)
                    running[name] = _started(*runs[name])
                    progress.start_task(tasks[name])
                time.sleep(0.2)
                for name, process in list(running.items()):
                    done, knn = _epochs(runs[name][1])
                    progress.update(tasks[name], completed=done, knn=knn)
                    if process.poll() is not None:
                        _ended(running.pop(name))
    finally:
        for process in running.values():
            process.terminate()  # which saves
        for process in running.values():
            process.communicate()


def _started(spec: RunSpec, folder: Path) -> subprocess.Popen[str]:
    words = shlex.split(command(spec))[1:]
    words += ["--out", str(folder), "--device", "cpu", "--resume", "--quiet"]
    return subprocess.Popen(
        [sys.executable, "-m", "normscope.cli", *words],
        env=os.environ | _ONE_THREAD,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C is ours to pass on
    )


def _ended(process: subprocess.Popen[str]) -> None:
    """Repeat the process's error, if it failed."""
    text = process.communicate()[1].strip()
    if process.returncode > 128:
        raise KeyboardInterrupt
    if process.returncode:
        refuse(text.splitlines()[-1] if text else f"a run ended with status {process.returncode}.")


def _epochs(folder: Path) -> tuple[int, str]:
    """How many epochs a run has finished, and its newest kNN."""
    metrics = RunFolder(folder).metrics
    text = metrics.read_text() if metrics.exists() else ""
    whole = text[: text.rfind("\n") + 1].splitlines()  # the last one may still be written
    records = [r for r in map(json.loads, whole) if r["kind"] == "epoch"]
    known = [r["knn"] for r in records if r.get("knn") is not None]
    return len(records), f"kNN {known[-1]:.1%}" if known else ""
