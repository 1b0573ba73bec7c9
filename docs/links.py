"""Looks for internal links of the built site that lead nowhere.

    python docs/links.py site

Every `href` and `src` without a host must be a file of the site, and every `#anchor` an id or name
within it. Prints those that are not and exits with 1. Links to other hosts are not fetched.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """What a page links to, and where it can be linked to."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element's links and names."""
        del tag
        for name, value in attrs:
            if value and name in ("href", "src"):
                self.links.append(value)
            elif value and name in ("id", "name"):
                self.anchors.add(value)


def broken_links(site: Path) -> list[str]:
    """A line for each internal link that leads nowhere."""
    site = site.resolve()
    read = cache(Page)
    found = []
    for path in sorted(site.rglob("*.html")):
        absolute = path == site / "404.html"  # it is shown for any address
        for link in dict.fromkeys(read(path).links):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            place = unquote(parts.path)
            base = site if absolute or place.startswith("/") else path.parent
            target = (base / place.lstrip("/")).resolve() if place else path
            if target.is_dir():
                target /= "index.html"
            if not target.is_file() or not target.is_relative_to(site):
                found.append(f"{path.relative_to(site)}: {link} is not there")
            elif not _has_anchor(target, parts.fragment, read):
                found.append(f"{path.relative_to(site)}: {link} has no such anchor")
    return found


def _has_anchor(target: Path, fragment: str, read: Callable[[Path], Page]) -> bool:
    """Whether a page has it; an empty one leads to the top."""
    return not fragment or target.suffix != ".html" or unquote(fragment) in read(target).anchors


def _main() -> None:
    site = Path(sys.argv[1])
    pages = len(list(site.rglob("*.html")))
    found = broken_links(site)
    print(*found, f"{pages} pages, {len(found)} broken links", sep="\n")
    sys.exit(bool(found) or not pages)


if __name__ == "__main__":
    _main()
