"""One HTML page that needs nothing but itself: no library, no network."""

from __future__ import annotations

import base64
import hashlib
import io
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from matplotlib.figure import Figure

from normscope._files import whole_file
from normscope.report.figures import style

Mark = Literal["best", "yes", "no", "open"]
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")
_SHORT, _LONG = 20, 40  # characters: a cell of so many is one line, or is given room
_OURS = b'<meta name="generator" content="normscope">'


@dataclass(frozen=True)
class Table:
    """Rows of text under headings, sorted by a click on one of them.

    Attributes:
        headings: of the columns.
        rows: of cells, as many as headings.
        numeric: columns that are set flush right, and sorted by the number they begin with.
        marks: (row, column) -> how a cell stands out: the best, or a verdict.
    """

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    numeric: Collection[int] = ()
    marks: Mapping[tuple[int, int], Mark] = field(default_factory=dict)

    def look(self, row: int, column: int) -> str:
        """The classes of a cell."""
        classes = ["number"] if column in self.numeric else []
        if column not in self.numeric and (n := len(self.rows[row][column])) > _SHORT:
            classes.append("long" if n > _LONG else "medium")
        mark = self.marks.get((row, column))
        return " ".join([*classes, *([mark] if mark else [])])


@dataclass(frozen=True)
class Picture:
    """A drawn figure, as a data URI, and what it shows in words; wide ones stand alone."""

    source: str
    caption: str
    wide: bool = False

    @classmethod
    def of(cls, figure: Figure, caption: str) -> Picture:
        """The figure as SVG, so that it stays sharp at any size."""
        buffer = io.BytesIO()
        with style():
            figure.savefig(buffer, format="svg", metadata={"Date": None})
        code = base64.b64encode(buffer.getvalue()).decode()
        wide = figure.get_figwidth() > 6  # inches: half a page
        return cls(f"data:image/svg+xml;base64,{code}", caption, wide)


@dataclass(frozen=True)
class Thumbnail:
    """A small image as a data URI, or None where there is none, and a few words below it."""

    source: str | None
    caption: str


@dataclass(frozen=True)
class Section:
    """A part of the page: paragraphs, then thumbnails, a table, figures, commands.

    Paragraphs that begin with "- " are items of a list.

    A folded one shows its title alone until it is opened or printed.
    """

    title: str
    texts: Sequence[str] = ()
    table: Table | None = None
    figures: Sequence[Picture] = ()
    commands: Sequence[str] = ()
    folded: bool = False
    thumbnails: Sequence[Thumbnail] = ()


@dataclass(frozen=True)
class Page:
    """A whole report."""

    title: str
    lead: str
    sections: Sequence[Section]
    footer: str = field(default="")

    def render(self) -> str:
        """The page as HTML; every text is escaped, and only the page's own script may run."""
        from jinja2 import Environment, PackageLoader, StrictUndefined

        loader = PackageLoader("normscope.report")
        environment = Environment(
            loader=loader,
            autoescape=True,
            undefined=StrictUndefined,
            finalize=_without_controls,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        script = loader.get_source(environment, "page.js")[0]
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        return environment.get_template("page.html").render(
            page=self, script=script, script_hash=f"sha256-{digest}"
        )

    def save(self, path: Path) -> None:
        """Write the page, whole or not at all."""
        text = self.render()
        with whole_file(path) as partial:
            partial.write_text(text, encoding="utf-8")


def _without_controls(value: object) -> object:
    r"""Text with its control characters, which no page may hold, as escapes.

    >>> print(_without_controls("a\x1b[31m"))
    a\x1b[31m
    """
    return _CONTROLS.sub(lambda c: ascii(c[0])[1:-1], value) if type(value) is str else value


def is_page(path: Path) -> bool:
    """Whether a file is a page that `Page.save` wrote, which may be replaced by another."""
    if not path.is_file():
        return False
    with path.open("rb") as stream:
        return _OURS in stream.read(1000)
