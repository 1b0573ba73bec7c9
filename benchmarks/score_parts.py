"""`normscope score` by the norm alone, and by neighbours, against numpy and faiss: time and memory.

    python benchmarks/score_parts.py

Makes a .npy of 2,000,000 x 384 float16, and removes it. The norm's part is compared with a numpy
loop that reads the mapped file and takes norms. Neighbours among 50,000 rows are looked for on the
first 200,000 rows alone: numpy multiplies and partitions, faiss searches all rows of a flat index;
both only search, while the command also fits the reference, judges each part and writes. All are
processes of their own, in turn, on two cores.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from pathlib import Path

import numpy as np

from score import PIECE, process
from tables import HERE, Table, installed

REFERENCE = 50_000
NORMS = """
import sys, numpy as np
z = np.load(sys.argv[1], mmap_mode="r")
norms = np.empty(len(z))
for i in range(0, len(z), 4096):
    part = z[i : i + 4096].astype(np.float32)
    norms[i : i + 4096] = np.sqrt(np.einsum("ij,ij->i", part, part))
print(norms.mean())
"""
UNIT = """
import sys, numpy as np
def unit(path, rows):
    z = np.load(path, mmap_mode="r")[:rows].astype(np.float32)
    return z / np.linalg.norm(z, axis=1, keepdims=True)
bank, q = unit(sys.argv[1], 50_000), unit(sys.argv[2], None)
"""
NUMPY = f"""{UNIT}
found = 0.0
for i in range(0, len(q), 1024):
    near = q[i : i + 1024] @ bank.T
    found += np.partition(near, -50, axis=1)[:, -50:].sum()
print(found)
"""
FAISS = f"""{UNIT}
import faiss
index = faiss.IndexFlatIP(bank.shape[1])
index.add(bank)
print(sum(index.search(q[i : i + 4096], 50)[0].sum() for i in range(0, len(q), 4096)))
"""


def write(path: Path, rows: int, d: int) -> None:
    """Embeddings around a mean, of norms that differ, in half precision."""
    random = np.random.default_rng(0)
    mean = random.standard_normal(d, dtype=np.float32)
    with path.open("wb") as stream:
        header = {"descr": "<f2", "fortran_order": False, "shape": (rows, d)}
        np.lib.format.write_array_header_1_0(stream, header)
        for start in range(0, rows, PIECE):
            n = min(PIECE, rows - start)
            z = random.standard_normal((n, d), dtype=np.float32) + mean
            z *= random.uniform(0.5, 2, (n, 1)).astype(np.float32)
            stream.write(z.astype(np.float16).data)


def ways(large: Path, few: Path) -> dict[str, tuple[int, list[str]]]:
    """Name -> which group it is compared in, and its command; the first of a group is ours."""
    command = [sys.executable, "-m", "normscope.cli", "score"]
    beside = ["--reference", str(large), "--force"]
    bare = [sys.executable, "-c"]
    return {
        "score --parts norm": (0, [*command, str(large), *beside, "--parts", "norm"]),
        "numpy norms": (0, [*bare, NORMS, str(large)]),
        "score": (1, [*command, str(few), *beside]),
        "numpy neighbours": (1, [*bare, NUMPY, str(large), str(few)]),
        "faiss neighbours": (1, [*bare, FAISS, str(large), str(few)]),
    }


def main() -> None:
    """Make the files, measure, and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--judged", type=int, default=200_000, help="rows with neighbours")
    parser.add_argument("--d", type=int, default=384)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scratch", type=Path, help="where files are made; the system's default")
    parser.add_argument("--folder", type=Path, default=HERE, help="where README.md is made")
    args = parser.parse_args()
    if not REFERENCE <= args.judged <= args.rows:
        parser.error(f"--judged must be from {REFERENCE:,} to --rows, got {args.judged}.")
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
    os.environ.update(OMP_NUM_THREADS="2", OPENBLAS_NUM_THREADS="2")
    load = os.getloadavg()[0]
    found: dict[str, list[tuple[float, float, float]]] = {}
    with tempfile.TemporaryDirectory(dir=args.scratch) as folder:
        large, few = Path(folder, "large.npy"), Path(folder, "few.npy")
        write(large, args.rows, args.d)
        np.save(few, np.load(large, mmap_mode="r")[-args.judged :])
        commands = ways(large, few)
        for turn in range(args.rounds):
            for name, (_, words) in commands.items():
                print(f"{name}, round {turn + 1}", file=sys.stderr)
                seconds, peak, _, busy = process(words)
                found.setdefault(name, []).append((busy, seconds, peak))
    medians = {
        name: tuple(statistics.median(column) for column in zip(*runs, strict=True))
        for name, runs in found.items()
    }
    rows = []
    for name, (group, _) in commands.items():
        busy, seconds, peak = medians[name]
        peer = min(medians[other][0] for other, (of, _) in commands.items() if of == group)
        many = args.judged if group else args.rows
        numbers = [f"{busy:.1f}", f"{busy / peer:.2f}", f"{seconds:.1f}", f"{peak:.0f}"]
        rows.append([name, f"{many:,}", *numbers])
    judged = medians["score"][0] / 2 * args.rows / args.judged
    Table(
        title=f"normscope score, {args.rows:,} x {args.d} float16, norm and neighbours",
        columns=[
            *("way", "rows", "seconds of both cores", "times the fastest"),
            *("seconds by the clock", "peak memory, MB"),
        ],
        rows=rows,
        notes=[
            f"Rounds: {args.rounds} (the median is shown), two cores, whose busy seconds are "
            "added up: other programs do not count. Start-up is in them.",
            f"With neighbours, {args.judged:,} rows are judged against {REFERENCE:,} drawn of "
            f"{args.rows:,}. In proportion, all would take {judged / 60:.0f} minutes of two cores.",
            f"Load average of the machine's {os.cpu_count()} cores before the first process: "
            f"{load:.1f}.",
        ],
        measured={
            name: dict(zip(("busy_seconds", "seconds", "megabytes"), of, strict=True))
            for name, of in medians.items()
        },
        versions=installed("torch", "numpy", "faiss-cpu"),
    ).save("score-parts", args.folder)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit("stopped; nothing was stored") from None
