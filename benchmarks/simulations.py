"""The simulations against plain autograd loops of the same experiments, in one run.

    python benchmarks/simulations.py

The plain loops take one cell, or one seed, after another, a backward pass and an optimizer step at
a time, on one thread, which is faster for such small tensors; those of the latent classes draw
their positives row by row, as the paper's notebook does, or at once. A part of their work
is timed, and the rest reckoned from it in proportion to the steps; how much is said in the table.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import nn

from normscope_paper.simulation import RECIPES, converge_pairs, latent_data, train_latent_classes
from tables import HERE, Table, installed

NORMS = [0.25, 0.5, 0.75, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]


def timed(work: Callable[[], object]) -> tuple[float, object]:
    """Seconds, and what the work gave."""
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


def median(work: Callable[[], object]) -> float:
    """The median of three times, in seconds."""
    return statistics.median(timed(work)[0] for _ in range(3))


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
    seconds = median(lambda: converge_pairs(NORMS, grid.tolist()))
    total = int(converge_pairs(NORMS, grid.tolist()).steps.sum())
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


def row_by_row_positives(labels: torch.Tensor) -> torch.Tensor:
    """For each row one other of its class, drawn in a loop as the paper's notebook does."""
    chosen = torch.zeros(len(labels), len(labels), dtype=torch.bool)
    for i in range(len(labels)):
        same = torch.where(labels == labels[i])[0]
        same = same[same != i]
        if len(same):
            chosen[i, same[torch.randint(len(same), (1,))]] = True
    return chosen


def positives_at_once(labels: torch.Tensor) -> torch.Tensor:
    """The same draw without a loop."""
    same = (labels[:, None] == labels).float().fill_diagonal_(0)
    some = same.sum(1) > 0
    chosen = torch.zeros_like(same, dtype=torch.bool)
    partner = torch.multinomial(same + ~some[:, None], 1)
    return chosen.scatter_(1, partner, True) & some[:, None]


def plain_latent_classes(draw: Callable[[torch.Tensor], torch.Tensor], most_steps: int) -> int:
    """One seed by autograd, for so many steps, with the recipe's mutual positives."""
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
            u = nn.functional.normalize(net(x[batch]), dim=1)
            e = (u @ u.T).exp() * (1 - torch.eye(len(u)))
            chosen = draw(y[batch])
            positives = chosen | chosen.T
            counted = positives.any(1)
            loss = -((e * positives).sum(1)[counted] / e.sum(1)[counted]).log().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            steps += 1


def latent_seeds(seeds: int, epochs: int, sample: int) -> list[list[str]]:
    """All seeds at once, and `sample` steps of one by autograd, with either draw."""
    recipe = replace(RECIPES["as_coded"], epochs=epochs)
    seconds = median(lambda: train_latent_classes(recipe, seeds=range(seeds)))
    total = seeds * epochs * -(-recipe.points // recipe.batch)
    what = f"latent classes, {seeds} seeds x {epochs} epochs, {total} steps"
    rows = []
    for draw, how in (
        (row_by_row_positives, "positives drawn row by row, as in the notebook"),
        (positives_at_once, "positives drawn at once"),
    ):
        spent, taken = on_one_thread(partial(plain_latent_classes, draw, sample))
        reckoned = spent / int(taken) * total  # pyright: ignore[reportArgumentType]
        rows.append(row(f"{what}; {how}", seconds, reckoned, f"{taken} steps"))
    return rows


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
    rows = [pair_grid(args.alphas, args.sample)]
    rows += latent_seeds(args.seeds, args.epochs, args.sample)
    Table(
        title="Simulations against plain autograd loops",
        columns=["what", "ours, s", "plain loop, s", "of which timed", "plain / ours"],
        rows=rows,
        notes=[
            "Ours: the median of three. It works in float64 on the pairs; all else is float32.",
        ],
        measured={"rows": rows},
        versions=installed("torch"),
    ).save("simulations", args.folder)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit("stopped; nothing was stored") from None
