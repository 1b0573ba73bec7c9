"""A run from its spec to its result: `train`."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal

import torch

from normscope import data
from normscope._checks import check_number, invalid
from normscope.engine.interrupts import Interrupts, Stopped
from normscope.engine.loop import Loop, Sitting
from normscope.engine.run_folder import RunFolder, RunResult
from normscope.engine.spec import RunSpec
from normscope.engine.tuning import tuned
from normscope.monitors.loggers import check_loggers


def train(
    spec: RunSpec,
    *,
    folder: Path | str | None = None,
    resume: bool = False,
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto",
    data_root: Path | None = None,
    images: data.ImageArrays | None = None,
    workers: int | None = None,
    loggers: Sequence[str] = (),
    checkpoint_seconds: float = 60.0,
    until: float = math.inf,
    quiet: bool = False,
) -> RunResult:
    """Train a run until it is finished, resuming it if it was interrupted.

    Under `torchrun` every process calls this alike. Batches are divided, negatives gathered and
    batch statistics shared, so the result is that of one process. Methods that cannot be divided,
    such as SupCon, are refused. Processes share the run's folder.

    Args:
        spec: what to train.
        folder: the run's folder; `runs/<name>` by default.
        resume: continue from the folder's checkpoint, if there is one. On a CPU with as many
            threads, or one GPU of the same kind, the weights equal an uninterrupted run's. A
            finished run is returned as it is.
        device: `"auto"` takes a CUDA GPU if there is one.
        data_root: where datasets are; see `normscope data list`.
        images: the dataset that `spec.data` names, if it is loaded already.
        workers: processes that decode images of large datasets.
        loggers: in addition to metrics.jsonl: `"tensorboard"`, `"wandb"`, `"mlflow"`, `"trackio"`.
        checkpoint_seconds: seconds between checkpoints.
        until: a time of `time.monotonic` at which to stop, as on Ctrl-C.
        quiet: show nothing.

    Raises:
        InUseError: if another process is training the run.
        Stopped: on Ctrl-C or SIGTERM, or at `until`, after everything is saved.

    >>> import tempfile
    >>> spec = RunSpec(method="simclr", data="digits", epochs=1)
    >>> result = train(spec, folder=tempfile.mkdtemp(), device="cpu", quiet=True)
    >>> result.steps
    21
    """
    _check_arguments(device, workers, checkpoint_seconds)
    check_loggers(loggers)
    run = RunFolder(Path(folder) if folder is not None else Path("runs") / spec.name)
    if resume and run.result_file.exists() and run.spec().hash == spec.hash:
        return RunResult.load(run.path)
    if images is None:
        images = data.load(spec.data, data_root, side=spec.side)
    elif images.name != spec.data:
        raise invalid(
            "images", f"those of {spec.data!r}", images.name, "Leave it out to load them."
        )
    elif spec.side not in (None, images.side):
        advice = "Leave it out to load them."
        raise invalid("images", f"of the spec's side {spec.side}", images.side, advice)
    fabric = open_fabric(device, spec.precision)
    fabric.launch()
    with ExitStack() as stack:
        stack.enter_context(tuned(fabric.device, spec.precision))
        sitting = Sitting(workers, loggers, checkpoint_seconds, until, quiet)
        # refuse before the folder is touched
        loop = Loop(fabric, spec, images, run, sitting)
        refusal = None
        if fabric.is_global_zero:
            try:
                stack.enter_context(run.locked())
                run.begin(spec, resume=resume, checksum=images.checksum, device=str(fabric.device))
            except ValueError as error:
                refusal = error
        refusal = fabric.broadcast(refusal)  # else the other processes would wait for ever
        if refusal is not None:
            raise refusal
        interrupts = stack.enter_context(Interrupts(loop.say_stopping))
        stack.callback(loop.close)
        loop.open()
        loop.train(interrupts)
        if fabric.is_global_zero:
            loop.finish().save()
        fabric.barrier()
    if interrupts.received is not None:  # during the last evaluation: the caller should stop
        raise Stopped(f"stopped; {run.path} is finished", interrupts.received)
    return RunResult.load(run.path)


def _check_arguments(device: str, workers: int | None, checkpoint_seconds: float) -> None:
    if device not in ("auto", "cpu", "cuda", "mps"):
        advice = "'auto' takes a CUDA GPU if any."
        raise invalid("device", "'auto', 'cpu', 'cuda' or 'mps'", device, advice)
    if workers is not None and (not isinstance(workers, int) or workers < 0):
        raise invalid("workers", "a whole number from 0 up", workers, "0 decodes in this process.")
    seconds = check_number("checkpoint_seconds", checkpoint_seconds, "Usual: 60.", positive=False)
    if seconds < 0:
        raise invalid("checkpoint_seconds", "zero or more", checkpoint_seconds, "Usual: 60.")


def open_fabric(device: str, precision: str) -> Any:
    """Lightning Fabric for this process, or for those that torchrun started."""
    from lightning_fabric import Fabric  # slow to import, and only training needs it
    from lightning_fabric.strategies.ddp import DDPStrategy

    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not there.get(device, True):
        raise invalid("device", "'cpu' where there is no such GPU", device, "Or leave it out.")
    if device == "auto":
        device = "cuda" if there["cuda"] else "cpu"
    on_gpu = device == "cuda"
    world, local = (int(os.environ.get(k, 1)) for k in ("WORLD_SIZE", "LOCAL_WORLD_SIZE"))
    names = {"bf16": "bf16-mixed", "32": "32-true", "64": "64-true"}
    names["auto"] = names["bf16" if on_gpu else "32"]
    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)  # it logs every process
    return Fabric(
        accelerator=device,
        devices=local,
        num_nodes=world // local,
        strategy=DDPStrategy() if world > 1 else "auto",
        precision=names[precision],  # pyright: ignore[reportArgumentType]
    )
