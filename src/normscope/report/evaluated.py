"""Sections on what `evaluate` stored in a run's folder; damaged files are refused by name."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from normscope._checks import invalid
from normscope.report.html import Section
from normscope.report.norm_sections import (
    confidence_pictures,
    gallery_section,
    layers_section,
    norm_sections,
    norms_in_words,
    splits_pictures,
)


def stored_evaluation(folder: Path) -> dict[str, Any] | None:
    """The evaluation of a run; None if `evaluate` was not called."""
    path = folder / "evaluation.json"
    if not path.exists():
        return None
    with as_written(path):
        found = json.loads(path.read_text())
        if not set(found) >= {"epoch", "layer", "calibration"}:
            raise KeyError
        if not all(isinstance(found[part], dict) for part in _PARTS):
            raise TypeError
        return found


_PARTS = ("layers", "splits", "confidence", "novelty")


def evaluated_sections(folder: Path, found: dict[str, Any]) -> list[Section]:
    """All sections of an evaluation, and the gallery."""
    with as_written(folder / "evaluation.json"):
        sections = [layers_section(found), *norm_sections(found)]
    return [*sections, *_gallery(folder)]


def norms_section(folder: Path) -> Section:
    """The norms of an evaluated run in short: by split, against being right, and the gallery."""
    found = stored_evaluation(folder)
    if found is None:
        raise invalid("run", "evaluated", str(folder), "Run normscope evaluate on it.")
    with as_written(folder / "evaluation.json"):
        text = norms_in_words(found).strip()
        pictures = [
            *splits_pictures(found["splits"])[:1],
            *confidence_pictures(found["confidence"]),
        ]
    pictures += [picture for section in _gallery(folder) for picture in section.figures]
    return Section("What the norms say", [text], figures=pictures)


def _gallery(folder: Path) -> list[Section]:
    path = folder / "gallery.npz"
    if not path.exists():
        return []
    with (
        as_written(path),
        path.open("rb") as stream,
        np.load(stream, allow_pickle=False) as stored,
    ):
        arrays = {name: stored[name] for name in stored.files}
        gallery_names = {"highest", "lowest", "classes", "highest_correct", "lowest_correct"}
        if not gallery_names <= set(arrays) or arrays["highest"].ndim != 5:
            raise KeyError
    return [gallery_section(arrays)]


@contextmanager
def as_written(path: Path) -> Iterator[None]:
    """Context that turns errors from a damaged file into one line that names it."""
    try:
        yield
    except Exception:  # damaged files raise errors of any kind
        advice = f"Run normscope evaluate {shlex.quote(str(path.parent))} again."
        got = "one that is damaged"
        raise invalid(str(path), "as evaluate wrote it", got, advice) from None
