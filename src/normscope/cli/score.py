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
    read_labels,
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
            help="embeddings to score: files, folders of shards, patterns, URLs, or a run's folder",
            show_default=False,
        ),
    ],
    reference: Annotated[
        str,
        typer.Option(
            help="embeddings to compare with, named as FILE is, or what --save-reference wrote"
        ),
    ],
    parts: Annotated[
        str | None,
        typer.Option(
            help="what rows are compared by. all: norm, neighbours and direction; norm: the norm "
            "alone, which is fast [default: all]"
        ),
    ] = None,
    labels: Annotated[
        Path | None,
        typer.Option(
            help=".npy file with the class of each row of the reference: adds the column confidence"
        ),
    ] = None,
    known_bad: Annotated[
        str | None,
        typer.Option(
            help="embeddings that should look new, named as FILE is, at least 20: the parts that "
            "find them are used [default: all parts]"
        ),
    ] = None,
    reference_rows: Annotated[
        int | None,
        typer.Option(
            help="rows of the reference that are kept, to look for neighbours among; of more, so "
            f"many are drawn by a seed [default: {REFERENCE_ROWS:,}]"
        ),
    ] = None,
    covariate: Annotated[
        list[str] | None,
        typer.Option(
            help="column of numbers or times that the norm may depend on, as on text length: rows "
            "are compared with rows like them; may be repeated"
        ),
    ] = None,
    column: Annotated[
        str | None,
        typer.Option(
            help="column of the embeddings [default: embedding, embeddings, e0 e1 e2 and so on, or "
            "the only one that fits]"
        ),
    ] = None,
    identity: Annotated[
        str | None, typer.Option("--id", help="column of ids [default: id, else rows are numbered]")
    ] = None,
    text: Annotated[
        str | None, typer.Option(help="column of FILE's texts, to show on the page of --html")
    ] = None,
    images: Annotated[
        str | None,
        typer.Option(
            help="column of paths to images, from FILE's folder, to show on the page of --html: "
            "JPEG, PNG, WebP, GIF or BMP"
        ),
    ] = None,
    target: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="file of the scores: .parquet, .arrow, .npz, .csv or .jsonl [default: FILE's "
            "name with .scores.parquet]",
        ),
    ] = None,
    keep: Annotated[
        float | None,
        typer.Option(
            help="also write the embeddings of this share of the rows, the best ones, such as "
            "0.95, to NAME.kept beside the scores"
        ),
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option(
            help="also write the embeddings of rows of at least this confidence, without --labels "
            "of this score, to NAME.kept beside the scores"
        ),
    ] = None,
    save_reference: Annotated[
        Path | None,
        typer.Option(
            help="also write the fitted reference, to be given as --reference later: .safetensors, "
            "with --parts norm .npz"
        ),
    ] = None,
    html: Annotated[
        bool,
        typer.Option("--html", help="also write a page to read, the scores' name with .html"),
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="replace files that are there [default: refuse to]")
    ] = False,
    engine: Annotated[
        str,
        typer.Option(
            help="where FILE and the reference are read and scored. here: in this process; ray: "
            "by the workers of a Ray cluster"
        ),
    ] = "here",
    ray_address: Annotated[
        str | None,
        typer.Option(
            help="HOST:PORT of the Ray cluster [default: RAY_ADDRESS, else one that is started on "
            "this machine]"
        ),
    ] = None,
) -> None:
    """Score how new embeddings are to a reference, and how sure their answers.

    \b
    normscope score new.npy --reference train.npy
    normscope score new.npy --reference train.npy --labels classes.npy --save-reference fit.safetensors
    normscope score new.jsonl --reference fit.safetensors --text sentence --out new.csv --html
    normscope score new.npy --reference train.npy --known-bad spam.npy --keep 0.95
    normscope score new.parquet --reference train.parquet --covariate text_length
    normscope score shards/ --reference s3://bucket/train --id key --parts norm
    normscope score runs/simclr-digits-0123456789 --reference runs/simclr-digits-0123456789

    Reads .npy, .npz, .parquet, .arrow, .jsonl, .csv and .safetensors of any length, folders of
    them, datasets of Hugging Face on disk, and runs: the test images are compared with the
    training images. The column `length` of z.npy is the file z.length.npy.

    \b
    Writes one row for each embedding, with these columns:
    id          of the row, or its number
    norm        of the embedding
    score       from 0 to 1, higher for rows like the reference: the share of its held-out rows
                that look newer; with --parts norm, the share with smaller norms
    novelty     bits of surprise
    confidence  with --labels: the probability that the neighbours' vote is right
    status      "ok", or why there is no score; "outside" has a covariate beyond the reference's

    The best rows have the highest confidence, without --labels the highest score. Rows of FILE
    that are the reference's own, with the same number, are compared with its other rows.
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
    how = _fit(parts or PARTS[0], labels, known_bad, reference_rows)
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
    columns: Columns = {"column": column, "covariates": covariates}
    opened, cluster = _engine(engine, ray_address)
    source = opened(files, split="test", text=text, id=identity, **columns)
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
    _print_found(fitted, summary, target)
    if left:
        say(out, left)
    if places.page is not None:
        say(out, f"Open {places.page.resolve().as_uri()}")


class Columns(TypedDict):
    """The columns that FILE and the reference have in common."""

    column: str | None
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
    labels: Path | None
    known_bad: str | None
    rows: int

    def to(
        self, known: Source, columns: Columns, progress: Callable[[int, int], None]
    ) -> FittedReference:
        """The fitted reference."""
        labels = None if self.labels is None else read_labels(self.labels, rows=known.rows)
        if self.norm:
            return fit_reference(known, labels=labels, progress=progress)
        bad = None
        if self.known_bad is not None:
            bad = open_embeddings(self.known_bad, split="test", **columns)
        return fit_trust(known, labels=labels, known_bad=bad, most=self.rows, progress=progress)


def _fit(parts: str, labels: Path | None, known_bad: str | None, rows: int | None) -> Fit:
    if parts not in PARTS:
        refuse(f"--parts must be all or norm, got {parts!r}.")
    if parts == "norm" and (known_bad is not None or rows is not None):
        refuse("--parts must be all with --known-bad or --reference-rows, got 'norm'.")
    if rows is not None and rows < LEAST:
        refuse(f"--reference-rows must be at least {LEAST}, got {rows}.")
    return Fit(parts == "norm", labels, known_bad, rows or REFERENCE_ROWS)


def _shown(bar: Progress, what: str) -> Callable[[int, int], None]:
    """A progress callback with its own bar."""
    task = bar.add_task(what, total=None)
    return lambda done, total: bar.update(task, completed=done, total=total)


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


def _print_found(fitted: FittedReference, summary: Summary, target: Path) -> None:
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
