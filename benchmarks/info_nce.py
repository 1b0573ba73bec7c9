"""Time and peak memory of InfoNCE, forward and backward, beside the ways others do it.

    python benchmarks/info_nce.py --sizes 512 2048 8192 --device cpu

On a CPU every measurement is a process of its own, so that none inherits another's memory; on a
GPU, whose memory is counted by the tensor, a way has one for all sizes. The ways take turns, round
after round, so that a busy machine slows all alike. A process may take at most four fifths of the
memory; one that wants more is reported as out of memory.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from tables import HERE, Table, installed

TAU = 0.5
TIME_BOX = 10.0  # seconds after which a slow way is not repeated
Loss = Callable[[Tensor, Tensor], Tensor]
Found = dict[str, float] | str  # or why there is nothing


def ours() -> Loss:
    """`normscope.losses.info_nce`."""
    from normscope.losses import info_nce

    return lambda z1, z2: info_nce(z1, z2, temperature=TAU)


def full_matrix() -> Loss:
    """The usual way: all similarities at once, then cross-entropy."""

    def loss(z1: Tensor, z2: Tensor) -> Tensor:
        u = torch.nn.functional.normalize(torch.cat([z1, z2]), dim=1)
        s = (u @ u.T / TAU).fill_diagonal_(-torch.inf)
        target = torch.arange(len(u), device=u.device).roll(len(z1))
        return torch.nn.functional.cross_entropy(s, target)

    return loss


def lightly() -> Loss:
    """Lightly's NTXentLoss."""
    from lightly.loss import NTXentLoss  # pyright: ignore[reportMissingImports]

    return NTXentLoss(temperature=TAU)


def metric_learning() -> Loss:
    """pytorch-metric-learning's NTXentLoss, both views labelled by example."""
    from pytorch_metric_learning.losses import (  # pyright: ignore[reportMissingImports]
        NTXentLoss,
        SelfSupervisedLoss,
    )

    return SelfSupervisedLoss(NTXentLoss(temperature=TAU), symmetric=True)


WAYS = {
    "normscope": ours,
    "full matrix": full_matrix,
    "lightly": lightly,
    "pytorch-metric-learning": metric_learning,
}


