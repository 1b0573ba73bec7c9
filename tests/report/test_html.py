"""The page is whole by itself, escapes what it is given, and opens in a real browser."""

import os
import shutil
from pathlib import Path

import pytest

from normscope.report.figures import new_figure
from normscope.report.html import Page, Picture, Section, Table

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")


def page(title: str = "A page") -> Page:
    figure = new_figure(3, 2)
    figure.subplots().plot([1, 2], [3, 4])
    table = Table(("run", "norm"), [["<script>alert(1)</script>", "1.5"]], numeric=(1,))
    picture = Picture.of(figure, "A line.")
    return Page(title, "Lead.", [Section("First", ["Text."], table, [picture], ["a b"])], "end")


def test_page_asks_for_nothing_from_anywhere() -> None:
    text = page().render()
    assert "http://" not in text
    assert "https://" not in text
    assert "<script" not in text
    assert 'src="data:image/svg+xml;base64,' in text


def test_page_escapes_text() -> None:
    assert "&lt;script&gt;alert(1)" in page().render()
    assert "<b>" not in page("<b>bold</b>").render()


def test_save_replaces_the_old_page_in_one_step(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    page("Old").save(path)
    page("New").save(path)
    assert "<h1>New</h1>" in path.read_text()
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium")
@pytest.mark.parametrize("width", [1200, 390])
def test_page_opens_in_a_browser_without_errors_or_requests(tmp_path: Path, width: int) -> None:
    sync_api = pytest.importorskip("playwright.sync_api")
    path = tmp_path / "report.html"
    page().save(path)
    requests, problems = [], []
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        tab = browser.new_page(viewport={"width": width, "height": 800})
        tab.on("request", lambda r: requests.append(r.url))
        tab.on("console", lambda m: problems.append(m.text))
        tab.on("pageerror", lambda e: problems.append(str(e)))
        tab.goto(path.as_uri())
        drawn = tab.evaluate("document.images[0].naturalWidth")
        overflow = tab.evaluate("document.documentElement.scrollWidth - window.innerWidth")
        browser.close()
    assert [r for r in requests if not r.startswith(("file:", "data:"))] == []
    assert problems == []
    assert drawn > 0
    assert overflow <= 0
