"""Images that a user names, by files, folders or a dataset, with an id for each."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from normscope._checks import invalid
from normscope.data.catalog import load
from normscope.data.images import opened
from normscope.data.layouts import SUFFIXES, images_below


class Listed(NamedTuple):
    """An image that is not read yet.

    Attributes:
        id: its path, or its split and place in a dataset.
        path: its file; None if it is in a dataset.
        images: the split that it is in; None if it is a file.
        row: its place there.
    """

    id: str
    path: Path | None = None
    images: Any = None
    row: int = 0

    def read(self) -> Any:
        """The image: of a file, a PIL image; of a dataset, an array."""
        if self.path is None:
            return self.images[self.row]
        return opened(self.path, str(self.path), "Remove or replace it.")


def listed(names: Sequence[str], root: Path | None = None) -> list[Listed]:
    """The images below files and folders, or those of a dataset.

    Args:
        names: image files, and folders, which are searched with all that is below them, except
            names that begin with a dot and links to folders; or the name of one dataset as `load`
            has it, where there is no such path.
        root: the folder of datasets.
    """
    if len(names) == 1 and not os.path.lexists(names[0]):
        return list(_of_dataset(names[0], root))
    found = [image for name in names for image in _below(Path(name))]
    if not found:
        wanted = f"files or folders of images ({', '.join(sorted(SUFFIXES))})"
        raise invalid("images", wanted, " ".join(names)[:80] or "none", "Name others.")
    return found


def _below(path: Path) -> Iterator[Listed]:
    if not path.is_dir():
        yield Listed(str(path), path)
        return
    for one in map(Path, images_below(path)):
        yield Listed(str(one), one)


def _of_dataset(name: str, root: Path | None) -> Iterator[Listed]:
    if Path(name).suffix or os.sep in name.partition(":")[0]:  # meant as a path
        raise invalid("images", "files, folders or a dataset", name, "There is no such path.")
    images = load(name, root)
    for split, part in (("train", images.train), ("test", images.test)):
        yield from (Listed(f"{split}/{i}", None, part.images, i) for i in range(len(part)))
