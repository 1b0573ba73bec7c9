"""normscope score."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypedDict

import numpy as np
import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from normscope._files import whole_files
from normscope.cli.console import errors, out, refuse, say, visible
from normscope.scoring import (
    FittedReference,
    Source,
    Summary,
    check_out,
    connected,
    default_out,
    fit_reference,
    kept_beside,
    kept_rows,
    load_reference,
    open_embeddings,
    open_on_ray,
    read_files,
    score_file,
    write_kept,
)

if TYPE_CHECKING:
    from normscope.report.html import Page


def score(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE...",
            help="embeddings: files, folders of shards, patterns, URLs; or a run",
            show_default=False,
        ),
    ],
    reference: Annotated[
        str, typer.Option(help="what to compare to: like FILE, or --save-reference's")
    ],
    labels: Annotated[
        Path | None, typer.Option(help=".npy of the reference's classes, to check the norm")
    ] = None,
    covariate: Annotated[
        list[str] | None, typer.Option(help="column that the norm may depend on; may be repeated")
    ] = None,
    column: Annotated[
        str | None, typer.Option(help="column of the embeddings, if it can't be guessed")
    ] = None,
    identity: Annotated[str | None, typer.Option("--id", help="column of ids")] = None,
    text: Annotated[
        str | None, typer.Option(help="column of FILE's texts, to show on the page")
    ] = None,
    target: Annotated[
        Path | None, typer.Option("--out", help="default: FILE's name with .scores.parquet")
    ] = None,
    keep: Annotated[
        float | None, typer.Option(help="write the embeddings of this share of highest score")
    ] = None,
    threshold: Annotated[
        float | None, typer.Option(help="write the embeddings of this score and more")
    ] = None,
    save_reference: Annotated[
        Path | None, typer.Option(help="keep the fitted reference in this .npz")
    ] = None,
    html: Annotated[bool, typer.Option("--html", help="also write an HTML page")] = False,
    force: Annotated[bool, typer.Option("--force", help="replace what is there")] = False,
    engine: Annotated[
        str, typer.Option(help="here, or ray: the workers of a cluster read and score files")
    ] = "here",
    ray_address: Annotated[
        str | None, typer.Option(help="a cluster's; default: RAY_ADDRESS, or one started here")
    ] = None,
) -> None:
    """Give each embedding a confidence and a novelty, by its norm among a reference's.

    \b
    normscope score new.npy --reference train.npy
    normscope score new.parquet --reference train.parquet --covariate text_length
    normscope score shards/ --reference s3://bucket/train --id key --keep 0.95
    normscope score new.npy --reference train.npy --labels classes.npy --save-reference fit.npz
    normscope score new.jsonl --reference fit.npz --text sentence --out new.csv --html
    normscope score runs/simclr-digits-0123456789 --reference runs/simclr-digits-0123456789

    Reads .npy, .npz, .parquet, .arrow, .jsonl, .csv and .safetensors of any length, folders of
    them, and datasets of Hugging Face on disk; a run's test images against its training images.
    Writes id, norm, score (the share of the reference with smaller norms), novelty (bits of
    surprise at so small a norm) and status to .parquet, .arrow, .npz, .csv or .jsonl; with
    --html, a page of the same name that shows them; with --keep or --threshold, the kept rows'
    ids and embeddings, as NAME.kept.
    """
    target = target or default_out(files)
    kept = None if keep is None and threshold is None else kept_beside(target)
    page = target.with_suffix(".html") if html else None
    _check_targets(files, reference, labels, (target, kept, page, save_reference), force=force)
    classes = None if labels is None else _classes(labels)
    fitted = load_reference(reference)
    covariates = covariate or []
    if fitted is not None and not covariates:
        covariates = list(fitted.confidence.names)  # it knows what it was fitted with
    columns: Columns = {"column": column, "id": identity, "covariates": covariates}
    opened, cluster = _engine(engine, ray_address)
    source = opened(files, split="test", text=text, **columns)
    if fitted is not None and (labels is not None or save_reference is not None):
        advice = "leave out --labels and --save-reference"
        refuse(f"--reference must be embeddings, got one that is fitted: {advice}.")
    if fitted is not None:
        _check_columns(fitted.confidence.d, source.d)
    shown = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    bar = Progress(*shown, TimeRemainingColumn(), console=errors, disable=not errors.is_terminal)
    targets = [path for path in (target, kept, page, save_reference) if path is not None]
    scores: list[np.ndarray] = []
    left = ""
    try:
        with whole_files(*targets) as partial, cluster:
            at = dict(zip(targets, partial, strict=True))
            with bar:
                if fitted is None:
                    known = opened(reference, split="train", **columns)
                    _check_columns(known.d, source.d)
                    fitted = fit_reference(known, labels=classes, progress=_shown(bar, "reference"))
                progress, watch = _shown(bar, "scores"), None if kept is None else scores.append
                summary = score_file(source, fitted, at[target], progress=progress, watch=watch)
            if kept is not None:
                chosen = kept_rows(np.concatenate(scores), share=keep, threshold=threshold)
                write_kept(source, chosen, at[kept])
                left = f"{chosen.sum():,} rows kept: {kept}"
            if save_reference is not None:
                fitted.confidence.save(at[save_reference])
            if page is not None:
                _page(files, reference, fitted, summary).save(at[page])
    except OSError as error:  # from writing: the readers report their own
        refuse(f"--out must be writable, got {str(target)!r}: {error.strerror or error}.")
    except KeyboardInterrupt:
        errors.print("Stopped. No scores were written.")
        raise typer.Exit(130) from None
    _tell(fitted, summary, target)
    if left:
        say(out, left)
    if page is not None:
        say(out, f"Open {page.resolve().as_uri()}")


class Columns(TypedDict):
    """The columns that FILE and the reference have in common."""

    column: str | None
    id: str | None
    covariates: list[str]


def _engine(
    name: str, address: str | None
) -> tuple[Callable[..., Source], AbstractContextManager[None]]:
    """How files are opened, and the cluster that reads them, if one does."""
    if name not in ("here", "ray"):
        refuse(f"--engine must be here or ray, got {name!r}. ray needs a cluster, or starts one.")
    if name == "here" and address is not None:
        refuse(f"--ray-address must be left out without --engine ray, got {address!r}.")
    return (open_embeddings, nullcontext()) if name == "here" else (open_on_ray, connected(address))


def _shown(bar: Progress, what: str) -> Callable[[int, int], None]:
    """A progress callback with its own bar."""
    task = bar.add_task(what, total=None)
    return lambda done, total: bar.update(task, completed=done, total=total)


def _classes(path: Path) -> np.ndarray:
    try:
        if not path.is_file():  # a device would be read without end
            raise OSError
        with path.open("rb") as stream:
            return np.lib.format.read_array(stream, allow_pickle=False)
    except (OSError, ValueError, EOFError):
        refuse(f"--labels must be a .npy file of integers, got {str(path)!r}.")


def _check_targets(
    files: list[str],
    reference: str,
    labels: Path | None,
    targets: tuple[Path, Path | None, Path | None, Path | None],
    *,
    force: bool,
) -> None:
    """Refuse what can't be written, before any work."""
    target, kept, page, save_reference = targets
    inputs = [*read_files(files, split="test"), *read_files(reference, split="train")]
    inputs += [] if labels is None else [labels]
    check_out(target, force=force, inputs=inputs)
    if kept is not None:
        check_out(kept, force=force, inputs=inputs)
    if save_reference is not None:
        _check_save(
            save_reference, force=force, others=[*inputs, target, *([kept] if kept else [])]
        )
    if page is not None and page.exists():
        _check_page(page, force=force)


