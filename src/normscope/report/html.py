"""One HTML page that needs nothing but itself: no script, no network."""

from __future__ import annotations

import base64
import io
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from matplotlib.figure import Figure

from normscope._files import whole_file
from normscope.report.figures import style


@dataclass(frozen=True)
class Table:
    """Rows of text under headings; `numeric` columns are set flush right."""

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    numeric: Collection[int] = ()


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
class Section:
    """A part of the page: paragraphs, then a table, then figures, then commands."""

    title: str
    texts: Sequence[str] = ()
    table: Table | None = None
    figures: Sequence[Picture] = ()
    commands: Sequence[str] = ()


@dataclass(frozen=True)
class Page:
    """A whole report."""

    title: str
    lead: str
    sections: Sequence[Section]
    footer: str = field(default="")

    def render(self) -> str:
        """The page as HTML; every text is escaped."""
        from jinja2 import Environment, PackageLoader, StrictUndefined

        loader = PackageLoader("normscope.report")
        environment = Environment(
            loader=loader,
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        return environment.get_template("page.html").render(page=self)

    def save(self, path: Path) -> None:
        """Write the page, whole or not at all."""
        text = self.render()
        with whole_file(path) as partial:
            partial.write_text(text, encoding="utf-8")
