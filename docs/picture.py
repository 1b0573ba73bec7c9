"""The README's picture, from stored runs: what a cut does to an ordinary network, and why.

    python docs/picture.py

SimCLR by the paper's recipe (ResNet-18, CIFAR-10, batch 256, 30 epochs, one H200), three seeds, as
it is, with its initial weights divided by 3, and with 9 times the learning rate instead.
"""

from __future__ import annotations

import statistics
from pathlib import Path

from normscope.report import BLUE, GREY, ORANGE, new_figure, style
from normscope_paper.harness import Ledger, StoredRun
from normscope_paper.harness.cells import Cell
from normscope_paper.harness.sweep import spec_at
from normscope_paper.own import cut_paths

ROOT = Path(__file__).parents[1]
SEEDS = (0, 1, 2)
LOOKS = {
    cut_paths.DEFAULT: ("paper's text", GREY, "-"),
    cut_paths.CUT: ("weights divided by 3", BLUE, "-"),
    cut_paths.RAISED: ("learning rate x 9", ORANGE, "--"),
}


def runs_of(cell: Cell, ledger: Ledger) -> list[StoredRun]:
    """The stored runs of a cell, one a seed."""
    found = [ledger.get(spec_at("small", **{"seed": s, **cell.values})) for s in SEEDS]
    return [run for run in found if run is not None]


def main() -> None:
    """Draw effective rates on the left, kNN on the right."""
    ledger = Ledger(ROOT / "results" / "runs.jsonl")
    simclr = [c for c in cut_paths.cells("small") if (c.column, c.recipe) == ("SimCLR", "text")]
    with style():
        figure = new_figure(9, 3.6)
        left, right = figure.subplots(1, 2)
        for cell in simclr:
            if cell.row not in LOOKS:
                continue
            label, color, line = LOOKS[cell.row]
            runs, shown = runs_of(cell, ledger), {"color": color, "linestyle": line}
            for run in runs:
                steps = run.metrics("step")
                rates = [point["lr_over_weight_squared"] for point in steps]
                left.plot([point["epoch"] for point in steps], rates, **shown, linewidth=1)
            epochs = [record["epoch"] for record in runs[0].metrics("epoch")]
            knns = [[100 * r["knn"] for r in run.metrics("epoch")] for run in runs]
            for knn in knns:
                right.plot(epochs, knn, **shown, linewidth=0.8, alpha=0.4)
            means = [statistics.fmean(values) for values in zip(*knns, strict=True)]
            right.plot(epochs, means, "o", **shown, label=f"{label}: {means[-1]:.1f} %")
        for axes in (left, right):
            axes.set_xscale("log", base=2)
            axes.xaxis.set_major_formatter("{x:g}")
            axes.set_xlabel("epoch")
        left.set(yscale="log", ylim=(5e-5, 1e-2), ylabel="learning rate / $|w|^2$")
        left.set_title("Effective learning rate, median weight")
        right.set(ylabel="kNN accuracy, %", title="SimCLR on CIFAR-10, three seeds")
        right.legend(loc="lower right")
        figure.savefig(ROOT / "docs" / "cut.png", metadata={"Software": None})


if __name__ == "__main__":
    main()
