"""normscope embed."""

from __future__ import annotations

import shlex
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch import Tensor

from normscope import data
from normscope.cli.console import errors, out, refuse
from normscope.cli.devices import HELP as DEVICES
from normscope.cli.devices import device_named
from normscope.engine.embedding_file import check_target, embedding_file
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
    file appears when it is complete; Ctrl-C leaves none. `normscope score` takes embeddings of the
    layer where the loss acts, which is the default here.
    """
    check_target(target, force=force)
    encoder = load_encoder(run, layer=layer).to(device_named(device))
    every = data.listed(images, data_root)
    columns = (TextColumn("images"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    total, broken = 0.0, []
    try:
        with (
            Progress(*columns, console=errors, disable=not errors.is_terminal) as bar,
            embedding_file(target, d=encoder.d) as write,
        ):
            task = bar.add_task("images", total=len(every))
            for some, read in _read(every, encoder.config.side, batch):
                good = torch.tensor([isinstance(x, Tensor) for x in read])
                found = encoder.embed([x for x in read if isinstance(x, Tensor)], batch=batch)
                broken += [str(x) for x in read if not isinstance(x, Tensor)]
                total += float(found.norms.double().sum())
                write([one.id for one in some], _with_gaps(found, good))
                bar.advance(task, len(some))
            if len(broken) == len(every):
                raise ValueError(broken[0])
    except OSError as error:
        refuse(f"--out must be writable, got {str(target)!r}: {error.strerror or error}.")
    except KeyboardInterrupt:
        errors.print("Stopped. No embeddings were written.")
        raise typer.Exit(130) from None
    _tell(encoder, len(every), broken, total, target)


def _read(
    every: Sequence[data.Listed], side: int, batch: int
) -> Iterator[tuple[Sequence[data.Listed], list[Tensor | ValueError]]]:
    """Batches of images and their pixels; threads decode one batch ahead."""

    def one(image: data.Listed) -> Tensor | ValueError:
        try:
            return pixels(image.read(), side=side)
        except ValueError as error:  # returned, for the others can still be embedded
            return error

    def waiting() -> tuple[Sequence[data.Listed], list[Tensor | ValueError]]:
        some, futures = ahead.popleft()
        return some, [future.result() for future in futures]

    pool = ThreadPoolExecutor()
    ahead: deque[tuple[Sequence[data.Listed], list[Future[Tensor | ValueError]]]] = deque()
    try:
        for start in range(0, len(every), batch):
            some = every[start : start + batch]
            ahead.append((some, [pool.submit(one, image) for image in some]))
            if len(ahead) > 1:
                yield waiting()
        yield waiting()
    finally:
        pool.shutdown(cancel_futures=True)


def _with_gaps(found: Embedded, good: Tensor) -> Embedded:
    """A row for every image, NaN where there is none."""
    z = torch.full((len(good), found.embeddings.shape[1]), torch.nan)
    norms = torch.full((len(good),), torch.nan)
    z[good], norms[good] = found.embeddings, found.norms
    return Embedded(z, norms)


def _tell(encoder: Encoder, n: int, broken: list[str], total: float, target: Path) -> None:
    if broken:
        line = f"{len(broken):,} of {n:,} images could not be read. The first: {broken[0]}"
        errors.print(line, markup=False, highlight=False, soft_wrap=True)
    mean = total / (n - len(broken))
    line = f"{n:,} images, {encoder.d} numbers each from the {encoder.layer}, mean norm {mean:.4g}"
    shown = shlex.quote(str(target))
    for text in (f"{line}: {target}", f"Next: normscope score {shown} --reference REFERENCE"):
        out.print(text, markup=False, highlight=False, soft_wrap=True)
