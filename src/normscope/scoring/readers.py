"""Embeddings from any file that holds them; a new format is a file and a line here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from normscope._checks import invalid
from normscope.scoring.blocks import Source
from normscope.scoring.parquet_file import open_parquet
from normscope.scoring.raw import open_npy, open_npz, open_safetensors


class Format(NamedTuple):
    """How a kind of file is opened."""

    open: Callable[..., Source]  # (path, split=, covariates=) -> the embeddings
    has_columns: bool  # beside the embeddings: ids and covariates


FORMATS = {
    ".npy": Format(open_npy, has_columns=False),
    ".npz": Format(open_npz, has_columns=True),
    ".parquet": Format(open_parquet, has_columns=True),
    ".safetensors": Format(open_safetensors, has_columns=False),
}


def open_embeddings(
    path: Path | str,
    *,
    split: Literal["train", "test"] = "test",
    covariates: Sequence[str] = (),
) -> Source:
    """A file's embeddings, ready to be read a block at a time; its head is checked at once.

    Args:
        path: a file of one of `FORMATS`, or the folder of a run.
        split: which embeddings of a run are meant.
        covariates: columns or members beside the embeddings, one number a row.
    """
    path = Path(path)
    if path.is_dir():
        path = path / "embeddings.npz"
        if not path.exists():
            advice = f"Run `normscope evaluate {path.parent}` first."
            raise invalid(str(path.parent), "a run with embeddings.npz", "none", advice)
    kind = FORMATS.get(path.suffix)
    if kind is None:
        constraint = f"a run's folder or one of {', '.join(FORMATS)}"
        raise invalid(str(path), constraint, path.suffix or "no suffix", "Convert it.")
    if covariates and not kind.has_columns:
        having = " or ".join(suffix for suffix, other in FORMATS.items() if other.has_columns)
        advice = f"Save it as {having} with a column for each."
        raise invalid("covariates", "none for a file without columns", str(path), advice)
    try:
        with path.open("rb"):  # the system's errors on opening, in the one form
            pass
    except OSError as error:
        advice = "Check its name and permissions."
        raise invalid(str(path), "a file that can be read", error.strerror, advice) from None
    return kind.open(path, split=split, covariates=covariates)
