"""mkdocs hooks: executed pages, the reference from docstrings and `--help`, formulas as MathML,
which needs no script, and the figures of results/.

A line of a page becomes

- `::: normscope.losses`: that module's docstring, and each public name with its signature,
  docstring and, of a class, its methods;
- `::: normscope train`: what that command's `--help` prints;
- `::: examples/plain_loop.py`: that script with what it printed and drew (`executed.py`);
- `::: what holds`: the paper's statements with their verdicts, from the stored results;
- `::: all results`: RESULTS.md, with its links where the site has them.

All of it happens before Markdown is read, so that it mistakes neither the underscores of a formula
nor the prompt of a doctest for markup.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import io
import re
import sys
from collections.abc import Iterator
from enum import Enum
from functools import cache
from pathlib import Path
from types import GenericAlias
from typing import Any

from latex2mathml.converter import convert  # pyright: ignore[reportMissingImports]
from mkdocs.exceptions import PluginError  # pyright: ignore[reportMissingImports]
from mkdocs.structure.files import File, Files  # pyright: ignore[reportMissingImports]

from normscope.cli import app
from normscope_paper.harness.summary import Judged, claims_of, statements_table, stored_results

sys.path.insert(0, str(Path(__file__).parent))

import executed

_FIGURES = re.compile(r"\]\((?:\.\./)*results/figures/")  # also shown where no site is built

_CODE_OR_FORMULA = re.compile(r"```.*?```|<pre.*?</pre>|`[^`\n]*`|\$([^$]+)\$", re.DOTALL)
_SECTION = re.compile(r"(?m)^(Args|Returns|Raises|Attributes):\n((?:[ ]{4}.*\n?|\n)+)")
_DOCTEST = re.compile(r"(?m)^>>> .*\n?(?:^(?!\n).+\n?)*")
_ITEM = re.compile(r"(?m)^(\w+): ")
_PACKAGES = ("normscope", "normscope_paper")

_RESULTS = Path(__file__).parents[1] / "results"

_found: dict[str, executed.Executed] = {}  # by the page's path below docs/


def on_files(files: Files, config: Any) -> Files:
    """The pages' files, the figures of results/, and what the pages' code wrote."""
    root = Path(config["docs_dir"]).parent
    for path in (root / "results" / "figures").glob("*.png"):
        files.append(File.generated(config, f"figures/{path.name}", abs_src_path=str(path)))
    pages = {page.src_uri: Path(str(page.abs_src_path)) for page in files.documentation_pages()}
    try:
        ran = executed.all_executed(list(pages.values()))
    except executed.BlockError as error:
        raise PluginError(str(error)) from error
    for uri, path in pages.items():
        _found[uri] = ran[path]
        for flat in {file.name: file for file in ran[path].files.values()}.values():
            place = f"{uri.removesuffix('.md')}/{flat.name}"
            files.append(File.generated(config, place, abs_src_path=str(flat)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """The page with its reference written out, its formulas drawn, its outputs shown."""
    uri = page.file.src_uri
    found, name, up = _found[uri], Path(uri).stem, "../" * uri.count("/")
    markdown = executed.shown(markdown, found, lambda file: f"{name}/{found.files[file].name}")
    markdown = markdown.replace("::: what holds\n", _statements())
    markdown = markdown.replace("::: all results\n", _results())
    markdown = _FIGURES.sub(f"]({up}figures/", markdown)
    markdown = re.sub(r"(?m)^::: normscope (\w+(?: \w+)?)$", lambda m: _command(m[1]), markdown)
    markdown = re.sub(r"(?m)^::: ([\w.]+)$", lambda match: _module(match[1]), markdown)
    drawn = _CODE_OR_FORMULA.sub(
        lambda match: _formula(match[1]) if match[1] else match[0], markdown
    )
    if "$" in _CODE_OR_FORMULA.sub("", drawn):
        raise PluginError(f"{uri}: a formula is not closed: a dollar sign is left outside code")
    return drawn


@cache
def _statements() -> str:
    judged = [Judged(results, claims_of(results)) for results in stored_results(_RESULTS)]
    return statements_table(judged, "all-results.md") + "\n"


@cache
def _results() -> str:
    """RESULTS.md without its heading and its links to code, which the site does not have."""
    text = (_RESULTS / "RESULTS.md").read_text().partition("\n")[2]
    text = re.sub(r"\[(`\w+`)\]\(\.\./src/[^)]+\)", r"\1", text)
    return text.replace("](figures/", "](results/figures/")


def _formula(latex: str) -> str:
    """MathML within a span, for Markdown takes a bare math element for a paragraph of its own."""
    return f"<span>{convert(' '.join(latex.split()))}</span>"


def _module(name: str) -> str:
    """A module's docstring and its public names."""
    module = importlib.import_module(name)
    things = [_entry(public, getattr(module, public)) for public in module.__all__]
    return "\n\n".join([f"`import {name}`", _docstring(module), *things])


