"""normscope export."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from normscope.cli.console import errors, out, refuse, say
from normscope.engine import load_encoder
from normscope.engine.hub import HUB_FILES, write_hub_folder
from normscope.engine.timm_file import write_timm


def export(
    run: Annotated[
        Path, typer.Argument(help="a run's folder, or its encoder.safetensors", show_default=False)
    ],
    to: Annotated[Literal["onnx", "timm", "hub"], typer.Option(help="what to write")],
    target: Annotated[
        Path, typer.Option("--out", help="a .onnx or .safetensors file, or a new folder")
    ],
    *,
    layer: Annotated[
        str | None, typer.Option(help="onnx: backbone, projector or predictor; default: the last")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="replace what is there")] = False,
) -> None:
    """Write a trained network for other programs: ONNX, timm, or a folder to share.

    \b
    normscope export runs/simclr-digits-0123456789 --to onnx --out digits.onnx
    normscope export runs/simclr-cifar10-0123456789 --to timm --out cifar10.safetensors
    normscope export runs/simclr-digits-0123456789 --to hub --out digits-simclr

    ONNX takes images in [0, 1] and gives embeddings and norms; onnxruntime must agree to 1e-5
    before the file appears. The file for timm holds the backbone, under timm's names, and the
    lines that load it are printed. The folder is laid out for Hugging Face's hub, with a model
    card made from the run; load_encoder takes it.
    """
    if layer is not None and to != "onnx":
        refuse(f"--layer must be left out with --to {to}, got {layer!r}.")
    if to != "hub" and target.exists() and not (force and target.is_file()):
        refuse(f"--out must be a new file, got {str(target)!r}. --force replaces a file.")
    try:
        lines = _written(run, to, target, layer=layer, force=force)
    except OSError as error:
        refuse(f"--out must be writable, got {str(target)!r}: {error.strerror or error}.")
    for line in lines:
        say(out, line)


def _written(run: Path, to: str, target: Path, *, layer: str | None, force: bool) -> list[str]:
    """Write it; what there is to say of it."""
    if to == "hub":
        write_hub_folder(run, target, force=force)
        load = f"Load it with: normscope.load_encoder({str(target)!r})"
        return [f"{', '.join(HUB_FILES)}: {target}", load]
    if to == "timm":
        model = write_timm(run, target)
        what = f"backbone as timm's {model.name}, for images of {model.side} pixels: {target}"
        return [what, "Load it with:", *(f"  {line}" for line in model.lines(target))]
    with errors.status("exporting"):
        encoder = load_encoder(run, layer=layer)
        encoder.export_onnx(target)
    what = f"{encoder.d} numbers from the {encoder.layer}"
    return [f"{what}, the same in onnxruntime to 1e-5: {target}"]
