"""One command on several devices of this machine: a process each."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from typing import NoReturn

_PATIENCE = 60.0  # seconds that the other processes have to end after the first one did


def first_process() -> bool:
    """Whether this is the first of the processes that train together."""
    return int(os.environ.get("RANK", 0)) == 0


def leave(status: int | str | None) -> NoReturn:
    """Exit this program with that status.

    One of several processes exits at once: torch's threads that talk to the others abort an
    interpreter that is torn down while they still wait ("terminate called ..."). So do Ray's,
    where it was stopped while it worked (a segmentation fault, two times in five).
    """
    several = int(os.environ.get("WORLD_SIZE", 1)) > 1
    engine = sys.modules.get("normscope.scoring.ray_engine")  # other packages import Ray too
    if (several or (engine and engine.STARTED.is_set())) and isinstance(status, int):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    sys.exit(status)


def run_processes(devices: int) -> int:
    """Run this same command in so many processes; the exit status of the first that failed.

    They find each other as under torchrun. Signals are passed on, so that they can save.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(devices)}
    common |= {"LOCAL_WORLD_SIZE": str(devices), "NODE_RANK": "0"}
    threads = max(1, (os.cpu_count() or 1) // devices)
    common |= {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(threads))}
    processes: list[subprocess.Popen[bytes]] = []

    def pass_on(number: int, frame: object) -> None:  # noqa: ARG001
        for process in processes:
            process.send_signal(number)

    before = {n: signal.signal(n, pass_on) for n in (signal.SIGINT, signal.SIGTERM)}
    try:
        for rank in range(devices):
            command = [sys.executable, "-m", "normscope.cli", *sys.argv[1:]]
            place = {"RANK": str(rank), "LOCAL_RANK": str(rank)}
            # a session of its own: Ctrl-C reaches it once, through us
            processes.append(
                subprocess.Popen(command, env=os.environ | common | place, start_new_session=True)
            )
        return _wait(processes)
    finally:
        for process in processes:
            process.kill()
        for number, handler in before.items():
            signal.signal(number, handler)


def _wait(processes: list[subprocess.Popen[bytes]]) -> int:
    """Wait for all; once one fails, the others get some time and are then ended."""
    failed_at, status = None, 0
    while any(process.poll() is None for process in processes):
        for process in processes:
            if status == 0 and process.returncode:
                failed_at, status = time.monotonic(), process.returncode
        if failed_at is not None and (status == 2 or time.monotonic() - failed_at > _PATIENCE):
            for process in processes:
                process.kill()  # it waits for one that is gone
        time.sleep(0.05)
    codes = [process.returncode for process in processes]
    status = status or next((code for code in codes if code), 0)
    return status if status > 0 else 128 - status if status else 0
