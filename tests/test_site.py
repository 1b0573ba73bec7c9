"""The documentation's machinery on small pages, and what its pages must cover."""

import importlib.util
import pkgutil
import re
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import normscope
from normscope.cli import COMMANDS

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))


def of_docs(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"docs_{name}", DOCS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look there
    spec.loader.exec_module(module)
    return module


executed, links, look = (of_docs(name) for name in ("executed", "links", "look"))

PAGE = """# A page

```python
x = 2
print("x <", x)
open("drawn_here.png", "wb").close()
```

<!-- not run: it would break. -->
```python
broken()
```

```pycon
>>> x + 1
3
```

```console
$ echo $((1 + 1)); ls *.png
$ echo a \\
    b > named.txt
```

[What was written](named.txt), and [another page](other.md).

```text
not code
```
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A folder with the page, run and kept."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "page.md").write_text(PAGE)
    executed.executed(folder / "page.md", root=folder, kept=folder / "kept")
    return folder


def test_a_page_shows_what_its_blocks_printed_drew_and_wrote(place: Path) -> None:
    found = executed.executed(place / "page.md", root=place, kept=place / "kept")
    text = executed.shown(PAGE, found, lambda name: f"at/{name}", root=place)
    assert "<code>x &lt; 2</code>" in text
    assert "![drawn here](at/drawn_here.png)" in text
    assert "<code>2\ndrawn_here.png</code>" in text
    assert "*Not run when this page was built: it would break.*" in text
    assert "[What was written](at/named.txt), and [another page](other.md)" in text
    assert found.files["named.txt"].read_text() == "a b\n"


def test_a_page_that_did_not_change_is_not_run_again(place: Path, monkeypatch) -> None:
    monkeypatch.setattr(executed, "_run_elsewhere", None)
    assert executed.executed(place / "page.md", root=place, kept=place / "kept").outputs
    (place / "page.md").write_text(PAGE.replace("x = 2", "x = 3"))
    with pytest.raises(TypeError):
        executed.executed(place / "page.md", root=place, kept=place / "kept")
    (place / "page.md").write_text(PAGE)


@pytest.mark.parametrize(
    ("block", "line", "why"),
    [
        ("```python\nx = 1\n1 / 0\n```", 4, "division by zero"),
        ("```pycon\n>>> 1 + 1\n3\n```", 3, "Expected"),
        ("```console\n$ true\n$ false\n```", 4, "exited with 1"),
        ("```console\nno prompt\n```", 3, "commands behind"),
    ],
)
def test_a_block_that_fails_is_named_with_its_line(tmp_path, block, line, why) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"\n{block}\n")
    with pytest.raises(executed.BlockError, match=rf"(?s)page\.md:{line}: .*{why}"):
        executed.executed(page, root=tmp_path, kept=tmp_path / "kept")
    assert not (tmp_path / "kept").exists()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_blocks_of_a_page_can_be_read(page: Path) -> None:
    text = page.read_text()
    blocks = executed.blocks_of(text)
    for block in blocks:
        assert block.kind != "console" or list(executed.commands_of(block, page))
    assert text.count("<!-- not run:") == sum(block.reason is not None for block in blocks)


def test_broken_links_and_anchors_are_found(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there/index.html").write_text('<h1 id="top"></h1><a href="../index.html">')
    good = '<a href="there/#top"><a href="#own" id="own"><a href="https://example.org/x">'
    (tmp_path / "index.html").write_text(good)
    assert links.broken_links(tmp_path) == []
    bad = '<a href="there/#gone"><img src="gone.png"><a href="#gone"><a href="../outside">'
    (tmp_path / "index.html").write_text(bad)
    found = links.broken_links(tmp_path)
    assert [line.split()[1] for line in found] == ["there/#gone", "gone.png", "#gone", "../outside"]


def test_a_page_that_looks_broken_is_found(tmp_path: Path) -> None:
    start = look.chromium()
    if start is None:
        pytest.skip("there is no Chromium")
    icon = '<link rel="icon" href="data:,">'  # a browser asks for one
    (tmp_path / "fine.html").write_text(f"{icon}<p>short</p>")
    assert look.faults(tmp_path, start) == []
    wide = '<div style="width: 800px; height: 1px"></div><img src="gone.png">'
    (tmp_path / "broken.html").write_text(f"{icon}{wide}<script>boom()</script>")
    found = "\n".join(look.faults(tmp_path, start))
    assert "broken.html at 390: scrolls sideways" in found
    assert "broken.html at 1200: scrolls" not in found
    assert "missing picture" in found
    assert "boom is not defined" in found
    assert "fine.html" not in found


def test_the_reference_has_every_public_module() -> None:
    shown = {
        name
        for page in (DOCS / "reference").glob("*.md")
        for name in re.findall(r"(?m)^::: ([\w.]+)$", page.read_text())
    }
    integrations = import_module("normscope.integrations")
    names = [
        *(f"normscope.{m.name}" for m in pkgutil.iter_modules(normscope.__path__)),
        *(f"normscope.integrations.{m.name}" for m in pkgutil.iter_modules(integrations.__path__)),
        "normscope_paper.harness",
        "normscope_paper.simulation",
    ]
    inside = {"normscope.integrations", "normscope.integrations.module_outputs"}
    elsewhere = {"normscope.simulation"}  # another name of the last
    public = {name for name in names if not name.split(".")[1].startswith("_")}
    assert shown == public - inside - elsewhere


def test_the_reference_has_every_command() -> None:
    page = (DOCS / "reference/commands.md").read_text()
    assert set(re.findall(r"(?m)^::: normscope (\w+)$", page)) == COMMANDS.keys()


def test_every_page_is_in_the_navigation_and_is_there() -> None:
    named = re.findall(r"[\w/-]+\.md", (ROOT / "mkdocs.yml").read_text())
    assert sorted(named) == sorted(page.relative_to(DOCS).as_posix() for page in PAGES)


def test_the_gallery_has_every_example() -> None:
    shown = re.findall(r"(?m)^::: examples/(\w+\.py)$", (DOCS / "gallery.md").read_text())
    assert sorted(shown) == sorted(path.name for path in (ROOT / "examples").glob("*.py"))
