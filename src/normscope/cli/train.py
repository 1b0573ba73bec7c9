"""normscope train."""

from __future__ import annotations

import math
import os
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from normscope.cli.console import errors, out, refuse, say
from normscope.cli.devices import HELP as DEVICES
from normscope.cli.devices import device_named
from normscope.cli.processes import first_process, run_processes
from normscope.cli.spec_options import about, spec_from, with_spec_options
from normscope.data import DATASETS, ImageArrays, load
from normscope.engine import RunFolder, RunResult, RunSpec, Stopped
from normscope.engine import train as train_run
from normscope.engine.differences import described, differences, extends, how_to_extend, is_length
from normscope.engine.own_images import Fitted
from normscope.engine.pace import in_words, seconds_on_cpu


@with_spec_options("method", "options")
def train(
    method: Annotated[str, typer.Argument(help=about("method"), show_default=False)],
    *,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="NAME=VALUE: the method's own option, or any field"),
    ] = None,
    folder: Annotated[Path | None, typer.Option("--out", help="default: runs/<name>")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="continue from the checkpoint")] = False,
    device: Annotated[str, typer.Option(help=DEVICES)] = "auto",
    devices: Annotated[int, typer.Option(help="processes, one per device")] = 1,
    workers: Annotated[int | None, typer.Option(help="processes that decode images")] = None,
    log: Annotated[
        list[str] | None, typer.Option(help="also log to tensorboard, wandb, mlflow or trackio")
    ] = None,
    data_root: Annotated[
        Path | None, typer.Option(help="where datasets are; default $NORMSCOPE_DATA")
    ] = None,
    checkpoint_seconds: Annotated[float, typer.Option(help="how often to save")] = 60.0,
    quiet: Annotated[bool, typer.Option("--quiet", help="show nothing until the end")] = False,
    **values: Any,
) -> None:
    """Train a network, watch its norms, keep everything.

    \b
    normscope train simclr                                     on digits, in a minute or less
    normscope train simclr --data cifar10 --cut 3 --epochs 100
    normscope train simsiam --data cifar10 --cut 9 --recipe as_coded
    normscope train simclr --data cifar10 --grad-scale 1 --devices 2
    normscope train moco_v2 --data cifar10 --set queue=8192 --set knn_k=100
    normscope train simclr --data folder:photos                your own images, in any layout

    Writes spec.json, metrics.jsonl, checkpoint.pt, encoder.safetensors and result.json to
    runs/<name>/. Ctrl-C saves first; the same command with --resume continues. With more --epochs
    it extends a finished run, if --horizon-epochs and --warmup-epochs said from the start how long
    the schedule is; else the rate has fallen to zero, and more epochs are another run. Under
    torchrun it trains on all processes, on one machine or several.

    Of your own images (--data folder:PATH) it chooses network, side, recipe, epochs and batch.
    """
    device = device_named(device)
    if devices < 1:
        refuse(f"--devices must be at least 1, got {devices}.")
    if devices > 1 and "WORLD_SIZE" not in os.environ:
        raise typer.Exit(run_processes(devices))
    fit = spec_from({"method": method, **values}, set_ or [], device=device)
    spec, images = fit.spec, None
    if resume and folder is None:
        folder = _run_to_extend(spec, Path("runs"))
    if not quiet and first_process():
        begun = resume and RunFolder(folder or Path("runs") / spec.name).spec_file.exists()
        images = None if begun else _introduced(fit, device, data_root)
    try:
        result = train_run(
            spec,
            folder=folder,
            resume=resume,
            device=device,  # pyright: ignore[reportArgumentType]
            data_root=data_root,
            images=images,
            workers=workers,
            loggers=log or (),
            checkpoint_seconds=checkpoint_seconds,
            quiet=quiet,
        )
    except Stopped as stopped:
        if first_process():
            words = ["normscope", *(w for w in sys.argv[1:] if w != "--resume"), "--resume"]
            for line in (f"{stopped}. Resume with:", f"  {shlex.join(words)}"):
                say(errors, line)
        raise typer.Exit(128 + stopped.signal_number) from None
    if first_process():
        _print(result)
    if not math.isfinite(result.loss):
        refuse("loss must be a number, got NaN. The run diverged: lower --lr or --grad-scale.")


def _introduced(fit: Fitted, device: str, data_root: Path | None) -> ImageArrays | None:
    """Say what was chosen, what it cannot show and how long it takes; the images, if read."""
    spec = fit.spec
    for line in fit.reasons + fit.warnings:
        say(errors, line)
    known = DATASETS.get(spec.data)
    if device != "cpu" or (known is not None and known.tiny):
        return None
    images = load(spec.data, data_root, side=spec.side)
    took = in_words(seconds_on_cpu(spec, images))
    passes = "an epoch" if spec.epochs == 1 else f"{spec.epochs} epochs"
    what = f"{passes} of {len(images.train):,} images of {images.side} pixels"
    say(errors, f"It will take {took} on this CPU: {what}. --epochs shortens it.")
    return images


def _run_to_extend(spec: RunSpec, runs: Path) -> Path | None:
    """The finished run that --resume makes longer, or has made, where none has the spec's name.

    Of several it is the longest. Where none can be extended, says why.
    """
    if (runs / spec.name).exists():
        return None
    shorter = list[tuple[RunSpec, Path]]()
    for file in sorted(runs.glob("*/spec.json")):
        run = RunFolder(file.parent)
        try:
            old = run.spec()
        except ValueError:  # of another version
            continue
        if old.hash == spec.hash:  # it was extended to this length before
            return run.path
        longer = is_length(differences(old, spec)) and spec.epochs > old.epochs
        if longer and run.result_file.exists():
            shorter.append((old, run.path))
    if not shorter:
        return None
    old, path = max(shorter, key=lambda one: (extends(one[0], spec), one[0].epochs))
    if extends(old, spec):
        _say(f"{path} goes on from epoch {old.epochs + 1} to {spec.epochs}.")
        return path
    found = described(differences(old, spec))
    _say(
        f"{path} is finished, with {found}. {how_to_extend(old, spec)} "
        f"This is another run: it starts from epoch 1, in {runs / spec.name}."
    )
    return None


def _say(line: str) -> None:
    if first_process():
        say(errors, line)


def _print(result: RunResult) -> None:
    knn = "no kNN" if math.isnan(result.knn) else f"kNN {result.knn:.1%}"
    line = (
        f"{knn}, test norm {result.norm:.3g}, loss {result.loss:.4f}, "
        f"{result.images_per_second:,.0f} images/s, {result.seconds:.0f} s of training "
        f"({result.waited / max(result.seconds, 1e-9):.0%} waiting for images): {result.folder}"
    )
    say(out, line)
