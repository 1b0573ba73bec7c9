"""normscope embed."""

from __future__ import annotations

import shlex
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch import Tensor

from normscope import data
from normscope.cli.console import errors, out, refuse, say
from normscope.cli.devices import HELP as DEVICES
from normscope.cli.devices import device_named
from normscope.engine.begun_embeddings import BegunEmbeddings, folder_of, identity
from normscope.engine.embedding_file import check_target, write_embeddings
from normscope.engine.encoder import Embedded, Encoder, load_encoder
from normscope.engine.pixels import pixels


def embed(
    run: Annotated[
        Path, typer.Argument(help="a run's folder, or its encoder.safetensors", show_default=False)
    ],
    images: Annotated[
        list[str], typer.Argument(help="files, folders, or a dataset's name", show_default=False)
    ],
    target: Annotated[Path, typer.Option("--out", help="a new .parquet or .npz file")],
    *,
    layer: Annotated[
        str | None, typer.Option(help="backbone, projector or predictor; default: the last")
    ] = None,
    batch: Annotated[int, typer.Option(help="images per forward pass", min=1)] = 256,
    device: Annotated[str, typer.Option(help=DEVICES)] = "auto",
    data_root: Annotated[
        Path | None, typer.Option(help="where datasets are; default $NORMSCOPE_DATA")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="go on where an interrupted command stopped")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="replace what is there")] = False,
) -> None:
    """Embed new images with a trained network: raw embeddings and their norms.

    \b
    normscope embed runs/simclr-digits-0123456789 photos/ --out photos.parquet
    normscope embed runs/simclr-digits-0123456789 a.jpg b.png --out two.npz
    normscope embed runs/simclr-cifar10-0123456789 cifar100 --out new.parquet
    normscope embed encoder.safetensors photos/ --layer backbone --out features.parquet
    normscope score photos.parquet --reference runs/simclr-digits-0123456789

    Writes id (the path), embedding and norm. Images of other sizes are resized to the training's:
    shorter side, then the centre square. One that cannot be read gets NaN, and is reported. The
    file appears when it is complete. Until then its rows are kept in a folder beside it: after
    Ctrl-C or a crash, the same command with --resume goes on, and gives the same file. `normscope
    score` takes embeddings of the layer where the loss acts, which is the default here.
    """
    if resume and target.is_file() and not force and not folder_of(target).exists():
        say(out, f"{target} is complete: there is nothing to go on with.")
        return
    check_target(target, force=force)
    encoder = load_encoder(run, layer=layer).to(device_named(device))
    every = data.listed(images, data_root)
    columns = (TextColumn("images"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=errors, disable=not errors.is_terminal)
    about = identity(encoder, every, images, batch=batch)
    n = len(every)
    try:
        begun = BegunEmbeddings(target, about, n=n, d=encoder.d, resume=resume, force=force)
        try:
            check_target(target, force=force)  # another process may have finished it
            with bar:
                task = bar.add_task("images", total=n, completed=begun.done)
                for read in _read(every[begun.done :], encoder.config.side, batch):
                    _append(begun, encoder, read, batch)
                    bar.update(task, completed=begun.done)
            if len(begun.broken) == n:
                begun.remove()
                raise ValueError(begun.broken[0])
            write_embeddings(target, [one.id for one in every], begun.rows())
            norms = np.array(begun.rows()[:, -1])
            begun.remove()
        finally:
            begun.close()
    except OSError as error:
        refuse(f"--out must be writable, got {str(target)!r}: {error.strerror or error}.")
    except KeyboardInterrupt:
        _report_stopped(target, n)
        raise typer.Exit(130) from None
    if begun.broken:
        first = begun.broken[min(begun.broken)]
        say(errors, f"{len(begun.broken):,} of {n:,} images could not be read. The first: {first}")
    mean = float(np.nanmean(norms, dtype=np.float64))
    line = f"{n:,} images, {encoder.d} numbers each from the {encoder.layer}, mean norm {mean:.4g}"
    say(out, f"{line}: {target}")
    say(out, f"Next: normscope score {shlex.quote(str(target))} --reference REFERENCE")


def _append(
    begun: BegunEmbeddings, encoder: Encoder, read: list[Tensor | ValueError], batch: int
) -> None:
    """Embed a batch, NaN where an image could not be read."""
    good = torch.tensor([isinstance(x, Tensor) for x in read])
    found = encoder.embed([x for x in read if isinstance(x, Tensor)], batch=batch)
    z = torch.full((len(read), encoder.d), torch.nan)
    norms = torch.full((len(read),), torch.nan)
    z[good], norms[good] = found.embeddings, found.norms
    broken = {begun.done + i: str(x) for i, x in enumerate(read) if not isinstance(x, Tensor)}
    begun.append(Embedded(z, norms), broken)


def _read(
    every: Sequence[data.Listed], side: int, batch: int
) -> Iterator[list[Tensor | ValueError]]:
    """Batches of pixels; threads decode one batch ahead."""

    def one(image: data.Listed) -> Tensor | ValueError:
        try:
            return pixels(image.read(), side=side)
        except ValueError as error:  # returned, for the others can still be embedded
            return error

    pool = ThreadPoolExecutor()
    ahead: deque[list[Future[Tensor | ValueError]]] = deque()
    try:
        for start in range(0, len(every), batch):
            ahead.append([pool.submit(one, image) for image in every[start : start + batch]])
            if len(ahead) > 1:
                yield [future.result() for future in ahead.popleft()]
        while ahead:
            yield [future.result() for future in ahead.popleft()]
    finally:
        pool.shutdown(cancel_futures=True)


def _report_stopped(target: Path, n: int) -> None:
    begun = folder_of(target)
    if not begun.exists():
        say(errors, "Stopped. No embeddings were written.")
        return
    words = ["normscope", *(w for w in sys.argv[1:] if w != "--resume")]
    say(errors, f"Stopped. Of {n:,} images, those done are kept in {begun}. Go on with:")
    say(errors, f"  {shlex.join([*words, '--resume'])}")
