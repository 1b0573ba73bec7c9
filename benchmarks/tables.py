"""What every benchmark shares: its JSON, the table it prints, and the README made from all JSON."""

from __future__ import annotations

import ast
import json
import platform
import shlex
import sys
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

import normscope
from normscope._environment import hardware
from normscope._files import whole_file

HERE = Path(__file__).parent


@dataclass
class Table:
    """One benchmark's results, as printed and as stored."""

    title: str
    columns: list[str]
    rows: list[list[str]]
    notes: list[str]
    measured: dict[str, object]
    command: str = field(default_factory=lambda: command())
    hardware: str = field(default_factory=lambda: hardware(gpu=torch.cuda.is_available()))
    versions: dict[str, str] = field(default_factory=dict)

    def markdown(self) -> str:
        """The table with its title, command and conditions."""
        versions = ", ".join(f"{name} {v}" for name, v in self.versions.items())
        lines = [f"## {self.title}", "", f"`{self.command}`", "", f"{self.hardware}; {versions}."]
        lines += ["", "| " + " | ".join(self.columns) + " |", "|---" * len(self.columns) + "|"]
        lines += ["| " + " | ".join(row) + " |" for row in self.rows]
        if self.notes:
            lines += [""] + [f"- {note}" for note in self.notes]
        return "\n".join(lines)

    def save(self, name: str, folder: Path) -> None:
        """Print the table and store it."""
        print(self.markdown())
        self.store(name, folder)

    def store(self, name: str, folder: Path) -> None:
        """Write the table as JSON, and make the folder's README anew from all of them."""
        (folder / "results").mkdir(parents=True, exist_ok=True)
        _replace(folder / "results" / f"{name}.json", json.dumps(asdict(self), indent=1) + "\n")
        _replace(folder / "README.md", readme(folder))


def readme(folder: Path) -> str:
    """The text of README.md: what each script says it measures, and the results stored of it.

    A file whose name has `-earlier` in it holds a run, or code, that a later one has replaced.
    """
    parts = ["# Benchmarks\n\nMade from `results/*.json` by the scripts themselves; do not edit."]
    told: set[str] = set()
    for path in sorted((folder / "results").glob("*.json")):
        table = Table(**json.loads(path.read_text()))
        script = Path(table.command.split()[1]).name
        about = [] if script in told else [_what_it_measures(script)]
        if "-earlier" in path.stem:
            table.title += ", an earlier run"
            about = ["Replaced by a later run, or of code that is no more."]
        else:
            told.add(script)
        heading, _, rest = table.markdown().partition("\n\n")
        parts += [heading, *about, rest]
    return "\n\n".join(parts) + "\n"


def _what_it_measures(script: str) -> str:
    """The last paragraph of a script's description, in one line."""
    text = ast.get_docstring(ast.parse((HERE / script).read_text())) or ""
    return text.split("\n\n")[-1].replace("\n", " ")


def _replace(path: Path, text: str) -> None:
    """Write a file so that it is never seen half-written."""
    with whole_file(path) as partial:
        partial.write_text(text)


def installed(*names: str) -> dict[str, str]:
    """The versions of the packages that are installed, and of Python."""
    found = {"python": platform.python_version(), "normscope": normscope.__version__}
    for name in names:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def command() -> str:
    """The command line, but for where the results were put and earlier ones kept."""
    words = list(sys.argv)
    for option in ("--folder", "--name", "--kept"):
        if option in words:
            at = words.index(option)
            del words[at : at + 2]
    return "python " + shlex.join(["benchmarks/" + Path(words[0]).name, *words[1:]])
