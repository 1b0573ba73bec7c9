"""A real browser."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium")


@pytest.fixture(scope="session")
def browser() -> Iterator[Callable[..., Any]]:
    """Opens a page: the tab, what it asked for beyond the file, and what went wrong."""
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])

        @contextmanager
        def opened(path: Path, *, width: int = 1200, **options: Any) -> Iterator[Any]:
            requests: list[str] = []
            problems: list[str] = []
            tab = chromium.new_page(viewport={"width": width, "height": 800}, **options)
            tab.on(
                "request",
                lambda r: r.url.startswith(("file:", "data:")) or requests.append(r.url),
            )
            tab.on("console", lambda m: problems.append(m.text))
            tab.on("pageerror", lambda e: problems.append(str(e)))
            tab.goto(path.as_uri())
            yield tab, requests, problems
            tab.close()

        yield opened
        chromium.close()
