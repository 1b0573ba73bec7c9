"""normscope train."""

from __future__ import annotations

import math
import os
import shlex
import sys
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import typer

from normscope.cli.console import errors, out, refuse
from normscope.cli.processes import first_process, run_processes
from normscope.engine import RunResult, RunSpec, Stopped
from normscope.engine import train as train_run


def train(
    context: typer.Context,
    method: Annotated[str, typer.Argument(help="simclr, simsiam, byol, moco_v2, moco_v3, ...")],
    data: Annotated[str, typer.Option(help="see `normscope data list`")] = "digits",
    net: Annotated[str | None, typer.Option(help="resnet18, resnet50, vit_tiny, ...")] = None,
    epochs: Annotated[int | None, typer.Option(help="passes over the images")] = None,
    cut: Annotated[float, typer.Option(help="divide the initial weights by this")] = 1.0,
    cut_scope: Annotated[str, typer.Option(help="all, weights, last, invariant or rest")] = "all",
    grad_scale: Annotated[float, typer.Option(help="GradScale's power; lr / 6 with it")] = 0.0,
    recipe: Annotated[str, typer.Option(help="text or as_coded")] = "text",
    seed: Annotated[int, typer.Option(help="of weights, order and augmentation")] = 0,
    batch: Annotated[int | None, typer.Option(help="images per optimizer step")] = None,
    accumulate: Annotated[int | None, typer.Option(help="micro-batches per step")] = None,
    optimizer: Annotated[str | None, typer.Option(help="sgd, lars, adam or adamw")] = None,
    lr: Annotated[float | None, typer.Option(help="for 256 images")] = None,
    weight_decay: Annotated[float | None, typer.Option(help="zero is none")] = None,
    decay: Annotated[str | None, typer.Option(help="all or no_bias_norm")] = None,
    warmup_epochs: Annotated[float | None, typer.Option(help="of linear growth")] = None,
    augmentation: Annotated[str | None, typer.Option(help="simclr, simsiam, byol, ...")] = None,
    precision: Annotated[str, typer.Option(help="auto, bf16, 32 or 64")] = "auto",
    log_every: Annotated[int, typer.Option(help="steps between log points")] = 10,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="NAME=VALUE: any other field, or the method's own option"),
    ] = None,
    folder: Annotated[Path | None, typer.Option("--out", help="default: runs/<name>")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="go on from the checkpoint")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda")] = "auto",
    devices: Annotated[int, typer.Option(help="processes, one a device")] = 1,
    workers: Annotated[int | None, typer.Option(help="processes that decode images")] = None,
    log: Annotated[list[str] | None, typer.Option(help="tensorboard or wandb, too")] = None,
    data_root: Annotated[
        Path | None, typer.Option(help="where datasets are; default $NORMSCOPE_DATA")
    ] = None,
    checkpoint_seconds: Annotated[float, typer.Option(help="how often to save")] = 60.0,
    quiet: Annotated[bool, typer.Option("--quiet", help="show nothing until the end")] = False,
) -> None:
    """Train a network, watch its norms, keep everything.

    \b
    normscope train simclr                                     on digits, in a minute or less
    normscope train simclr --data cifar10 --cut 3 --epochs 100
    normscope train simsiam --data cifar10 --cut 9 --recipe as_coded
    normscope train simclr --data cifar10 --grad-scale 1 --devices 2
    normscope train moco_v2 --data cifar10 --set queue=8192 --set knn_k=100

    Leaves runs/<name>/ with spec.json, metrics.jsonl, checkpoint.pt, encoder.safetensors and
    result.json. Ctrl-C saves first; the same command with --resume goes on. Under torchrun it
    trains on all processes, on one machine or several.
    """
    arguments = locals()
    names = {f.name for f in fields(RunSpec)}
    typed = {k for k in arguments if _was_typed(context, k)}
    values = {k: v for k, v in arguments.items() if k in names and v is not None}
    values |= _settings(set_ or [], names - {"options"}, typed | {"method"})
    spec = RunSpec(**values)
    if device not in ("auto", "cpu", "cuda"):
        refuse(f"--device must be auto, cpu or cuda, got {device!r}.")
    if devices < 1:
        refuse(f"--devices must be at least 1, got {devices}.")
    if devices > 1 and "WORLD_SIZE" not in os.environ:
        raise typer.Exit(run_processes(devices))
    try:
        result = train_run(
            spec,
            folder=folder,
            resume=resume,
            device=device,  # pyright: ignore[reportArgumentType]
            data_root=data_root,
            workers=workers,
            loggers=log or (),
            checkpoint_seconds=checkpoint_seconds,
            quiet=quiet,
        )
    except Stopped as stopped:
        if first_process():
            words = ["normscope", *(w for w in sys.argv[1:] if w != "--resume"), "--resume"]
            for line in (f"{stopped}. Go on with:", f"  {shlex.join(words)}"):
                errors.print(line, markup=False, highlight=False, soft_wrap=True)
        raise typer.Exit(128 + stopped.signal_number) from None
    if first_process():
        _tell(result)
    if not math.isfinite(result.loss):
        refuse("loss must be a number, got NaN. The run diverged: lower --lr or --grad-scale.")


def _was_typed(context: typer.Context, name: str) -> bool:
    """Whether a parameter stands on the command line, rather than at its default."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _tell(result: RunResult) -> None:
    line = (
        f"kNN {result.knn:.1%}, test norm {result.norm:.3g}, loss {result.loss:.4f}, "
        f"{result.images_per_second:,.0f} images/s, {result.seconds:.0f} s of training "
        f"({result.waited / max(result.seconds, 1e-9):.0%} waiting for images): {result.folder}"
    )
    out.print(line, markup=False, highlight=False, soft_wrap=True)


def _settings(pairs: list[str], names: set[str], given: set[str]) -> dict[str, Any]:
    """The values of --set: fields of the spec, or else options of the method."""
    found: dict[str, Any] = {}
    options: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name:
            refuse(f"--set must be NAME=VALUE, got {pair!r}.")
        place = found if name in names else options
        if name in place or name in given:
            refuse(f"--set must name what is not given otherwise, got {name!r}.")
        place[name] = _value(text)
    return found | ({"options": options} if options else {})


def _value(text: str) -> int | float | str | bool:
    """A number where it is one.

    >>> _value("8"), _value("0.5"), _value("true"), _value("sum")
    (8, 0.5, True, 'sum')
    """
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