def _check_save(path: Path, *, force: bool, others: list[Path]) -> None:
    if path.suffix != ".npz" or not path.parent.is_dir() or path.is_dir():
        refuse(f"--save-reference must be a .npz in a folder that exists, got {str(path)!r}.")
    if any(path.resolve() == other.resolve() for other in others) or (path.exists() and not force):
        refuse(f"--save-reference must be a new file, got {str(path)!r}. --force replaces it.")


def _check_page(path: Path, *, force: bool) -> None:
    from normscope.report.html import is_page  # slow to import

    if path.is_dir() or not (force or is_page(path)):
        refuse(f"--html must make a new file, got {str(path)!r}. --force replaces it.")


def _check_columns(known: int | None, given: int) -> None:
    if known not in (None, given):
        refuse(f"FILE must have {known} columns as --reference has, got {given}.")


def _tell(reference: FittedReference, summary: Summary, target: Path) -> None:
    counts = [*_left_out("the reference", reference.left_out), *_left_out("FILE", summary.statuses)]
    for line in [*counts, *reference.confidence.warnings]:
        say(errors, line)
    if reference.confidence.trust is not None:
        say(out, _trust(reference.confidence.trust))
    say(out, f"{_in_words(reference, summary)}: {target}")


def _left_out(owner: str, counts: dict[str, int]) -> list[str]:
    return [
        f"{n:,} {'row' if n == 1 else 'rows'} of {owner}: {_MEANING[status]}"
        for status, n in counts.items()
    ]


def _trust(auroc: float) -> str:
    shown = f"{auroc:.2f}".removeprefix("0")
    return f"the norm separates right from wrong with AUROC {shown} in the reference"


def _in_words(reference: FittedReference, summary: Summary) -> str:
    of = "" if reference.norm_mean is None else f" ({reference.norm_mean:.4g} in the reference)"
    low = f"{summary.low:.1%} below the reference's 5 % quantile"
    return f"{summary.rows:,} rows, mean norm {summary.norm_mean:.4g}{of}, {low}"


def _page(files: list[str], reference: str, fitted: FittedReference, summary: Summary) -> Page:
    from normscope.report.score_page import score_page  # slow to import

    trust = fitted.confidence.trust
    lines = [f"{_in_words(fitted, summary)}.", *_left_out("the reference", fitted.left_out)]
    lines += [*fitted.confidence.warnings, *([] if trust is None else [_trust(trust)])]
    more = f" and {len(files) - 1} more" if len(files) > 1 else ""
    names = visible(f"{Path(files[0]).name}{more}"), visible(Path(reference).name)
    return score_page(*names, fitted, summary, lines=lines, meanings=_MEANING)


_MEANING = {
    "nan": "NaN in the embedding, no score",
    "infinite": "infinity in the embedding, no score",
    "zero": "all zero, no score",
    "ragged": "of another length, no score",
    "null": "no embedding, no score",
    "covariate": "a covariate that is not finite, no score",
}
