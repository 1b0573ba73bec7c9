"""normscope evaluate."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from normscope.cli.console import errors, out, say
from normscope.cli.devices import HELP as DEVICES
from normscope.cli.devices import device_named
from normscope.engine import evaluate as evaluate_run


def evaluate(
    run: Annotated[Path, typer.Argument(help="the folder of a run", show_default=False)],
    device: Annotated[str, typer.Option(help=DEVICES)] = "auto",
    data_root: Annotated[
        Path | None, typer.Option(help="where datasets are; default $NORMSCOPE_DATA")
    ] = None,
) -> None:
    """Evaluate a trained network: kNN, linear probe and norms, layer by layer.

    \b
    normscope evaluate runs/simclr-digits-0123456789

    Writes evaluation.json, embeddings.npz and gallery.npz to the run's folder.
    """
    device = device_named(device)
    with errors.status("reading features"):
        result = evaluate_run(run, device=device, data_root=data_root)
    table = Table(title=f"{run.name}, after epoch {result['epoch']}")
    for heading in ("layer", "kNN", "kNN top-5", "probe", "norm, train", "norm, test"):
        table.add_column(heading, justify="left" if heading == "layer" else "right")
    for name, found in result["layers"].items():
        norms = [f"{found[s]['norm_mean']:.3g} ± {found[s]['norm_std']:.2g}" for s in SPLITS]
        shares = [
            "-" if found[key] is None else f"{found[key]:.1%}"
            for key in ("knn", "knn_top5", "probe")
        ]
        table.add_row(name, *shares, *norms)
    out.print(table)
    for line in (*_said(result), f"Next: normscope report {shlex.quote(str(run))}"):
        say(out, line)


def _said(result: dict[str, Any]) -> Iterator[str]:
    """How informative the norms where the loss acts are, in a line or two."""
    layer, auroc = result["layer"], result["confidence"].get("knn", {}).get("auroc")
    if auroc is not None:
        yield f"Norms of the {layer} separate right from wrong answers with AUROC {auroc:.2f}."
    new = {name: found[layer]["norm"]["auroc"] for name, found in result["novelty"].items()}
    if new:
        aurocs = ", ".join(f"{name} {value:.2f}" for name, value in new.items())
        yield f"They separate test images from new ones with AUROC: {aurocs}."


SPLITS = ("train", "test")
