"""normscope score."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypedDict

import numpy as np
import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from normscope._files import whole_files
from normscope.cli.console import check_page, errors, out, refuse, say, visible
from normscope.cli.score_words import MEANING, caveats, in_words
from normscope.scoring import (
    LEAST,
    REFERENCE_ROWS,
    FittedReference,
    Source,
    Summary,
    check_kept,
    check_out,
    connected,
    default_out,
    fit_reference,
    fit_trust,
    kept_beside,
    kept_rows,
    load_reference,
    open_embeddings,
    open_on_ray,
    read_files,
    score_file,
    texts_at,
    write_kept,
)

if TYPE_CHECKING:
    from normscope.report.html import Page

PARTS = ("all", "norm")


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
    parts: Annotated[
        str | None,
        typer.Option(
            help="all: neighbours, direction and norm; norm: the norm alone, quickly [default: all]"
        ),
    ] = None,
    labels: Annotated[
        Path | None, typer.Option(help=".npy of the reference's classes, for confidence")
    ] = None,
    known_bad: Annotated[
        str | None, typer.Option(help="rows that should look new, like FILE: they choose parts")
    ] = None,
    reference_rows: Annotated[
        int | None,
        typer.Option(
            help=f"rows of the reference to look for neighbours in [default: {REFERENCE_ROWS:,}]"
        ),
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
    images: Annotated[
        str | None, typer.Option(help="column of paths of FILE's images, to show on the page")
    ] = None,
    target: Annotated[
        Path | None, typer.Option("--out", help="default: FILE's name with .scores.parquet")
    ] = None,
    keep: Annotated[
        float | None, typer.Option(help="write the embeddings of this share, the best ones")
    ] = None,
    threshold: Annotated[
        float | None, typer.Option(help="write the embeddings of this score and more")
    ] = None,
    save_reference: Annotated[
        Path | None, typer.Option(help="keep the fitted reference: .safetensors, of a norm .npz")
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
    """Say of each embedding how new it is to a reference, and how sure its answer.

    \b
    normscope score new.npy --reference train.npy
    normscope score new.npy --reference train.npy --labels classes.npy --save-reference fit.safetensors
    normscope score new.jsonl --reference fit.safetensors --text sentence --out new.csv --html
    normscope score new.npy --reference train.npy --known-bad spam.npy --keep 0.95
    normscope score new.parquet --reference train.parquet --covariate text_length
    normscope score shards/ --reference s3://bucket/train --id key --parts norm
    normscope score runs/simclr-digits-0123456789 --reference runs/simclr-digits-0123456789

    Reads .npy, .npz, .parquet, .arrow, .jsonl, .csv and .safetensors of any length, folders of
    them, and datasets of Hugging Face on disk; a run's test images against its training images.
    Beside z.npy, a covariate `length` is z.length.npy.

    \b
    Writes .parquet, .arrow, .npz, .csv or .jsonl with these columns:
    id          of the row, or its number
    norm        of the embedding
    score       from 0 to 1, higher for rows like the reference: the share of its held-out rows
                that look newer; with --parts norm, the share with smaller norms
    novelty     bits of surprise
    confidence  with --labels: the probability that the neighbours' vote is right
    status      "ok", or why there is no score; "outside" has a covariate beyond the reference's

    Rows are ranked by confidence if there is one, else by score: so are the page of --html, and
    what --keep and --threshold write, ids and embeddings, to NAME.kept.
    """  # noqa: E501
    target = target or default_out(files)
    places = Places(
        target,
        None if keep is None and threshold is None else kept_beside(target),
        target.with_suffix(".html") if html else None,
        save_reference,
    )
    if images is not None and not html:
        refuse("--images must be left out without --html, which shows them.")
    inputs = _inputs(files, reference, labels, known_bad)
    _check_places(places, inputs, norm=parts == "norm", force=force)
    classes = None if labels is None else _classes(labels)
    how = _fit(parts or PARTS[0], classes, known_bad, reference_rows)
    fitted = load_reference(reference)
    given = (parts, labels, known_bad, reference_rows, save_reference)
    if fitted is not None and any(option is not None for option in given):
        advice = "leave out --parts, --labels, --known-bad, --reference-rows and --save-reference"
        refuse(f"--reference must be embeddings, got one that is fitted: {advice}.")
    covariates = covariate or []
    if fitted is not None and not covariates:
        covariates = list(fitted.confidence.names)  # it knows what it was fitted with
    if places.kept is not None:
        check_kept(share=keep, threshold=threshold, covariates=covariates)
    columns: Columns = {"column": column, "id": identity, "covariates": covariates}
    opened, cluster = _engine(engine, ray_address)
    source = opened(files, split="test", text=text, **columns)
    if fitted is not None:
        _check_columns(fitted.confidence.d, source.d)
    shown = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    bar = Progress(*shown, TimeRemainingColumn(), console=errors, disable=not errors.is_terminal)
    ranks: list[np.ndarray] = []
    left = ""
    try:
        with whole_files(*places.all) as partial, cluster:
            at = dict(zip(places.all, partial, strict=True))
            with bar:
                if fitted is None:
                    known = opened(reference, split="train", **columns)
                    _check_columns(known.d, source.d)
                    fitted = how.to(known, columns, _shown(bar, "reference"))
                if places.kept is not None and fitted.flat:
                    advice = "it is much the same for every row. Leave out --labels to go by score."
                    refuse(f"confidence must rank rows for --keep and --threshold, but {advice}")
                watch = None if places.kept is None else ranks.append
                progress = _shown(bar, "scores")
                summary = score_file(source, fitted, at[target], progress=progress, watch=watch)
            if places.kept is not None:
                chosen = kept_rows(np.concatenate(ranks), share=keep, threshold=threshold)
                write_kept(source, chosen, at[places.kept])
                left = f"{chosen.sum():,} rows kept, by {fitted.delivers}: {places.kept}"
            if save_reference is not None:
                fitted.save(at[save_reference])
            if places.page is not None:
                pictures = None
                if images is not None:
                    pictured = open_embeddings(files, split="test", text=images, **columns)
                    ends = {row.place for row in (*summary.highest, *summary.lowest)}
                    pictures = texts_at(pictured, ends)
                page = _page(files, reference, fitted, summary, pictures)
                page.save(at[places.page])
    except OSError as error:  # from writing: the readers report their own
        refuse(f"--out must be writable, got {str(target)!r}: {error.strerror or error}.")
    except KeyboardInterrupt:
        errors.print("Stopped. No scores were written.")
        raise typer.Exit(130) from None
    _tell(fitted, summary, target)
    if left:
        say(out, left)
    if places.page is not None:
        say(out, f"Open {places.page.resolve().as_uri()}")


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
        refuse(f"--engine must be here or ray, got {name!r}.")
    if name == "here" and address is not None:
        refuse(f"--ray-address must be left out without --engine ray, got {address!r}.")
    return (open_embeddings, nullcontext()) if name == "here" else (open_on_ray, connected(address))


@dataclass(frozen=True)
class Places:
    """What is written: scores, kept rows, a page, the reference."""

    scores: Path
    kept: Path | None
    page: Path | None
    reference: Path | None

    @property
    def all(self) -> list[Path]:
        """Those that are asked for."""
        every = (self.scores, self.kept, self.page, self.reference)
        return [path for path in every if path is not None]


@dataclass(frozen=True)
class Fit:
    """How a reference is fitted."""

    norm: bool
    classes: np.ndarray | None
    known_bad: str | None
    rows: int

    def to(
        self, known: Source, columns: Columns, progress: Callable[[int, int], None]
    ) -> FittedReference:
        """The fitted reference."""
        if self.norm:
            return fit_reference(known, labels=self.classes, progress=progress)
        bad = None
        if self.known_bad is not None:
            bad = open_embeddings(self.known_bad, split="test", **columns)
        return fit_trust(
            known, labels=self.classes, known_bad=bad, most=self.rows, progress=progress
        )


def _fit(parts: str, classes: np.ndarray | None, known_bad: str | None, rows: int | None) -> Fit:
    if parts not in PARTS:
        refuse(f"--parts must be all or norm, got {parts!r}.")
    if parts == "norm" and (known_bad is not None or rows is not None):
        refuse("--parts must be all with --known-bad or --reference-rows, got 'norm'.")
    if rows is not None and rows < LEAST:
        refuse(f"--reference-rows must be at least {LEAST}, got {rows}.")
    return Fit(parts == "norm", classes, known_bad, rows or REFERENCE_ROWS)


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
        refuse(f"--labels must be a .npy file of integers or strings, got {str(path)!r}.")


def _inputs(
    files: list[str], reference: str, labels: Path | None, known_bad: str | None
) -> list[Path]:
    """The files on this machine that are read."""
    found = [*read_files(files, split="test"), *read_files(reference, split="train")]
    found += [] if labels is None else [labels]
    return found + ([] if known_bad is None else read_files(known_bad, split="test"))


def _check_places(places: Places, inputs: list[Path], *, norm: bool, force: bool) -> None:
    """Refuse what can't be written, before any work."""
    for path in (places.scores, places.kept):
        if path is not None:
            check_out(path, force=force, inputs=inputs)
    if places.reference is not None:
        others = [*inputs, places.scores, *([places.kept] if places.kept else [])]
        suffix = ".npz" if norm else ".safetensors"
        _check_save(places.reference, suffix, force=force, others=others)
    if places.page is not None and places.page.exists():
        check_page(places.page, force=force)


