"""mkdocs hooks: the reference from the docstrings, formulas as MathML, which needs no script, and
the figures of results/.

A line `::: normscope.losses` in a page becomes every public name of that module, each with its
signature and docstring. That and the formulas happen before Markdown is read, so that it mistakes
neither the underscores of a formula nor the prompt of a doctest for markup.
"""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert  # pyright: ignore[reportMissingImports]
from mkdocs.structure.files import File, Files  # pyright: ignore[reportMissingImports]

_FIGURES = re.compile(r"\]\((?:\.\./)*results/figures/")  # also shown where no site is built

_CODE_OR_FORMULA = re.compile(r"```.*?```|`[^`\n]*`|\$([^$]+)\$", re.DOTALL)
_SECTION = re.compile(r"(?m)^(Args|Returns|Raises):\n((?:[ ]{4}.*\n?|\n)+)")
_DOCTEST = re.compile(r"(?m)^>>> .*\n?(?:^(?!\n).+\n?)*")
_ITEM = re.compile(r"(?m)^(\w+): ")


def on_files(files: Files, config: Any) -> Files:
    """The pages' files, and the figures of results/."""
    for path in (Path(config["docs_dir"]).parent / "results" / "figures").glob("*.png"):
        files.append(File.generated(config, f"figures/{path.name}", abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """The page with its reference written out, its formulas drawn, its figures found."""
    up = "../" * page.file.src_uri.count("/")
    markdown = _FIGURES.sub(f"]({up}figures/", markdown)
    markdown = re.sub(r"(?m)^::: ([\w.]+)$", lambda match: _module(match[1]), markdown)
    drawn = _CODE_OR_FORMULA.sub(
        lambda match: _formula(match[1]) if match[1] else match[0], markdown
    )
    if "$" in _CODE_OR_FORMULA.sub("", drawn):
        raise ValueError("a formula is not closed: a dollar sign is left outside code")
    return drawn


def _formula(latex: str) -> str:
    """MathML within a span, for Markdown takes a bare math element for a paragraph of its own."""
    return f"<span>{convert(' '.join(latex.split()))}</span>"


def _module(name: str) -> str:
    module = importlib.import_module(name)
    things = ((public, getattr(module, public)) for public in module.__all__)
    return "\n\n".join(_entry(public, thing) for public, thing in things if callable(thing))


def _entry(name: str, thing: Any) -> str:
    plain = isinstance(thing, type) and thing.__init__ is ValueError.__init__  # an error's is C's
    signature = "" if plain else str(inspect.signature(thing)).replace("torch.", "")
    signature = re.sub(r"(: |-> )(['\"])(.*?)\2", r"\1\3", signature)  # annotations are strings
    if len(name + signature) > 88:
        inner, arrow, result = signature[1:].rpartition(")")
        parts = re.split(r", (?![^\[(]*[\])])", inner)
        signature = "(\n    " + ",\n    ".join(parts) + ",\n" + arrow + result
    return f"### {name}\n\n```python\n{name}{signature}\n```\n\n{_docstring(thing)}"


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
