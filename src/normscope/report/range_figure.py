"""The figure of a range test."""

from __future__ import annotations

import math
from pathlib import Path

from matplotlib.figure import Figure

from normscope._files import whole_file
from normscope.engine import RangeTest
from normscope.report.figures import BLUE, GREEN, GREY, ORANGE, new_figure, style


def range_figure(found: RangeTest) -> Figure:
    """Loss and angle over the rates of a range test, with its places and its advice.

    >>> from normscope import range_test
    >>> net = torch.nn.Linear(4, 2)
    >>> optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    >>> def step():
    ...     loss = net(torch.ones(8, 4)).square().mean()
    ...     loss.backward()
    ...     return loss
    >>> len(range_figure(range_test(step, optimizer, net)).axes)
    2
    """
    places = {
        f"now {found.lr:.2g}": (found.lr, GREY, ":"),
        f"steepest {found.steepest.lr:.2g}": (found.steepest.lr, BLUE, "-."),
        f"last stable {found.stable.lr:.2g}": (found.stable.lr, ORANGE, "--"),
        f"advised {found.advised.lr:.2g}": (found.advised.lr, GREEN, "-"),
    }
    with style():
        figure = new_figure(9, 3.6)
        left, right = figure.subplots(1, 2)
        left.plot(found.lrs, found.losses, color=GREY, linewidth=1)
        right.plot(found.lrs, [a or math.nan for a in found.angles], color=GREY, linewidth=1)
        for axes in (left, right):
            axes.set_xscale("log")
            axes.set_xlabel("learning rate")
            for label, (lr, color, line) in places.items():
                axes.axvline(lr, color=color, linestyle=line, label=label)
        left.set(ylabel="loss", title="Loss before each step")
        right.set(yscale="log", ylabel="rad per step", title="Angle of the median layer")
        left.legend(loc="lower left")
        figure.suptitle(found.advice[0].upper() + found.advice[1:], fontsize=10)
    return figure


def save_range_figure(found: RangeTest, path: Path | str) -> None:
    """Write the figure as PNG, whole or not at all."""
    with whole_file(Path(path)) as partial, style():
        range_figure(found).savefig(partial, format="png", metadata={"Software": None})
