"""Embeddings from any file that holds them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from normscope._checks import invalid
from normscope.scoring.blocks import Source
from normscope.scoring.parquet import open_parquet
from normscope.scoring.raw import open_npy, open_npz, open_safetensors

KINDS = (".npy", ".npz", ".parquet", ".safetensors")


def open_embeddings(
    path: Path | str,
    *,
    split: Literal["train", "test"] = "test",
    covariates: Sequence[str] = (),
) -> Source:
    """A file's embeddings, ready to be read a block at a time; its head is checked at once.

    Args:
        path: a .npy, .npz, .parquet or .safetensors file, or the folder of a run.
        split: which embeddings of a run are meant.
        covariates: columns of a .parquet or members of a .npz, one number a row.
    """
    path = Path(path)
    if path.is_dir():
        path = path / "embeddings.npz"
        if not path.exists():
            advice = f"Run `normscope evaluate {path.parent}` first."
            raise invalid(str(path.parent), "a run with embeddings.npz", "none", advice)
    if path.suffix not in KINDS:
        constraint = f"a run's folder or one of {', '.join(KINDS)}"
        raise invalid(str(path), constraint, path.suffix or "no suffix", "Convert it.")
    if covariates and path.suffix not in (".npz", ".parquet"):
        advice = "Save it as .npz or .parquet with a column for each."
        raise invalid("covariates", "none for a file without columns", str(path), advice)
    try:
        with path.open("rb"):  # what the system says of a file that it cannot open, in one form
            pass
    except OSError as error:
        advice = "Check its name and rights."
        raise invalid(str(path), "a file that can be read", error.strerror, advice) from None
    if path.suffix == ".npz":
        return open_npz(path, split=split, covariates=covariates)
    if path.suffix == ".parquet":
        return open_parquet(path, covariates)
    return open_npy(path) if path.suffix == ".npy" else open_safetensors(path)
