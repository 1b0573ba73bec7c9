"""normscope advise."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from normscope.cli.console import errors, out, refuse, say, writable_folder
from normscope.cli.devices import HELP as DEVICES
from normscope.cli.devices import device_named
from normscope.cli.spec_options import about, spec_from, with_spec_options
from normscope.engine import advise as advised


@with_spec_options("method", "options")
def advise(
    method: Annotated[str, typer.Argument(help=about("method"), show_default=False)],
    *,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="NAME=VALUE: the method's own option, or any field"),
    ] = None,
    png: Annotated[
        Path | None, typer.Option("--out", help="figure; default: METHOD-DATA-range.png")
    ] = None,
    steps: Annotated[int, typer.Option(help="steps at most")] = 600,
    device: Annotated[str, typer.Option(help=DEVICES)] = "auto",
    data_root: Annotated[
        Path | None, typer.Option(help="where datasets are; default $NORMSCOPE_DATA")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="show nothing until the end")] = False,
    **values: Any,
) -> None:
    """Which learning rate to train with, by a short test over rising rates.

    \b
    normscope advise simclr                            on digits, in half a minute or less
    normscope advise simsiam --data cifar10 --net resnet18
    normscope advise byol --data cifar10 --lr 0.5 --batch 512 --out byol.png

    Takes the options of train. Prints one line, and draws loss and angle over the rates. Trains
    nothing and keeps no weights; Ctrl-C leaves no file.
    """
    device = device_named(device)
    fit = spec_from({"method": method, **values}, set_ or [], device=device)
    for line in [] if quiet else fit.reasons:
        say(errors, line)
    spec = fit.spec
    png = png or Path(spec.name.rpartition("-")[0] + "-range.png")
    if png.suffix != ".png":
        refuse(f"--out must end in .png, got {str(png)!r}.")
    writable_folder(png.parent)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    hidden = quiet or not errors.is_terminal
    try:
        with Progress(*columns, TimeRemainingColumn(), console=errors, disable=hidden) as bar:
            task = bar.add_task("range test", total=steps)
            found = advised(
                spec,
                device=device,  # pyright: ignore[reportArgumentType]
                data_root=data_root,
                steps=steps,
                progress=lambda done, _: bar.update(task, completed=done),
            )
    except KeyboardInterrupt:
        errors.print("Stopped. No figure was drawn.")
        raise typer.Exit(130) from None
    from normscope.report import save_range_figure  # slow to import

    save_range_figure(found, png)
    line = found.advice
    if not found.keeps:
        line += f": --lr {spec.lr * found.factor:.2g} (per 256 images; a step has {spec.batch})"
    if found.cut > 1:
        line += f", or --cut {spec.cut * found.cut:.2g}"
    out.print(f"{line}. {png}", markup=False, highlight=False, soft_wrap=True)