def _entry(name: str, thing: Any) -> str:
    if not callable(thing) or isinstance(thing, GenericAlias):
        return f"### {name}\n\n{_constant(thing)}"
    methods = _methods(thing) if isinstance(thing, type) else ()
    parts = [_signed(name, thing), *(_signed(of, what, level=4) for of, what in methods)]
    return "\n\n".join([f"### {name}", *parts])


def _signed(name: str, thing: Any, *, level: int = 0) -> str:
    """A name with its signature and docstring, with a heading if it has a level."""
    heading = f"{'#' * level} {name}\n\n" if level else ""
    if isinstance(thing, property):
        return f"{heading}A property. {_docstring(thing)}"
    signature = _signature(thing)
    if signature is None:
        return f"{heading}```python\nclass {name}\n```\n\n{_docstring(thing)}"
    signature = re.sub(r"(: |-> )(['\"])(.*?)\2", r"\1\3", signature)  # annotations are strings
    signature = re.sub(r"<(?:function|class|factory)[^>]*>", "...", signature)
    signature = re.sub(r" = <object object at 0x\w+>", "", signature)
    signature = re.sub(r"\(self(?:, )?", "(", signature)
    if len(name + signature) > 80:
        inner, arrow, result = signature[1:].rpartition(")")
        parts = re.split(r", (?![^\[(]*[\])])", inner)
        signature = "(\n    " + ",\n    ".join(parts) + ",\n" + arrow + result
    return f"{heading}```python\n{name}{signature}\n```\n\n{_docstring(thing)}"


def _signature(thing: Any) -> str | None:
    """How it is called; None for a class that is built otherwise, such as by its `fit`."""
    if isinstance(thing, type) and issubclass(thing, Enum | Exception):
        return None
    found = inspect.signature(thing)
    if isinstance(thing, type):
        if any(name.startswith("_") for name in found.parameters):
            return None
        found = found.replace(return_annotation=inspect.Signature.empty)
    return str(found).replace("torch.", "")


def _methods(cls: type) -> Iterator[tuple[str, Any]]:
    """The public methods and properties of a class that it or a base of ours defines."""
    seen = set()
    for base in cls.__mro__:
        if base.__module__.partition(".")[0] not in _PACKAGES:
            continue
        for name, thing in vars(base).items():
            thing = thing.__func__ if isinstance(thing, classmethod | staticmethod) else thing
            if name.startswith("_") or name in seen or not getattr(thing, "__doc__", None):
                continue
            if inspect.isfunction(thing) or isinstance(thing, property):
                seen.add(name)
                yield f"{cls.__name__}.{name}", getattr(cls, name)


def _constant(thing: Any) -> str:
    """A registry by its names, another constant by its value."""
    if isinstance(thing, dict):
        return "A registry: " + ", ".join(f"`{key}`" for key in thing) + "."
    if isinstance(thing, str | int | float | tuple | frozenset | GenericAlias):
        return f"`{thing!r}`"
    return f"A `{type(thing).__name__}`."


def _docstring(thing: Any) -> str:
    """A docstring of this library as Markdown: sections as lists, doctests as code."""
    text = inspect.getdoc(thing) or ""
    text = _SECTION.sub(lambda match: f"**{match[1]}**\n\n{_items(match[2])}\n", text + "\n")
    return _DOCTEST.sub(lambda match: f"```pycon\n{match[0].rstrip()}\n```\n", text)


def _items(block: str) -> str:
    """The entries of a section; what belongs to no name is one entry."""
    lines = inspect.cleandoc(block)
    if not _ITEM.search(lines):
        return f"- {' '.join(lines.split())}\n"
    parts = _ITEM.split(lines)[1:]
    pairs = zip(parts[::2], parts[1::2], strict=True)
    return "".join(f"- `{name}`: {' '.join(what.split())}\n" for name, what in pairs)


def _command(name: str) -> str:
    """What `normscope NAME --help` prints."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        words = [*name.split(), "--help"]
        app(words, prog_name="normscope", standalone_mode=False, terminal_width=100)
    return f"```text\n{printed.getvalue().strip()}\n```"
