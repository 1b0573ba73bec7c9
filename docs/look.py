"""Opens every page of the built site in Chromium, wide and narrow, and says what looks broken.

    python docs/look.py site [--pictures FOLDER]

At 1200 and 390 pixels no page may scroll sideways, miss a picture or write an error to the
console. With `--pictures` it also saves each page as an image. Where there is no Chromium it says
so and looks at nothing.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

WIDTHS = (1200, 390)
_FAULTS = """() => {
  const found = [], wide = document.documentElement;
  if (wide.scrollWidth > wide.clientWidth + 1)
    found.push(`scrolls sideways: ${wide.scrollWidth} pixels`);
  for (const image of document.images)
    if (!(image.complete && image.naturalWidth > 0)) found.push(`missing picture ${image.src}`);
  return found;
}"""


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


def _note(said: list[str], what: object) -> None:
    said.append(str(what))


def _note_error(said: list[str], message: Any) -> None:
    if message.type == "error":
        said.append(message.text)


def chromium() -> dict[str, Any] | None:
    """How to start a Chromium: the system's, or playwright's own; None if there is neither."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if path := shutil.which(name):
            return {"executable_path": path, "args": ["--no-sandbox"]}
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        found = Path(playwright.chromium.executable_path).exists()
    return {"args": ["--no-sandbox"]} if found else None


def faults(site: Path, start: dict[str, Any], pictures: Path | None = None) -> list[str]:
    """A line for each thing that looks broken, over all pages and widths."""
    from playwright.sync_api import sync_playwright

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    base = f"http://127.0.0.1:{server.server_port}"
    found: list[str] = []
    said: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(**start)
        page = browser.new_page()
        page.on("console", partial(_note_error, said))
        page.on("pageerror", partial(_note, said))
        for path in sorted(site.rglob("*.html")):
            name = path.relative_to(site).as_posix()
            if name == "404.html":
                continue
            said.clear()
            for width in WIDTHS:
                page.set_viewport_size({"width": width, "height": 900})
                if width == WIDTHS[0]:
                    page.goto(f"{base}/{name}", wait_until="networkidle")
                found += [f"{name} at {width}: {line}" for line in page.evaluate(_FAULTS)]
                if pictures:
                    picture = pictures / f"{name.replace('/', '-')}-{width}.png"
                    page.screenshot(path=str(picture), full_page=True)
            found += [f"{name}: {line}" for line in said]
        browser.close()
    server.shutdown()
    server.server_close()
    return found


def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("site", type=Path)
    parser.add_argument("--pictures", type=Path)
    options = parser.parse_args()
    start = chromium()
    if start is None:
        print("No Chromium here: the pages were not looked at.")
        return
    if options.pictures:
        options.pictures.mkdir(parents=True, exist_ok=True)
    found = faults(options.site, start, options.pictures)
    print(*found, f"looked at in Chromium: {len(found)} faults", sep="\n")
    sys.exit(bool(found))


if __name__ == "__main__":
    _main()
