"""Embeddings from any file that holds them; a new format is a file and a line here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from normscope._checks import invalid
from normscope.scoring.arrow_file import open_arrow
from normscope.scoring.blocks import Block, Source, too_few
from normscope.scoring.csv_file import open_csv
from normscope.scoring.jsonl_file import open_jsonl
from normscope.scoring.listing import Given, files_of
from normscope.scoring.npy_file import open_npy
from normscope.scoring.npz_file import open_npz
from normscope.scoring.parquet_file import open_parquet
from normscope.scoring.places import Local, Place
from normscope.scoring.safetensors_file import open_safetensors
from normscope.scoring.wanted import Wanted


class Format(NamedTuple):
    """How a kind of file is opened."""

    open: Callable[[Place, Wanted], Source]
    names: bool  # whether the embeddings in it have a name


FORMATS = {
    ".npy": Format(open_npy, names=False),
    ".npz": Format(open_npz, names=True),
    ".parquet": Format(open_parquet, names=True),
    ".arrow": Format(open_arrow, names=True),
    ".jsonl": Format(open_jsonl, names=True),
    ".csv": Format(open_csv, names=True),
    ".safetensors": Format(open_safetensors, names=True),
}


@dataclass
class Shards(Source):
    """Files whose rows follow each other."""

    parts: list[Source]

    def blocks(self) -> Iterator[Block]:
        """The rows in order; row numbers run over all files."""
        for part in self.parts:
            yield from part.blocks()


def open_embeddings(
    given: Given | Sequence[Given],
    *,
    split: Literal["train", "test"] = "test",
    column: str | None = None,
    id: str | None = None,
    text: str | None = None,
    covariates: Sequence[str] = (),
) -> Source:
    """Embeddings ready to be read a block at a time; the head of each file is checked at once.

    Files of one set are alike: in their columns, and in the kind and number of entries.

    Args:
        given: a file of one of `FORMATS`, a run's folder, a folder of shards in one format, a
            Hugging Face dataset on disk, a pattern with wildcards, a URL that fsspec knows; or
            several, in the order of their rows.
        split: which embeddings of a run, or of a dataset with splits.
        column: the embeddings' column, member or tensor, or what columns e0, e1 begin with.
            Other columns of z.npy are files beside it: z.length.npy for `length`.
        id: the column of ids; `id` if there is one. Else a row's id is its number, from 0.
        text: a column of strings, for a page.
        covariates: columns of one number a row.
    """
    wanted = Wanted(column, id, text, tuple(covariates), split)
    places = files_of(given, suffixes=FORMATS, split=split, columns=wanted.beside())
    found = [open_place(place, wanted) for place in places]
    parts = [part for part in found if part.rows]
    rows = sum(part.rows for part in parts)
    if not rows:
        raise too_few(found[0].path, (rows, found[0].d))
    if len(parts) == 1:
        return parts[0]
    first = parts[0]
    for other in parts[1:]:
        _check_alike(first, other)
    path = f"{first.path} and {len(parts) - 1:,} more"
    return Shards(path, rows, first.d, first.dtype, first.beside, parts)


def read_files(given: Given | Sequence[Given], *, split: str) -> list[Path]:
    """The files on this machine that `open_embeddings` would read."""
    places = files_of(given, suffixes=FORMATS, split=split)
    return [place.path for place in places if isinstance(place, Local)]


def open_place(place: Place, wanted: Wanted) -> Source:
    """One file, its head checked; it may have no rows."""
    kind = FORMATS.get(place.suffix)
    if kind is None:
        constraint = f"a run's folder or one of {', '.join(FORMATS)}"
        raise invalid(str(place), constraint, place.suffix or "no suffix", "Convert it.")
    if wanted.column is not None and not kind.names:
        advice = "Leave it out."
        raise invalid("column", "none for a file of one array", str(place), advice)
    return kind.open(place, wanted)


def form_of(source: Source) -> str:
    """What all files of one set have in common."""
    return f"{source.d} entries of {source.dtype}" + "".join(f", {b}" for b in source.beside)


def _check_alike(first: Source, other: Source) -> None:
    """Refuse a file that does not go on where the first ended."""
    expected, found = form_of(first), form_of(other)
    if expected != found:
        advice = f"It has another form than {first.path}."
        raise invalid(other.path, f"rows of {expected}", found, advice)
