"""The files that a name stands for: one, a run's, shards in a folder, or matches of a pattern."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Sequence
from typing import Any

from normscope._checks import invalid
from normscope.scoring.places import Place, place_of

Given = str | os.PathLike[str]

_RUN = "embeddings.npz"
_MOST_JSON = 1 << 24  # bytes: a dataset's list of a hundred thousand shards


def files_of(
    given: Given | Sequence[Given],
    *,
    suffixes: Collection[str],
    split: str,
    columns: Collection[str] = (),
) -> list[Place]:
    """Files in the order of their rows: as given, and in natural order within a folder.

    Args:
        given: a file, a run's folder, a folder of shards, a Hugging Face dataset on disk, a
            pattern with wildcards, a URL of one of these; or several.
        suffixes: of the shards in a folder.
        split: of a dataset with splits.
        columns: those of z.npy are in files such as z.length.npy, which are no shards.
    """
    names = [given] if isinstance(given, (str, os.PathLike)) else list(given)
    found = []
    for name in names:
        files = _stands_for(name, suffixes, split)
        taken = {f"{str(file).removesuffix('.npy')}.{c}.npy" for file in files for c in columns}
        found += [file for file in files if str(file) not in taken]
    if not found:
        raise invalid("files", "at least one", "none", "Name a file, a folder or a pattern.")
    return found


def natural(name: str) -> list[tuple[int, str]]:
    """A key that sorts numbers in names by their size.

    >>> sorted(["b10", "b9", "a"], key=natural)
    ['a', 'b9', 'b10']
    """
    parts = re.split(r"([0-9]+)", name)
    return [(int(part), part) if i % 2 else (0, part) for i, part in enumerate(parts)]


def _stands_for(name: Given, suffixes: Collection[str], split: str) -> list[Place]:
    if not os.fspath(name):
        advice = "A dot is the current folder."
        raise invalid("files", "names that are not empty", "", advice)
    place = place_of(name)
    if place.is_file():
        return [place]
    if place.is_folder():
        return _in_folder(place, suffixes, split)
    if any(sign in str(place) for sign in "*?["):
        files = [found for found in place.matching() if found.is_file()]
        if not files:
            raise invalid(str(place), "a pattern that fits a file", "none", "Check its folder.")
        return sorted(files, key=lambda file: natural(str(file)))
    advice = "Check its name and permissions."
    raise invalid(str(place), "a file that can be read", "No such file or directory", advice)


def _in_folder(folder: Place, suffixes: Collection[str], split: str) -> list[Place]:
    if folder.child(_RUN).is_file():
        return [folder.child(_RUN)]
    if folder.child("dataset_dict.json").is_file():
        part = folder.child(split)
        if not part.is_folder():
            advice = "Name the folder of one of its splits."
            raise invalid(str(folder), f"a dataset with the split {split!r}", "none", advice)
        return _in_folder(part, suffixes, split)
    if folder.child("state.json").is_file():
        return _of_dataset(folder)
    shown = [child for child in folder.children() if child.name[:1] not in (".", "_")]
    shards = [child for child in shown if child.suffix in suffixes and child.is_file()]
    kinds = sorted({shard.suffix for shard in shards})
    if not kinds:
        constraint = f"a run with {_RUN}, or a folder of {', '.join(suffixes)}"
        advice = f"Run `normscope evaluate {folder}` first."
        raise invalid(str(folder), constraint, "none", advice)
    if len(kinds) > 1:
        advice = f"Choose some: {folder.child(f'*{kinds[0]}')}."
        raise invalid(str(folder), "a folder of shards of one format", ", ".join(kinds), advice)
    return sorted(shards, key=lambda shard: natural(shard.name))


def _of_dataset(folder: Place) -> list[Place]:
    """The Arrow files of a Hugging Face dataset that `save_to_disk` wrote, in its order."""
    advice = "Save it again, with save_to_disk."
    state = folder.child("state.json")
    try:
        with state.open() as stream:
            content: dict[str, Any] = json.loads(stream.read(_MOST_JSON))
        names = [entry["filename"] for entry in content["_data_files"]]
        sound = all(isinstance(n, str) and re.fullmatch(r"[^/\\\0]+\.arrow", n) for n in names)
        selected = bool(content.get("_indices_data_files"))
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        names, sound, selected = [], False, False
    if not sound or not names:
        raise invalid(str(state), "a dataset's list of Arrow files", "another", advice)
    if selected:
        constraint = "a dataset whose rows are all meant"
        raise invalid(str(folder), constraint, "a selection of them", "Save it flattened.")
    return [folder.child(name) for name in names]
