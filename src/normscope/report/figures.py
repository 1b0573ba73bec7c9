"""One look for every figure: safe for the colour-blind, the same in PDF and PNG."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from normscope._files import whole_file

# Okabe and Ito's colours, distinguishable by everyone; the first is for what is measured.
BLUE, ORANGE, GREEN, PINK, SKY, YELLOW, GREY = (
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#cc79a7",
    "#56b4e9",
    "#e69f00",
    "#777777",
)
HEAT = "cividis"  # even in lightness, so that it survives greyscale print

_STYLE: dict[Any, Any] = {
    "font.size": 10,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.8,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "figure.dpi": 150,
    "savefig.dpi": 150,
    "pdf.fonttype": 42,  # text stays text
    "svg.hashsalt": "normscope",  # the same file every time
}


def style() -> AbstractContextManager[None]:
    """Context in which figures are drawn in the house style."""
    return mpl.rc_context(_STYLE)


def new_figure(width: float, height: float) -> Figure:
    """An empty figure, in inches, without a window."""
    return Figure(figsize=(width, height), layout="constrained")


def save(figure: Figure, stem: Path) -> list[Path]:
    """Write `stem`.pdf and `stem`.png, each whole or not at all and the same every time."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    paths = []
    for suffix, metadata in ((".pdf", {"CreationDate": None}), (".png", {"Software": None})):
        path = stem.with_name(stem.name + suffix)
        with whole_file(path) as partial, style():
            figure.savefig(partial, format=suffix[1:], metadata=metadata)
        paths.append(path)
    return paths
