"""Time to fit a linear probe, beside the ways others fit the same classifier.

    python benchmarks/probe.py

Logistic regression on two kinds of features: those of a power law, whose k-th principal component
has a standard deviation of 1 / k, as networks' fall off; and a random layer's, whose classes are
nearly separable. All ways minimise the same function, each to its own tolerance of 1e-6, and take
turns, round after round. How far above the lowest loss each ends is shown.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from normscope.evaluation import linear_probe
from tables import HERE, Table, installed

L2, TOLERANCE, STEPS = 1e-4, 1e-6, 5000
Fit = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]  # (features, labels) -> weight, bias


def ours(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """`normscope.evaluation.linear_probe`."""
    found = linear_probe(x, y, x[:1], l2=L2, steps=STEPS)
    return found.weight, found.bias


def plain(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """PyTorch's L-BFGS on the features as they are."""
    w = x.new_zeros(int(y.max()) + 1, x.shape[1], requires_grad=True)
    b = x.new_zeros(len(w), requires_grad=True)
    optimiser = torch.optim.LBFGS(
        [w, b],
        max_iter=STEPS,
        tolerance_grad=TOLERANCE,
        tolerance_change=0.0,
        history_size=20,
        line_search_fn="strong_wolfe",
    )

    def closure() -> Tensor:
        optimiser.zero_grad()
        loss = objective(x, y, w, b)
        loss.backward()
        return loss

    optimiser.step(closure)  # pyright: ignore[reportArgumentType]
    return w.detach(), b.detach()


def scikit_learn(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """scikit-learn's logistic regression."""
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(C=1 / (len(x) * L2), tol=TOLERANCE, max_iter=STEPS)
    model.fit(x.numpy(), y.numpy())
    return torch.from_numpy(model.coef_), torch.from_numpy(model.intercept_)


WAYS: dict[str, Fit] = {
    "normscope": ours,
    "PyTorch's L-BFGS": plain,
    "scikit-learn": scikit_learn,
}


def objective(x: Tensor, y: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """What all of them minimise."""
    return F.cross_entropy(F.linear(x, w, b), y) + L2 / 2 * w.square().sum()


def power_law(y: Tensor, d: int, generator: torch.Generator) -> Tensor:
    """Components that fall off, rotated; classes overlap."""
    z = _normal(generator, len(y), d) + 0.1 * _normal(generator, int(y.max()) + 1, d)[y]
    z /= torch.arange(1, d + 1)
    return z @ torch.linalg.qr(_normal(generator, d, d)).Q


def random_layer(y: Tensor, d: int, generator: torch.Generator) -> Tensor:
    """What a layer makes of an eighth as many latents, and some noise."""
    latents = _normal(generator, len(y), d // 8)
    latents += 0.5 * _normal(generator, int(y.max()) + 1, d // 8)[y]
    shared = F.relu(latents @ _normal(generator, d // 8, d) / (d // 8) ** 0.5)
    return shared + 0.05 * _normal(generator, len(y), d)


def _normal(generator: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


KINDS = {"power law": power_law, "random layer": random_layer}


def arguments() -> argparse.Namespace:
    """The command line, checked."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, default in (("rows", 20_000), ("d", 256), ("classes", 10), ("rounds", 3)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--folder", type=Path, default=HERE, help="where README.md is made")
    args = parser.parse_args()
    for name, least in (("rows", args.classes), ("d", 8), ("classes", 2), ("rounds", 1)):
        if getattr(args, name) < least:
            parser.error(f"--{name} must be at least {least}, got {getattr(args, name)}.")
    return args


def main() -> None:
    """Fit in every way, and tell."""
    args = arguments()
    y = torch.arange(args.rows) % args.classes
    rows, measured = [], {}
    for kind, make in KINDS.items():
        x = make(y, args.d, torch.Generator().manual_seed(0))
        x = (x - x.mean(0)) / x.std(0, correction=0)
        found = measured[kind] = measure(kind, x, y, args.rounds)
        first, lowest = found["normscope"]["seconds"], min(f["loss"] for f in found.values())
        for way, this in found.items():
            times = [f"{this['seconds']:.2f}", f"{this['seconds'] / first:.1f}"]
            rows.append([kind, way, *times, f"{this['loss'] - lowest:.1e}"])
    Table(
        title=f"Linear probe, {args.rows:,} x {args.d} features, {args.classes} classes, cpu",
        columns=["features", "way", "time, s", "time / first", "loss above the lowest"],
        rows=rows,
        notes=[f"Rounds: {args.rounds} (the median is shown)."],
        measured=measured,
        versions=installed("torch", "scikit-learn"),
    ).save("probe-cpu", args.folder)


def measure(kind: str, x: Tensor, y: Tensor, rounds: int) -> dict[str, dict[str, float]]:
    """Seconds and the loss reached, by way."""
    seconds: dict[str, list[float]] = {way: [] for way in WAYS}
    losses: dict[str, float] = {}
    for turn in range(rounds):
        for way, fit in WAYS.items():
            print(f"{kind}, round {turn + 1}, {way}", file=sys.stderr)
            start = time.perf_counter()
            w, b = fit(x, y)
            seconds[way].append(time.perf_counter() - start)
            losses[way] = float(objective(x, y, w, b))
    return {w: {"seconds": statistics.median(t), "loss": losses[w]} for w, t in seconds.items()}


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit("stopped; nothing was stored") from None
