"""The simulations against plain autograd loops of the same experiments, in one run.

    python benchmarks/simulations.py

The plain loops are written as one would write them first: one cell, or one seed, after another,
a backward pass and an optimizer step at a time, positives drawn row by row, on one thread, which
is faster for such small tensors. A part of their work
is timed, and the rest reckoned from it in proportion to the steps; how much is said in the table.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import nn

from normscope.simulation import RECIPES, converge_pairs, latent_data, train_latent_classes
from tables import HERE, Table, installed

NORMS = [0.25, 0.5, 0.75, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]


def timed(work: Callable[[], object]) -> tuple[float, object]:
    """Seconds, and what the work gave."""
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


def on_one_thread(work: Callable[[], object]) -> tuple[float, object]:
    """`timed`, with torch kept to one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return timed(work)
    finally:
        torch.set_num_threads(threads)


def plain_pairs(norm: float, alpha: float, most_steps: int, n: int = 500, d: int = 20) -> int:
    """One cell of the grid by autograd; the steps it took."""
    generator = torch.Generator().manual_seed(0)
    x1, x2 = nn.functional.normalize(torch.randn(2, n, d, generator=generator), dim=-1)
    x2 = nn.functional.normalize((1 - abs(alpha)) * x2 + alpha * x1, dim=-1)
    z1, z2 = (norm * x1).requires_grad_(), (norm * x2).requires_grad_()
    optimizer = torch.optim.SGD([z1, z2], lr=10)
    for step in range(most_steps):
        loss = -torch.cosine_similarity(z1, z2, dim=-1).mean()
        if -loss > 0.999:
            return step
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return most_steps


def pair_grid(alphas: int, sample: int) -> list[str]:
    """The whole grid at once, and `sample` steps of some of its cells by autograd."""
    grid = np.linspace(-0.96, 0.96, alphas)
    seconds, result = timed(lambda: converge_pairs(NORMS, grid.tolist()).steps)
    total = int(np.asarray(result).sum())
    spent, taken = 0.0, 0
    for norm in (1, 5, 10):
        for alpha in grid[:: max(1, alphas // 4)]:
            one, steps = on_one_thread(
                lambda norm=norm, alpha=alpha: plain_pairs(norm, alpha, sample)
            )
            spent, taken = spent + one, taken + int(steps)  # pyright: ignore[reportArgumentType]
    reckoned = spent / taken * total
    what = f"pair grid, {len(NORMS)} norms x {alphas} angles, {total} steps"
    return row(what, seconds, reckoned, f"{taken} steps")


def row_by_row_loss(z: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Supervised InfoNCE with one positive a row, drawn in a loop."""
    u = nn.functional.normalize(z, dim=1)
    e = (u @ u.T).exp() * (1 - torch.eye(len(u)))
    terms = []
    for i in range(len(u)):
        same = torch.where(labels == labels[i])[0]
        same = same[same != i]
        if len(same):
            j = same[torch.randint(len(same), (1,))]
            terms.append(-(e[i, j] / e[i].sum()).log())
    return torch.cat(terms).mean()


def plain_latent_classes(most_steps: int) -> int:
    """One seed by autograd, for so many steps."""
    recipe = RECIPES["as_coded"]
    data = latent_data(recipe, seeds=[0])
    x, y = data.observations[0], data.labels[0]
    net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, recipe.dim))
    optimizer = torch.optim.SGD(net.parameters(), lr=recipe.lr)
    steps = 0
    while True:
        for batch in torch.randperm(len(x)).split(recipe.batch):
            if steps == most_steps:
                return steps
            loss = row_by_row_loss(net(x[batch]), y[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            steps += 1


def latent_seeds(seeds: int, epochs: int, sample: int) -> list[str]:
    """All seeds at once, and `sample` steps of one by autograd."""
    recipe = replace(RECIPES["as_coded"], epochs=epochs)
    seconds, _ = timed(lambda: train_latent_classes(recipe, seeds=range(seeds)))
    spent, taken = on_one_thread(lambda: plain_latent_classes(sample))
    total = seeds * epochs * -(-recipe.points // recipe.batch)
    reckoned = spent / int(taken) * total  # pyright: ignore[reportArgumentType]
    what = f"latent classes, {seeds} seeds x {epochs} epochs, {total} steps"
    return row(what, seconds, reckoned, f"{taken} steps")


def row(what: str, seconds: float, reckoned: float, basis: str) -> list[str]:
    """One line of the table."""
    return [what, f"{seconds:.2f}", f"{reckoned:.0f}", basis, f"{reckoned / seconds:.1f}"]


def main() -> None:
    """Measure both, and tell."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--alphas", type=int, default=25, help="angles of the pair grid")
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--epochs", type=int, default=50)
    parser.add_argument("--sample", type=int, default=400, help="steps timed of each plain loop")
    parser.add_argument("--folder", type=Path, default=HERE, help="where README.md is made")
    args = parser.parse_args()
    for name in ("alphas", "seeds", "epochs", "sample"):
        if getattr(args, name) < 1:
            parser.error(f"--{name} must be at least 1, got {getattr(args, name)}.")
    rows = [pair_grid(args.alphas, args.sample), latent_seeds(args.seeds, args.epochs, args.sample)]
    Table(
        title="Simulations against plain autograd loops",
        columns=["what", "ours, s", "plain loop, s", "of which timed", "plain / ours"],
        rows=rows,
        notes=["Ours works in float64 on the pairs; everything else is float32."],
        measured={"rows": rows},
        versions=installed("torch"),
    ).save("simulations", args.folder)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit("stopped; nothing was stored") from None
