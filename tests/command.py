"""`normscope`, or a script, in a process of its own, forked from one that has imported it before.

A new interpreter takes three to six seconds to import torch and Fabric. Tests that stop or kill a
command from outside start one all the same.
"""

import multiprocessing
import os
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Callable
from multiprocessing import forkserver
from pathlib import Path

from normscope.cli import COMMANDS, OF_PAPER, run

FRESH = [sys.executable, "-c", "from normscope._start import run; run()"]  # a new interpreter
_FORKS = multiprocessing.get_context("forkserver")
_MODULES = [f"normscope{'_paper' * (name in OF_PAPER)}.cli.{name}" for name in COMMANDS]
_FORKS.set_forkserver_preload([*_MODULES, "lightning_fabric"])
_WIDE = {"COLUMNS": "200"}  # no line is folded


def normscope(*words: object) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; what it printed, and its exit status."""
    return _forked(_run, "normscope", *words)


def script(path: Path, *words: object) -> subprocess.CompletedProcess[str]:
    """The same for a script."""
    return _forked(_run_script, path, *words)


def _forked(
    target: Callable[[list[str]], None], *words: object
) -> subprocess.CompletedProcess[str]:
    _started()
    with tempfile.TemporaryDirectory() as folder:
        texts = [Path(folder, name) for name in ("stdout", "stderr")]
        arguments = list(map(str, words))
        place = os.environ | _WIDE, Path.cwd(), texts
        process = _FORKS.Process(target=_placed, args=(target, arguments, *place))
        process.start()
        process.join()
        assert process.exitcode is not None
        printed = [text.read_text() for text in texts]
    return subprocess.CompletedProcess(arguments, process.exitcode, *printed)


def _started() -> None:
    """Consoles measure their width when they are imported: the process that forks is wide too."""
    before = dict(os.environ)
    os.environ.update(_WIDE)
    try:
        forkserver.ensure_running()
    finally:
        os.environ.clear()
        os.environ.update(before)


def _placed(
    target: Callable[[list[str]], None],
    words: list[str],
    environment: dict[str, str],
    cwd: Path,
    texts: list[Path],
) -> None:
    for number, text in enumerate(texts, start=1):
        with text.open("wb") as file:
            os.dup2(file.fileno(), number)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(cwd)
    target(words)


def _run(words: list[str]) -> None:
    sys.argv = words
    run()


def _run_script(words: list[str]) -> None:
    sys.argv, sys.path[0] = words, str(Path(words[0]).parent)
    runpy.run_path(words[0], run_name="__main__")
