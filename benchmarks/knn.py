"""Time and peak memory of exact nearest neighbours by cosine, beside the ways others find them.

    python benchmarks/knn.py --device cpu

Every measurement is a process of its own, so that none inherits another's memory; the ways take
turns, round after round. Each normalises the rows itself and finds the neighbours; ours votes on
the class too, in the time shown. What they found is compared with float64.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from info_nce import peak_since, start_of_peak
from tables import HERE, Table, installed

CHECKED = 100  # queries whose neighbours are compared
TOLERANCE = 1e-5  # in the cosine: rows this close to the k-th neighbour may stand for it
Search = Callable[[Tensor, Tensor, int], Tensor]


def ours() -> Search:
    """`normscope.evaluation.knn`; it votes, and with a class for each row the votes are rows."""
    from normscope.evaluation import knn

    def search(bank: Tensor, queries: Tensor, k: int) -> Tensor:
        own = len(queries) <= CHECKED
        labels = torch.arange(len(bank), device=bank.device)
        scores = knn(bank, labels if own else labels % 10, queries, k).scores
        return scores.topk(k).indices if own else scores

    return search


def one_matrix() -> Search:
    """The usual way: all similarities at once."""

    def search(bank: Tensor, queries: Tensor, k: int) -> Tensor:
        u, v = (torch.nn.functional.normalize(x, dim=1) for x in (queries, bank))
        return (u @ v.T).topk(k).indices

    return search


def faiss_flat() -> Search:
    """Faiss's IndexFlatIP."""
    import faiss  # pyright: ignore[reportMissingImports]

    def search(bank: Tensor, queries: Tensor, k: int) -> Tensor:
        u, v = queries.numpy().copy(), bank.numpy().copy()
        faiss.normalize_L2(u)
        faiss.normalize_L2(v)
        index = faiss.IndexFlatIP(v.shape[1])
        index.add(v)  # pyright: ignore[reportCallIssue]
        return torch.from_numpy(index.search(u, k)[1])  # pyright: ignore[reportCallIssue]

    return search


def scikit_learn() -> Search:
    """scikit-learn's brute force, by distances of unit rows: quicker there than its cosines."""
    from sklearn.neighbors import NearestNeighbors
    from sklearn.preprocessing import normalize

    def search(bank: Tensor, queries: Tensor, k: int) -> Tensor:
        neighbours = NearestNeighbors(n_neighbors=k, algorithm="brute").fit(normalize(bank.numpy()))
        found = neighbours.kneighbors(normalize(queries.numpy()), return_distance=False)
        return torch.from_numpy(found)

    return search


WAYS = {
    "normscope": ours,
    "one matrix": one_matrix,
    "faiss flat": faiss_flat,
    "scikit-learn": scikit_learn,
}
ON_CPU = ("faiss flat", "scikit-learn")


def sample(args: argparse.Namespace) -> tuple[Tensor, Tensor]:
    """The bank and the queries: rows in random directions, of lengths that differ."""
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(args.bank + args.queries, args.d, generator=generator)
    z *= 0.5 + torch.rand(len(z), 1, generator=generator)
    bank, queries = z.to(args.device).split([args.bank, args.queries])
    return bank, queries


def measure(way: str, args: argparse.Namespace) -> dict[str, float]:
    """Seconds, bytes, and how far from exact, in this process."""
    search = WAYS[way]()
    bank, queries = sample(args)
    few = queries[:CHECKED]
    off = shortfall(bank, few, search(bank, few, args.k))  # loads what the first call loads
    before = start_of_peak(args.device)
    search(bank, queries, args.k)
    peak = peak_since(before, args.device)
    seconds = []
    for _ in range(args.repeats):
        wait(args.device)
        start = time.perf_counter()
        search(bank, queries, args.k)
        wait(args.device)
        seconds.append(time.perf_counter() - start)
    return {"seconds": min(seconds), "bytes": peak, "shortfall": off}


def wait(device: str) -> None:
    """Let a GPU finish."""
    if device == "cuda":
        torch.cuda.synchronize()


def shortfall(bank: Tensor, queries: Tensor, found: Tensor) -> float:
    """How much less near, in the cosine, the least near row found is than the k-th neighbour."""
    u, v = (torch.nn.functional.normalize(x.double(), dim=1) for x in (queries, bank))
    exact = u @ v.T
    k = found.shape[1]
    if any(len(row.unique()) < k for row in found):
        return float("inf")
    farthest = exact.gather(1, found.to(exact.device)).amin(1)
    return (exact.topk(k).values[:, -1] - farthest).clamp(min=0).max().item()


