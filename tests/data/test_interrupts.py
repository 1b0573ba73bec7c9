"""Ctrl-C at a terminal reaches workers too; broken images reach the loop as one line."""

import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
import torch

from normscope.data import Streamed, source
from normscope.data.folders import read_folder

SCRIPT = """
import signal, sys, torch
from pathlib import Path
from normscope.data import source
from normscope.data.folders import read_folder

def main():
    split = read_folder(Path(sys.argv[1]), "own", side=32, lazy=True).train
    stream = source(split, torch.device("cpu"), side=16, workers=1)
    print("starting", flush=True)
    for _ in stream.batches(torch.arange(8).split(2) for _ in range(10**9)):
        print("batch", flush=True)

if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: print("noted", flush=True))
    main()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals of process groups")
def test_workers_outlive_interrupts_but_not_their_parent(tmp_path: Path, write_images) -> None:
    write_images(tmp_path / "own", each=4, sizes=[(40, 40)])
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, str(tmp_path / "script.py"), str(tmp_path / "own")]
    said, errors = tmp_path / "said", tmp_path / "errors"
    with said.open("w") as out, errors.open("w") as err:
        process = subprocess.Popen(command, stdout=out, stderr=err, start_new_session=True)
    try:
        wait_for(lambda: "starting" in said.read_text(), process)
        while "batch" not in said.read_text():  # while the workers start
            interrupt(process)
            time.sleep(0.03)
        for number in (signal.SIGINT, signal.SIGTERM) * 2:  # each is noted, and batches go on
            noted = said.read_text().count("noted")
            interrupt(process, number)
            wait_for(lambda noted=noted: said.read_text().count("noted") > noted, process)
            before = said.read_text().count("batch")
            wait_for(lambda n=before: said.read_text().count("batch") > n + 20, process)
        assert said.read_text().count("noted") > 10
        assert errors.read_text() == ""
    finally:
        kill_and_watch(process)


@pytest.mark.skipif(sys.platform == "win32", reason="signals of process groups")
def test_workers_end_if_their_parent_is_killed_while_they_start(
    tmp_path: Path, write_images
) -> None:
    write_images(tmp_path / "own", each=4, sizes=[(40, 40)])
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, str(tmp_path / "script.py"), str(tmp_path / "own")]
    with (tmp_path / "said").open("w") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, start_new_session=True)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    if not children.exists():
        process.kill()
        pytest.skip("needs /proc")
    wait_for(lambda: len(children.read_text().split()) > 1, process)  # and the resource tracker
    kill_and_watch(process)


def interrupt(process: subprocess.Popen, number: int = signal.SIGINT) -> None:
    assert process.poll() is None, "it ended"
    os.killpg(process.pid, number)


def wait_for(happened: Callable[[], bool], process: subprocess.Popen) -> None:
    deadline = time.monotonic() + 60
    while not happened():
        assert process.poll() is None, "it ended"
        assert time.monotonic() < deadline, "it hangs"
        time.sleep(0.01)


def kill_and_watch(process: subprocess.Popen) -> None:
    """End a process, and see its workers end."""
    process.kill()
    process.wait()
    deadline = time.monotonic() + 20
    while alive(process.pid):
        assert time.monotonic() < deadline, "a worker outlived the process"
        time.sleep(0.05)


def alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("workers", [0, 1])
def test_streamed_tells_a_broken_image_in_one_line_and_goes_on(
    tmp_path: Path, write_images, workers: int
) -> None:
    write_images(tmp_path, each=2, sizes=[(40, 40)])
    split = read_folder(tmp_path, "own", side=32, lazy=True).train
    stream = source(split, torch.device("cpu"), side=16, workers=workers)
    assert isinstance(stream, Streamed)
    assert len(list(stream.batches([[torch.tensor([3])]]))) == 1
    broken = tmp_path / "train" / "b" / "1.png"
    broken.write_bytes(b"garbage")
    for batches in (
        stream.batches([[torch.tensor([0, 3, 1])]]),
        stream.evaluation_batches(4),
    ):
        with pytest.raises(ValueError, match="must be a whole image") as error:
            list(batches)
        constraint = "a whole image, got 'one that cannot be decoded'"
        assert str(error.value) == f"{broken} must be {constraint}. Remove or replace it."
    assert len(list(stream.batches([[torch.tensor([0, 1])]]))) == 1


def test_workers_end_with_a_stream_that_met_a_broken_image(tmp_path: Path, write_images) -> None:
    write_images(tmp_path, each=2, sizes=[(40, 40)])
    (tmp_path / "train" / "b" / "1.png").write_bytes(b"garbage")
    split = read_folder(tmp_path, "own", side=32, lazy=True).train
    others = set(multiprocessing.active_children())
    gc.disable()  # nor does it need a collector of garbage
    try:
        stream = source(split, torch.device("cpu"), side=16, workers=1)
        with suppress(ValueError):
            list(stream.evaluation_batches(4))
        [worker] = set(multiprocessing.active_children()) - others
        del stream
        assert not worker.is_alive()
    finally:
        gc.enable()
