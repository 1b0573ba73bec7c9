"""The page is whole by itself, escapes what it is given, and opens in a real browser."""

import base64
import hashlib
import re
from pathlib import Path

import pytest

from normscope.report.figures import new_figure
from normscope.report.html import Page, Picture, Section, Table, is_page

from .conftest import needs_browser

ROWS = [["b", "1,000"], ["<script>alert(1)</script>", "9.5 [9, 10]"], ["c", "-"], ["a10", "1e-3"]]


def page(title: str = "A page") -> Page:
    figure = new_figure(3, 2)
    figure.subplots().plot([1, 2], [3, 4])
    table = Table(("run", "norm"), ROWS, numeric=(1,), marks={(1, 1): "best"})
    picture = Picture.of(figure, "A line.")
    sections = [
        Section("First", ["Text."], table, [picture], ["a b"]),
        Section("Last", ["Hidden."], folded=True),
    ]
    return Page(title, "Lead.", sections, "end")


def test_page_asks_for_nothing_from_anywhere() -> None:
    text = page().render()
    assert "http://" not in text
    assert "https://" not in text
    assert 'src="data:image/svg+xml;base64,' in text


def test_page_lets_its_own_script_run_and_no_other() -> None:
    text = page().render()
    scripts = re.findall(r"<script[^>]*>(.*?)</script>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(scripts[0].encode()).digest()).decode()
    assert len(scripts) == 1
    assert f"script-src 'sha256-{digest}';" in text
    assert "default-src 'none'; img-src data:; style-src 'unsafe-inline';" in text


def test_page_escapes_text() -> None:
    assert "&lt;script&gt;alert(1)" in page().render()
    assert "<b>" not in page("<b>bold</b>").render()


def test_the_same_page_is_the_same_file() -> None:
    assert page().render() == page().render()


def test_save_replaces_the_old_page_in_one_step(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    page("Old").save(path)
    page("New").save(path)
    assert "<h1>New</h1>" in path.read_text()
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]


def test_is_page_knows_its_own_from_others(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    assert not is_page(path)
    path.write_text("<p>mine</p>")
    assert not is_page(path)
    page().save(path)
    assert is_page(path)


@needs_browser
@pytest.mark.parametrize("width", [1200, 390])
def test_page_opens_in_a_browser_without_errors_or_requests(
    tmp_path: Path, browser, width: int
) -> None:
    path = tmp_path / "report.html"
    page().save(path)
    with browser(path, width=width) as (tab, requests, problems):
        drawn = tab.evaluate("document.images[0].naturalWidth")
        overflow = tab.evaluate("document.documentElement.scrollWidth - window.innerWidth")
    assert requests == []
    assert problems == []
    assert drawn > 0
    assert overflow <= 0


@needs_browser
def test_a_heading_sorts_its_column_by_click_and_by_key(tmp_path: Path, browser) -> None:
    path = tmp_path / "report.html"
    page().save(path)
    with browser(path) as (tab, _, problems):

        def column(i: int) -> list[str]:
            return tab.locator(f"tbody td:nth-child({i})").all_inner_texts()

        norm = tab.get_by_role("columnheader", name="norm")
        norm.get_by_role("button").click()
        rising = column(2), norm.get_attribute("aria-sort")
        norm.get_by_role("button").click()
        falling = column(2), norm.get_attribute("aria-sort")
        tab.get_by_role("button", name="run").focus()
        tab.keyboard.press("Enter")
        names, gone = column(1), norm.get_attribute("aria-sort")
        best = tab.locator("td.best").inner_text()
    assert rising == (["1e-3", "9.5 [9, 10]", "1,000", "-"], "ascending")
    assert falling == (["1,000", "9.5 [9, 10]", "1e-3", "-"], "descending")
    assert names[1:] == ["a10", "b", "c"]
    assert gone is None
    assert best == "9.5 [9, 10]"  # the mark goes with its cell
    assert problems == []


@needs_browser
def test_print_opens_what_is_folded(tmp_path: Path, browser) -> None:
    path = tmp_path / "report.html"
    page().save(path)
    with browser(path) as (tab, _, _):
        before = tab.evaluate("document.querySelector('details').open")
        tab.pdf()
        after = tab.evaluate("document.querySelector('details').open")
    assert (before, after) == (False, True)


@needs_browser
def test_page_reads_whole_without_script(tmp_path: Path, browser) -> None:
    path = tmp_path / "report.html"
    page().save(path)
    with browser(path, java_script_enabled=False) as (tab, _, _):
        assert tab.locator("th").all_inner_texts() == ["run", "norm"]
        assert tab.locator("button").count() == 0


@needs_browser
def test_the_browser_holds_the_page_to_no_network(tmp_path: Path, browser) -> None:
    path = tmp_path / "report.html"
    page().save(path)
    code = """new Promise((done) => {
        document.addEventListener("securitypolicyviolation", (e) => done(e.violatedDirective));
        fetch("http://127.0.0.1:9/").catch(() => {});
    })"""
    with browser(path) as (tab, requests, _):
        assert tab.evaluate(code) == "connect-src"
        assert requests == []


def test_control_characters_become_escapes(tmp_path: Path) -> None:
    cells = [["\x1b[31mred\x07", "line\nbreak\tü \u200d💥"], ["\udcff", "\x9b1m\x00"]]
    found = Page("a\x1b]0;b", "\x08", [Section("\x7f", table=Table(("\x01", "b"), cells))])
    found.save(tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert not set(text) & {chr(c) for c in (*range(9), *range(14, 32), *range(127, 160))}
    for words in (r"\x1b[31mred\x07", "line\nbreak\tü \u200d💥", r"\udcff", r"\x9b1m\x00"):
        assert words in text