def measure(way: str, n: int, d: int, device: str, repeats: int) -> dict[str, float]:
    """Seconds and bytes of forward plus backward, in this process."""
    loss = WAYS[way]()
    if device == "cpu":
        most = int(0.8 * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
    generator = torch.Generator().manual_seed(0)
    warm1, warm2 = torch.randn(2, 64, d, device=device, requires_grad=True)
    loss(warm1, warm2).backward()  # loads what the first call loads
    z1, z2 = (z.to(device).requires_grad_() for z in torch.randn(2, n, d, generator=generator))
    before = start_of_peak(device)
    value = loss(z1, z2)
    value.backward()
    peak = peak_since(before, device)
    seconds = []
    while len(seconds) < repeats and sum(seconds) < TIME_BOX:
        start = time.perf_counter()
        loss(z1, z2).backward()
        if device == "cuda":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    return {"loss": value.item(), "seconds": min(seconds), "bytes": peak}


def start_of_peak(device: str) -> int:
    """What is in use now, from where the peak is counted."""
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        return torch.cuda.memory_allocated()
    with open("/proc/self/clear_refs", "w") as refs:
        refs.write("5")  # forget the high-water mark
    return status_bytes("VmRSS")


def peak_since(before: int, device: str) -> int:
    """The most that was in use at once beyond what was at the start."""
    if device == "cuda":
        return torch.cuda.max_memory_allocated() - before
    return status_bytes("VmHWM") - before


def status_bytes(key: str) -> int:
    """One line of /proc/self/status."""
    with open("/proc/self/status") as status:
        line = next(line for line in status if line.startswith(key))
    return 1024 * int(line.split()[1])


def in_own_process(way: str, sizes: list[int], args: argparse.Namespace) -> list[Found]:
    """What `measure` found of each size in a fresh process, or why it found nothing."""
    job = json.dumps([way, sizes, args.d, args.device, args.repeats])
    done = subprocess.run(
        [sys.executable, __file__, "--job", job], capture_output=True, text=True, check=False
    )
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if len(found) == len(sizes):
        return found
    last = (done.stderr.strip().splitlines() or ["killed"])[-1]
    memory = any(word in done.stderr for word in ("allocate memory", "OutOfMemory", "MemoryError"))
    why = "out of memory" if memory or done.returncode < 0 else last
    return found + [why] * (len(sizes) - len(found))  # a larger one would fare no better


def why_missing(way: str) -> str | None:
    """Why a way can't be imported here, if it can't."""
    try:
        WAYS[way]()
    except Exception as error:  # a peer may break in any way it likes
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"
    return None


def main() -> None:
    """Measure each way at each size, and tell."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", type=int, nargs="+", default=[512, 2048, 8192], metavar="N")
    parser.add_argument("--d", type=int, default=128)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--ways", nargs="+", choices=list(WAYS), default=list(WAYS), metavar="WAY")
    parser.add_argument("--name", help="of the JSON file; info_nce-DEVICE unless given")
    parser.add_argument("--folder", type=Path, default=HERE, help="where README.md is made")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.job:
        way, sizes, *how = json.loads(args.job)
        for n in sizes:
            print(json.dumps(measure(way, n, *how)), flush=True)
        return

    for name in ("sizes", "d", "rounds", "repeats"):
        values = getattr(args, name)
        if min(values if isinstance(values, list) else [values]) < 1:
            parser.error(f"--{name} must be at least 1, got {values}.")
    if args.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device must be cpu, got 'cuda': there is no CUDA device here.")

    missing = {way: why for way in args.ways if (why := why_missing(way))}
    ways = [way for way in args.ways if way not in missing]
    found: dict[tuple[int, str], list[Found]] = {}
    for sizes in [sorted(args.sizes)] if args.device == "cuda" else [[n] for n in args.sizes]:
        for turn in range(args.rounds):
            for way in ways:
                if all(found.get((n, way), [""])[-1] == "out of memory" for n in sizes):
                    continue
                print(f"n = {sizes}, round {turn + 1}, {way}", file=sys.stderr)
                for n, run in zip(sizes, in_own_process(way, sizes, args), strict=True):
                    found.setdefault((n, way), []).append(run)
    if not any(isinstance(run, dict) for runs in found.values() for run in runs):
        raise SystemExit(f"nothing could be measured: {found or missing}")
    table(args, ways, missing, found).save(args.name or f"info_nce-{args.device}", args.folder)


def table(args, ways, missing, found) -> Table:
    """Medians over rounds, and their ratios to ours."""
    rows, measured = [], {}
    for n in args.sizes:
        medians = {}
        for way in ways:
            good = [run for run in found[n, way] if isinstance(run, dict)]
            if good:
                medians[way] = {key: statistics.median(run[key] for run in good) for key in good[0]}
        for way in ways:
            if way not in medians:
                rows.append([str(n), way, str(found[n, way][-1]), "-", "-", "-"])
                continue
            own, this = medians.get(ways[0], {}), medians[way]
            if own and abs(own["loss"] - this["loss"]) > 1e-3:
                raise SystemExit(f"{way} computes another loss: {this['loss']} != {own['loss']}")
            rows.append(
                [
                    str(n),
                    way,
                    f"{1e3 * this['seconds']:.1f}",
                    f"{this['bytes'] / 1e6:.1f}",
                    f"{this['seconds'] / own['seconds']:.2f}" if own else "-",
                    f"{this['bytes'] / own['bytes']:.1f}" if own and own["bytes"] else "-",
                ]
            )
        measured[str(n)] = medians
    return Table(
        title=f"InfoNCE, forward and backward, d = {args.d}, float32, {args.device}",
        columns=["n", "way", "time, ms", "peak memory, MB", "time / first", "memory / first"],
        rows=rows,
        notes=[
            *(f"Skipped: {way}, which can't be imported here ({missing[way]})." for way in missing),
            f"Rounds: {args.rounds} (the median is shown), each the best of {args.repeats} in a "
            f"fresh process{' for all sizes' if args.device == 'cuda' else ''}.",
        ],
        measured=measured,
        versions=installed("torch", "lightly", "pytorch-metric-learning"),
    )


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit("stopped; nothing was stored") from None
