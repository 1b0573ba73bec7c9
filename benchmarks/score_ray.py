"""`normscope score --engine ray` on two nodes against one process: seconds, and memory over time.

    python benchmarks/score_ray.py

Makes 40 shards of 250,000 x 32 float16 (640 MB) and a reference of 100,000 rows, and removes them.
`fit_reference` and `score_file` read them in one process, then in a cluster of two nodes with one
worker each, all on this machine: by the norm alone, and a tenth of the shards by all parts against
5,000 rows of the reference. The scores must be the same file, byte for byte. Workers have loaded
normscope before. Their memory is their own (RssAnon), looked at every tenth of a second.
"""

from __future__ import annotations

import argparse
import logging
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import ray
from ray.cluster_utils import Cluster

from normscope.scoring import fit_reference, fit_trust, open_embeddings, open_on_ray, score_file
from tables import HERE, Table, installed

REFERENCE_ROWS = 100_000
OFTEN = 0.1  # seconds
STORE = 1 << 28  # bytes of a node's shared memory
POINTS = 50  # of a worker's memory that are kept

_TITLE = b"ray::MapBatches"  # of a process while it reads a file

Memory = dict[int, list[tuple[float, float]]]  # worker -> (seconds, megabytes)


def write_shards(folder: Path, rows: int, d: int, shards: int) -> None:
    """Embeddings whose norms differ, in files of equal length."""
    folder.mkdir()
    random = np.random.default_rng(0)
    for i, n in enumerate(map(len, np.array_split(np.empty(rows, np.bool_), shards))):
        z = random.standard_normal((n, d), dtype=np.float32)
        z *= random.uniform(0.5, 2, (n, 1)).astype(np.float32)
        np.save(folder / f"{i}.npy", z.astype(np.float16))


@contextmanager
def two_nodes() -> Iterator[None]:
    """A cluster of two nodes on this machine, with one worker each."""
    node: dict[str, Any] = {"num_cpus": 1, "object_store_memory": STORE}
    cluster = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
    cluster.add_node(**node)
    ray.init(address=cluster.address, log_to_driver=False, logging_level=logging.ERROR)
    try:
        yield
    finally:
        ray.shutdown()
        cluster.shutdown()


def workers() -> list[int]:
    """The processes below this one that read files for Ray."""
    return [pid for pid in _below() if _read(Path(f"/proc/{pid}/cmdline")).startswith(_TITLE)]


def own_megabytes(pid: int) -> float:
    """Memory of a process that it shares with no other; 0 if it is gone."""
    for line in _read(Path(f"/proc/{pid}/status")).splitlines():
        if line.startswith(b"RssAnon"):
            return int(line.split()[1]) * 1024 / 1e6
    return 0.0


@contextmanager
def watched() -> Iterator[Memory]:
    """The memory of each worker at each time, from now on."""
    found: Memory = {}
    start, ended = time.perf_counter(), threading.Event()

    def look() -> None:
        known: set[int] = set()
        while not ended.wait(OFTEN):
            known |= set(workers())
            for pid in known:
                if size := own_megabytes(pid):
                    found.setdefault(pid, []).append((time.perf_counter() - start, size))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield found
    finally:
        ended.set()
        thread.join()


def score(
    opened: Callable[..., Any], known: Path, shards: list[Path], out: Path, how: str
) -> float:
    """Seconds of fitting the reference and scoring shards."""
    start = time.perf_counter()
    fit = fit_reference if how == "norm" else partial(fit_trust, most=5000)
    score_file(opened(shards), fit(opened(known)), out)
    return time.perf_counter() - start