def _check_save(path: Path, suffix: str, *, force: bool, others: list[Path]) -> None:
    if path.suffix != suffix or not path.parent.is_dir() or path.is_dir():
        refuse(f"--save-reference must be a {suffix} in a folder that exists, got {str(path)!r}.")
    if any(path.resolve() == other.resolve() for other in others) or (path.exists() and not force):
        refuse(f"--save-reference must be a new file, got {str(path)!r}. --force replaces it.")


def _check_columns(known: int | None, given: int) -> None:
    if known not in (None, given):
        refuse(f"FILE must have {known} columns as --reference has, got {given}.")


def _tell(fitted: FittedReference, summary: Summary, target: Path) -> None:
    for line in fitted.verdict:
        say(out, line)
    for line in caveats(fitted, summary):
        say(errors, line)
    say(out, f"{in_words(fitted, summary)}: {target}")


def _page(
    files: list[str],
    reference: str,
    fitted: FittedReference,
    summary: Summary,
    pictures: dict[int, str] | None,
) -> Page:
    from normscope.report.score_page import score_page  # slow to import

    more = f" and {len(files) - 1} more" if len(files) > 1 else ""
    names = visible(f"{Path(files[0]).name}{more}"), visible(Path(reference).name)
    lines = [f"{in_words(fitted, summary)}.", *caveats(fitted, summary)]
    beside = Path(files[0]).parent
    shown = None if pictures is None else {i: beside / name for i, name in pictures.items()}
    return score_page(*names, fitted, summary, lines=lines, meanings=MEANING, pictures=shown)
