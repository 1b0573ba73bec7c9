"""What large embedding norms cost, and two ways out, on scikit-learn's handwritten digits.

    python examples/digits.py

A small network learns by InfoNCE from four starts: as PyTorch initialises it; with every weight
four times larger, so that its embeddings start long; and from that bad start again, once cut by
what `suggest_cut` says, once behind `GradScale`. Prints a table and draws demo/digits.png, in
about ten seconds on two cores.
"""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass, field
from pathlib import Path

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt
import torch
from matplotlib.axes import Axes
from sklearn.datasets import load_digits
from torch import Tensor, nn

import normscope as ns

# colour (safe for the colour-blind) and line of each start
STARTS = {
    "default": ("#000000", "-"),
    "weights x 4": ("#d55e00", "-"),
    "weights x 4, cut": ("#0072b2", "--"),
    "weights x 4, GradScale, lr / 6": ("#009e73", "-."),
}


@dataclass
class History:
    """Mean loss and mean embedding norm of each epoch of one training."""

    losses: list[float] = field(default_factory=list)
    norms: list[float] = field(default_factory=list)


def view(x: Tensor) -> Tensor:
    """Each image, n 1 8 8, turned, zoomed and shifted in its own way, with some noise."""
    n = len(x)
    angle, zoom = 0.3 * torch.randn(n), 1 + 0.15 * torch.randn(n)
    turn = torch.stack([angle.cos(), -angle.sin(), angle.sin(), angle.cos()], 1).view(n, 2, 2)
    theta = torch.cat([zoom.view(n, 1, 1) * turn, 0.2 * torch.randn(n, 2, 1)], 2)
    grid = nn.functional.affine_grid(theta, list(x.shape), align_corners=False)
    return nn.functional.grid_sample(x, grid, align_corners=False) + 0.1 * torch.randn_like(x)


def encoder() -> nn.Sequential:
    """A backbone with batch normalisation, and a projector."""
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(64, 256),
        nn.BatchNorm1d(256),
        nn.ReLU(),
        nn.Linear(256, 128),
        nn.BatchNorm1d(128),
        nn.ReLU(),
        nn.Linear(128, 128),
        nn.ReLU(),
        nn.Linear(128, 64),
    )


def train(x: Tensor, start: str, epochs: int) -> History:
    """One network, from the same seed whatever the start."""
    torch.manual_seed(0)
    net, history = encoder(), History()
    if start != "default":
        with torch.no_grad():
            for p in net.parameters():
                p.mul_(4)
    if start.endswith("cut"):
        ns.cut_init_(net, ns.suggest_cut(net, x[:256], target_norm=1.0))
    scale = ns.GradScale(power=1.0 if "GradScale" in start else 0.0)
    rate = 0.05 / (6 if scale.power else 1)  # the paper divides by 6; undivided, this diverges
    optimizer = torch.optim.SGD(net.parameters(), lr=rate, momentum=0.9, weight_decay=5e-4)
    for _ in range(epochs):
        losses, norms = [], []
        for batch in torch.randperm(len(x)).split(256)[:-1]:  # the last one is smaller
            z1, z2 = scale(net(torch.cat([view(x[batch]), view(x[batch])]))).chunk(2)
            loss = ns.losses.info_nce(z1, z2, temperature=0.5)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            norms.append(z1.detach().norm(dim=1).mean().item())
        history.losses.append(sum(losses) / len(losses))
        history.norms.append(sum(norms) / len(norms))
    return history


def draw_field(axes: Axes) -> None:
    """The descent direction of -cos(z, t), and where steps along it lead."""
    side = torch.linspace(-2.6, 2.6, 14, dtype=torch.float64)
    z = torch.cartesian_prod(side, side)
    z = z[z.norm(dim=1) > 0.5]  # arrows further in would cover the rest
    t = torch.tensor([[0.0, 1.0]], dtype=torch.float64)
    down = -ns.theory.cosine_grad(z, t.expand_as(z))
    axes.quiver(*z.T, *down.T, color="#999999", scale=14, width=0.005)
    axes.plot([0, 0], [0, 2.75], color="#e69f00", linewidth=2.5, label="target direction")
    for radius, color in ((0.6, "#0072b2"), (2.0, "#d55e00")):
        angle = torch.tensor(-0.35)
        path = [radius * torch.stack([angle.cos(), angle.sin()]).double()[None]]
        for _ in range(12):
            path.append(path[-1] - 0.15 * ns.theory.cosine_grad(path[-1], t))
        label = f"12 steps from norm {radius:g}"
        axes.plot(*torch.cat(path).T, "o-", color=color, markersize=3.5, label=label)
    axes.set(aspect="equal", xlim=(-2.8, 2.8), ylim=(-2.8, 2.8), title="Long embeddings move less")
    axes.legend(loc="lower left", fontsize=8)


def draw(histories: dict[str, History], path: Path) -> None:
    """The field, the norms and the losses, side by side."""
    figure, (field_axes, norm_axes, loss_axes) = plt.subplots(
        1, 3, figsize=(13, 4.2), layout="constrained"
    )
    draw_field(field_axes)
    for start, history in histories.items():
        color, line = STARTS[start]
        epochs = range(1, len(history.norms) + 1)
        norm_axes.plot(epochs, history.norms, line, color=color, label=start, linewidth=2)
        loss_axes.plot(epochs, history.losses, line, color=color, label=start, linewidth=2)
    norm_axes.set(title="Norms while training on digits", xlabel="epoch", yscale="log")
    norm_axes.set_ylabel("mean embedding norm")
    loss_axes.set(title="What they cost", xlabel="epoch", ylabel="InfoNCE loss")
    loss_axes.legend(fontsize=8)
    partial = path.with_name(path.name + ".partial")
    figure.savefig(partial, dpi=130, format="png")
    os.replace(partial, path)  # an older picture is never left half overwritten
    plt.close(figure)


def main() -> None:
    """Train, print, draw."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--epochs", type=int, default=24)
    parser.add_argument("--out", type=Path, default=Path("demo/digits.png"))
    args = parser.parse_args()
    if args.epochs < 1:
        parser.error(f"--epochs must be at least 1, got {args.epochs}.")
    if args.out.suffix != ".png" or args.out.is_dir():
        parser.error(f"--out must be a .png file, got {str(args.out)!r}.")
    try:
        args.out.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        parser.error(f"--out must be in a folder that can be made: {error}.")

    pixels, _ = load_digits(return_X_y=True)
    x = torch.tensor(pixels, dtype=torch.float32).view(-1, 1, 8, 8) / 16
    print(f"{'start':<32}{'norm, first':>12}{'last':>8}{'loss, first':>14}{'last':>8}")
    histories = {}
    for start in STARTS:
        histories[start] = h = train(x, start, args.epochs)
        print(
            f"{start:<32}{h.norms[0]:>12.2f}{h.norms[-1]:>8.2f}"
            f"{h.losses[0]:>14.3f}{h.losses[-1]:>8.3f}"
        )
    draw(histories, args.out)
    print(f"drawn: {args.out}")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit("stopped; nothing was drawn") from None
