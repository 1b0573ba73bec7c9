"""What the command line does before it works: it answers at once, and can be stopped at once."""

import inspect
import signal
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path

import pytest

from normscope.cli import COMMANDS, OF_PAPER


@pytest.mark.parametrize("name", COMMANDS)
def test_help_says_of_each_command_what_it_says_of_itself(name: str) -> None:
    module = import_module(f"normscope{'_paper' * (name in OF_PAPER)}.cli.{name}")
    command = module.main if name == "data" else getattr(module, name)
    assert inspect.getdoc(command).splitlines()[0] == COMMANDS[name]


@pytest.mark.parametrize("words", [["--help"], [], ["--version"], ["trian"]])
def test_what_names_no_command_needs_no_torch(words: list[str]) -> None:
    code = f"""
import atexit, sys
sys.argv = ["normscope", *{words}]
atexit.register(lambda: print(*(m for m in ("torch", "numpy") if m in sys.modules)))
from normscope._start import run
run()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1] == ""
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("delay", [0.05, 0.4, 1.0])
def test_ctrl_c_in_the_first_seconds_is_one_line(delay: float, tmp_path: Path) -> None:
    code = "import sys; from normscope._start import run; print('begun', flush=True); run()"
    words = ["train", "simclr", "--out", str(tmp_path / "run")]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen([sys.executable, "-c", code, *words], text=True, **pipes)
    assert process.stdout.readline() == "begun\n"
    time.sleep(delay)
    process.send_signal(signal.SIGINT)
    errors = process.communicate()[1]
    assert errors == "Stopped.\n"
    assert process.returncode == 130


def test_an_import_that_ctrl_c_breaks_is_one_line_too(tmp_path: Path) -> None:
    """Extensions may raise an ImportError where they are interrupted."""
    (tmp_path / "typer.py").write_text(
        "import os, signal\n"
        "try:\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "except KeyboardInterrupt:\n"
        "    raise ImportError('cannot load module more than once per process')\n"
    )
    code = (
        "import sys; sys.path.insert(0, sys.argv.pop(1)); from normscope._start import run; run()"
    )
    words = [sys.executable, "-c", code, str(tmp_path), "train", "simclr"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "Stopped.\n")


def test_ctrl_c_while_a_command_prepares_is_one_line(tmp_path: Path) -> None:
    """Before training begins; typer alone would say nothing."""
    code = f"""
import os, signal, sys
sys.argv = ["normscope", "train", "simclr", "--data", "npz:{tmp_path / "digits.npz"}"]
from normscope.data import arrays
arrays.check_file = lambda *_: os.kill(os.getpid(), signal.SIGINT)
from normscope._start import run
run()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "Stopped.\n")
