"""`normscope score --parts norm` against reading the file alone: seconds, GB/s and peak memory.

    python benchmarks/score.py

Makes a .npy and a .parquet of 5,000,000 x 256 float32, one after the other, and removes them. The
.npy is compared with `cat FILE > /dev/null`, the .parquet with a bare scan of its record batches
by pyarrow. All are processes of their own and take turns, with the file in the system's cache and
without. What starting Python and importing torch takes is measured on a file of 1,000 rows, and
shown apart: it does not grow with the file.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from tables import HERE, Table, installed

REFERENCE_ROWS = 100_000
PIECE = 50_000  # rows made at once
GROUP = 100_000  # rows of a parquet row group
SCAN = """
import sys, time, pyarrow.parquet as pq
start = time.perf_counter()
file = pq.ParquetFile(sys.argv[1])
rows = sum(len(batch) for batch in file.iter_batches(columns=["embedding"]))
print(time.perf_counter() - start)
"""

# A process starts with the peak of the one that forked it, so that one must be small.
WATCH = """
import json, resource, subprocess, sys, time
start = time.perf_counter()
done = subprocess.run(sys.argv[1:], stdout=subprocess.PIPE, text=True, check=True)
seconds = time.perf_counter() - start
used = resource.getrusage(resource.RUSAGE_CHILDREN)
busy = used.ru_utime + used.ru_stime
print(json.dumps([seconds, used.ru_maxrss, done.stdout, busy]))
"""


def pieces(rows: int, d: int):
    """Embeddings whose norms differ, so many rows in all."""
    random = np.random.default_rng(0)
    for start in range(0, rows, PIECE):
        n = min(PIECE, rows - start)
        z = random.standard_normal((n, d), dtype=np.float32)
        yield z * random.uniform(0.5, 2, (n, 1)).astype(np.float32)


def write_npy(path: Path, rows: int, d: int) -> None:
    """All rows in a .npy."""
    with path.open("wb") as stream:
        header = {"descr": "<f4", "fortran_order": False, "shape": (rows, d)}
        np.lib.format.write_array_header_1_0(stream, header)
        for z in pieces(rows, d):
            stream.write(z.data)


def write_parquet(path: Path, rows: int, d: int) -> None:
    """All rows in a column of lists, neither compressed nor by dictionary: they are noise."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema({"embedding": pa.list_(pa.float32())})
    with pq.ParquetWriter(path, schema, compression="none", use_dictionary=False) as file:
        for z in pieces(rows, d):
            starts = pa.array(np.arange(0, z.size + 1, d, dtype=np.int32))
            lists = pa.ListArray.from_arrays(starts, pa.array(z.ravel()))
            file.write_table(pa.table({"embedding": lists}), row_group_size=GROUP)


def process(words: list[str]) -> tuple[float, float, str, float]:
    """Seconds, peak megabytes, what a process printed, and seconds of all its cores."""
    done = subprocess.run(
        [sys.executable, "-c", WATCH, *words], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{words} failed: {done.stderr}")
    seconds, peak, told, busy = json.loads(done.stdout)
    return seconds, peak * 1024 / 1e6, told, busy


def score(path: Path, reference: Path) -> tuple[float, float]:
    """Seconds and peak megabytes of the command on a file."""
    words = [sys.executable, "-m", "normscope.cli", "score", str(path), "--force"]
    return process([*words, "--reference", str(reference), "--parts", "norm"])[:2]


def bare(path: Path) -> float:
    """Seconds of reading a file and doing nothing with it."""
    if path.suffix == ".npy":
        return process(["sh", "-c", 'cat "$0" > /dev/null', str(path)])[0]
    return float(process([sys.executable, "-c", SCAN, str(path)])[2])


def forget(path: Path) -> None:
    """Have the system drop a file from its cache."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def measure(kind: str, folder: Path, args: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Medians over rounds for one kind of file, in the cache and not."""
    write = {"npy": write_npy, "parquet": write_parquet}[kind]
    path, tiny, reference = (folder / f"{name}.{kind}" for name in ("large", "tiny", "reference"))
    for target, rows in ((path, args.rows), (tiny, 1000), (reference, REFERENCE_ROWS)):
        write(target, rows, args.d)
    found: dict[str, dict[str, float]] = {}
    start = statistics.median(score(tiny, reference)[0] for _ in range(args.rounds))
    for state in ("cached", "on disk"):
        runs = []
        for turn in range(args.rounds):
            print(f"{kind}, {state}, round {turn + 1}", file=sys.stderr)
            forget(path)
            if state == "cached":
                bare(path)
            plain = bare(path)
            if state == "on disk":
                forget(path)
            runs.append((plain, *score(path, reference)))
        plain, seconds, peak = (statistics.median(column) for column in zip(*runs, strict=True))
        size = path.stat().st_size / 1e9
        found[state] = {
            "gigabytes": size,
            "bare_seconds": plain,
            "seconds": seconds,
            "start_seconds": start,
            "peak_megabytes": peak,
        }
    for target in (path, tiny, reference):
        target.unlink()
    return found


def row(kind: str, state: str, m: dict[str, float]) -> list[str]:
    """One line of the table."""
    beyond = m["seconds"] - m["start_seconds"]
    return [
        f".{kind}, {state}",
        f"{m['gigabytes'] / m['bare_seconds']:.2f}",
        f"{m['gigabytes'] / beyond:.2f}",
        f"{m['bare_seconds'] / beyond:.2f}",
        f"{m['start_seconds']:.1f}",
        f"{m['seconds']:.1f}",
        f"{m['bare_seconds'] / m['seconds']:.2f}",
        f"{m['peak_megabytes']:.0f}",
    ]


def main() -> None:
    """Make the files, measure, and tell."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--d", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scratch", type=Path, help="where files are made; the system's default")
    parser.add_argument("--folder", type=Path, default=HERE, help="where README.md is made")
    args = parser.parse_args()
    for name in ("rows", "d", "rounds"):
        if getattr(args, name) < 1:
            parser.error(f"--{name} must be at least 1, got {getattr(args, name)}.")
    needed = 1.2 * 4 * args.d * (args.rows + REFERENCE_ROWS)
    free = shutil.disk_usage(args.scratch or tempfile.gettempdir()).free
    if free < needed:
        has = f"{free / 1e9:.0f} of the {needed / 1e9:.0f} GB needed"
        parser.error(f"--scratch must be a folder with room, got {has}.")
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(dir=args.scratch) as folder:
        found = {kind: measure(kind, Path(folder), args) for kind in ("npy", "parquet")}
    Table(
        title=f"normscope score --parts norm, {args.rows:,} x {args.d} float32",
        columns=[
            "file",
            "bare read, GB/s",
            "score, GB/s",
            "score / bare",
            "start-up, s",
            "whole process, s",
            "whole / bare",
            "peak memory, MB",
        ],
        rows=[row(kind, state, m) for kind, of in found.items() for state, m in of.items()],
        notes=[
            "Bare read: `cat FILE > /dev/null` for .npy, a scan of the record batches by pyarrow "
            "for .parquet. Score: what the command takes beyond its start-up, which is the same "
            "command on 1,000 rows; its scores are written to a .parquet.",
            f"Rounds: {args.rounds} (the median is shown). The reference has {REFERENCE_ROWS:,} "
            "rows. The last ratio counts the start-up in, and grows with the file.",
            f"Load average of the machine's {os.cpu_count()} cores before the first process: "
            f"{load:.1f}.",
        ],
        measured={**found},
        versions=installed("torch", "numpy", "pyarrow"),
    ).save("score", args.folder)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit("stopped; nothing was stored") from None