def measure(folder: Path, args: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Seconds of both engines and the workers' memory, by the norm alone and by all parts."""
    write_shards(folder / "shards", args.rows, args.d, args.shards)
    write_shards(folder / "reference", min(args.rows, REFERENCE_ROWS), args.d, 4)
    every = [folder / f"shards/{i}.npy" for i in range(args.shards)]
    some = every[: max(2, args.shards // 10)]
    found: dict[str, dict[str, Any]] = {}
    with two_nodes():
        score(open_on_ray, folder / "reference", some, folder / "warm.parquet", "all")
        for how, shards in (("norm", every), ("all", some)):
            one, two = folder / f"{how}.one.parquet", folder / f"{how}.two.parquet"
            print(f"{how}: one process", file=sys.stderr)
            here = score(open_embeddings, folder / "reference", shards, one, how)
            print(f"{how}: two nodes", file=sys.stderr)
            with watched() as memory:
                there = score(open_on_ray, folder / "reference", shards, two, how)
            if one.read_bytes() != two.read_bytes():
                raise SystemExit(f"{how}: the scores differ between engines")
            found[how] = {
                "rows": open_embeddings(shards).rows,
                "one_seconds": here,
                "two_seconds": there,
                "workers": [_course(samples) for samples in memory.values()],
            }
    return found


def _course(samples: list[tuple[float, float]]) -> dict[str, Any]:
    """A worker's memory: its peak in each half of the run, and some points between."""
    halves = np.array_split(np.array(samples), 2)
    step = -(-len(samples) // POINTS)
    return {
        "peak_megabytes": [float(half[:, 1].max()) for half in halves if len(half)],
        "course": [[round(t, 1), round(size, 1)] for t, size in samples[::step]],
    }


def row(how: str, m: dict[str, Any]) -> list[str]:
    """One line of the table."""
    peaks = [" then ".join(f"{p:.0f}" for p in worker["peak_megabytes"]) for worker in m["workers"]]
    return [
        {"norm": "norm alone", "all": "all parts"}[how],
        f"{m['rows']:,}",
        f"{m['one_seconds']:.1f}",
        f"{m['two_seconds']:.1f}",
        f"{m['one_seconds'] / m['two_seconds']:.2f}",
        "; ".join(peaks),
    ]


def main() -> None:
    """Make the files, measure, and tell."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--d", type=int, default=32)
    parser.add_argument("--shards", type=int, default=40)
    parser.add_argument("--scratch", type=Path, help="where files are made; the system's default")
    parser.add_argument("--folder", type=Path, default=HERE, help="where README.md is made")
    args = parser.parse_args()
    for name, least in (("rows", 100), ("d", 2), ("shards", 2)):
        if getattr(args, name) < least:
            parser.error(f"--{name} must be at least {least}, got {getattr(args, name)}.")
    needed = args.rows * (2 * args.d + 80)
    free = shutil.disk_usage(args.scratch or tempfile.gettempdir()).free
    if free < needed:
        has = f"{free / 1e9:.1f} of the {needed / 1e9:.1f} GB needed"
        parser.error(f"--scratch must be a folder with room, got {has}.")
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(dir=args.scratch) as folder:
        found = measure(Path(folder), args)
    Table(
        title=f"normscope score on two Ray nodes, {args.rows:,} x {args.d} float16",
        columns=[
            "novelty by",
            "rows",
            "one process, s",
            "two nodes, s",
            "one / two",
            "worker's peak, MB: first half then second",
        ],
        rows=[row(how, m) for how, m in found.items()],
        notes=[
            "The scores of both are the same file, byte for byte. One process reads in a second "
            "thread; two nodes are two workers and the process that writes, on the same cores.",
            f"Load average before: {load:.1f}, of {os.cpu_count()} cores.",
        ],
        measured=dict(found),
        versions=installed("torch", "ray", "pyarrow"),
    ).save("score_ray", args.folder)


def _below() -> set[int]:
    """The processes that this one started, and those that these started."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        fields = _read(path).rpartition(b")")[2].split()
        if fields:
            parents[int(path.parent.name)] = int(fields[1])
    found, last = {os.getpid()}, 0
    while len(found) > last:
        last = len(found)
        found |= {pid for pid, parent in parents.items() if parent in found}
    return found


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # it ended
        return b""


if __name__ == "__main__":
    main()
