"""Where scores are written to, and what may not be written there."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Sequence
from pathlib import Path

from normscope._checks import invalid
from normscope.scoring.listing import Given, files_of
from normscope.scoring.places import is_url
from normscope.scoring.writers import WRITERS


def default_out(given: Given | Sequence[Given]) -> Path:
    """Beside a file or folder, its scores: .parquet if that can be written here, else .npz.

    A run's are in its folder.
    """
    several = [given] if isinstance(given, (str, os.PathLike)) else given
    names = [os.fspath(name) for name in several]
    path = Path(names[0]) if len(names) == 1 and not is_url(names[0]) else None
    if path is not None and not (names[0] and path.exists()):
        files_of(names, suffixes=(), split="test")  # refuses what is no pattern either
    if path is None or not path.exists():
        advice = "Choose a name ending in .parquet."
        raise invalid("out", "given for several files, patterns and URLs", None, advice)
    path = path.resolve() if path.name in ("", "..") else path
    if (path / "embeddings.npz").is_file():
        path = path / "embeddings.npz"
    suffix = ".parquet" if importlib.util.find_spec("pyarrow") else ".npz"
    stem = path.name if path.is_dir() else path.stem
    return path.with_name(f"{stem}.scores{suffix}")


def kept_beside(out: Path) -> Path:
    """Where the embeddings of kept rows go.

    >>> kept_beside(Path("z.scores.parquet")).name, kept_beside(Path("z.csv")).name
    ('z.kept.parquet', 'z.kept.csv')
    """
    return out.with_name(f"{out.stem.removesuffix('.scores')}.kept{out.suffix}")


def check_out(path: Path, *, force: bool, inputs: Sequence[Path]) -> None:
    """Refuse a place that cannot be written to, or that holds something, before any work.

    Args:
        path: of a file to be written.
        force: whether it may replace another.
        inputs: the files that are read.
    """
    if path.suffix not in WRITERS:
        advice = (
            "An array has no named columns; .npz has." if path.suffix == ".npy" else "Pick one."
        )
        raise invalid("out", f"a file ending in {', '.join(WRITERS)}", str(path), advice)
    if path.suffix in (".parquet", ".arrow") and not importlib.util.find_spec("pyarrow"):
        install = "Install the extra: pip install 'normscope[parquet]', or write .npz or .csv."
        raise invalid("pyarrow", f"installed to write {path.suffix} files", None, install)
    if any(path.resolve() == other.resolve() for other in inputs):
        raise invalid("out", "another file than those read", str(path), "Choose a new name.")
    if path.is_dir() or (path.exists() and not force):
        advice = "--force replaces it, --out names another."
        raise invalid("out", "a new file", f"{path}, which exists", advice)
    if not path.parent.is_dir():
        raise invalid("out", "in a folder that exists", str(path), "Make the folder first.")