def in_own_process(way: str, args: argparse.Namespace) -> dict[str, float] | str:
    """What `measure` found in a fresh process, or why it found nothing."""
    numbers = [f"--{name}={getattr(args, name)}" for name in ("bank", "queries", "d", "k")]
    options = [*numbers, f"--device={args.device}", f"--repeats={args.repeats}", f"--job={way}"]
    done = subprocess.run(
        [sys.executable, __file__, *options], capture_output=True, text=True, check=False
    )
    if done.returncode == 0:
        return json.loads(done.stdout.splitlines()[-1])
    memory = any(word in done.stderr for word in ("allocate memory", "OutOfMemory", "MemoryError"))
    last = (done.stderr.strip().splitlines() or ["killed"])[-1]
    return "out of memory" if memory or done.returncode < 0 else last


def why_missing(way: str, device: str) -> str | None:
    """Why a way can't be measured here, if it can't."""
    if device == "cuda" and way in ON_CPU:
        return "it works on a CPU alone"
    try:
        WAYS[way]()
    except Exception as error:  # a peer may break in any way it likes
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"
    return None


def arguments() -> argparse.Namespace:
    """The command line, checked."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bank", type=int, default=50_000)
    parser.add_argument("--queries", type=int, default=10_000)
    parser.add_argument("--d", type=int, default=512)
    parser.add_argument("--k", type=int, default=200)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--name", help="of the JSON file; knn-DEVICE unless given")
    parser.add_argument("--folder", type=Path, default=HERE, help="where README.md is made")
    parser.add_argument("--job", choices=list(WAYS), help=argparse.SUPPRESS)
    args = parser.parse_args()
    for name in ("bank", "queries", "d", "k", "rounds", "repeats"):
        if getattr(args, name) < 1:
            parser.error(f"--{name} must be at least 1, got {getattr(args, name)}.")
    if args.k > args.bank:
        parser.error(f"--k must be at most the {args.bank} rows of the bank, got {args.k}.")
    if args.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device must be cpu, got 'cuda': there is no CUDA device here.")
    return args


def main() -> None:
    """Measure each way, and tell."""
    args = arguments()
    if args.job:
        print(json.dumps(measure(args.job, args)))
        return
    missing = {way: why for way in WAYS if (why := why_missing(way, args.device))}
    found: dict[str, list[dict[str, float] | str]] = {w: [] for w in WAYS if w not in missing}
    for turn in range(args.rounds):
        for way, runs in found.items():
            print(f"round {turn + 1}, {way}", file=sys.stderr)
            runs.append(in_own_process(way, args))
    medians = {}
    for way, runs in found.items():
        good = [run for run in runs if isinstance(run, dict)]
        if good:
            medians[way] = {key: statistics.median(run[key] for run in good) for key in good[0]}
            if max(run["shortfall"] for run in good) > TOLERANCE:
                raise SystemExit(f"{way} finds other neighbours: {good}")
    if "normscope" not in medians:
        raise SystemExit(f"nothing could be measured: {found}")
    own = medians["normscope"]
    rows = []
    for way, runs in found.items():
        if way not in medians:
            rows.append([way, str(runs[-1]), "-", "-", "-"])
            continue
        this = medians[way]
        times, sizes = this["seconds"] / own["seconds"], this["bytes"] / max(own["bytes"], 1)
        row = [way, f"{1e3 * this['seconds']:.1f}", f"{this['bytes'] / 1e6:.1f}"]
        rows.append([*row, f"{times:.2f}", f"{sizes:.1f}"])
    Table(
        title=f"Nearest neighbours, {args.queries:,} queries, a bank of {args.bank:,} x {args.d}, "
        f"k = {args.k}, float32, {args.device}",
        columns=["way", "time, ms", "peak memory, MB", "time / first", "memory / first"],
        rows=rows,
        notes=[
            *(f"Skipped: {way} ({why})." for way, why in missing.items()),
            f"Of {min(CHECKED, args.queries)} queries no row found is farther than the k-th "
            f"neighbour in float64 by more than {TOLERANCE:g} in the cosine, in any way.",
            f"Rounds: {args.rounds} (the median is shown), each the best of {args.repeats} in a "
            "fresh process. Ours votes on the class too.",
        ],
        measured={**medians},
        versions=installed("torch", "faiss-cpu", "scikit-learn"),
    ).save(args.name or f"knn-{args.device}", args.folder)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit("stopped; nothing was stored") from None
