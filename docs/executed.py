"""Runs the code of the pages, and keeps what it printed and drew.

    python docs/executed.py docs/your-images.md     # one page, without the cache

Blocks of a page run in order, in one temporary folder per page that begins with copies of
`examples/` and `results/`:

- `python` blocks run in one namespace;
- `pycon` blocks are doctests in the same namespace;
- `console` blocks are commands behind `$ `, each in a shell of its own;
- a line `::: examples/NAME.py` is that script, in a process and a folder of its own.

A comment `<!-- not run: REASON. -->` on the line before a block keeps it from running, and the
reader is told the reason. Blocks of other languages are text. A block that fails stops the build
with its page and line. What a page printed is kept in `.executed/` for as long as neither it nor
the library changes.
"""

from __future__ import annotations

import contextlib
import doctest
import hashlib
import html
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import traceback
import types
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
KEPT = ROOT / ".executed"
PICTURES = {".png", ".svg", ".jpg"}
SECONDS = 600  # of a command

_BLOCK = re.compile(
    r"(?:^<!-- not run: (?P<reason>[^\n]*?) -->\n+)?"
    r"(?:^```(?P<kind>python|pycon|console)\n(?P<code>.*?)^```$"
    r"|^::: (?P<script>examples/\w+\.py)$)",
    re.DOTALL | re.MULTILINE,
)
_LINK = re.compile(r"\]\((?!https?:|#|mailto:)([^)#\s]+)")


class BlockError(Exception):
    """A block failed; the message has its page, its line and the reason."""


@dataclass(frozen=True)
class Block:
    """A block of code on a page."""

    kind: str  # python, pycon, console or script
    code: str
    line: int  # of its first line, from 1
    start: int
    end: int
    reason: str | None  # why it is not run
    script: str = ""


@dataclass(frozen=True)
class Output:
    """What a block, or each command of it, printed, and the pictures that it drew."""

    texts: list[str]
    pictures: list[str]


@dataclass(frozen=True)
class Executed:
    """A page's outputs, one for each block that ran, and the files that it shows or links to."""

    outputs: list[Output]
    files: dict[str, Path]  # as the page names them


def blocks_of(text: str, root: Path = ROOT) -> list[Block]:
    """The blocks of a page's Markdown, in order."""
    found = []
    for match in _BLOCK.finditer(text):
        script = match["script"] or ""
        where = match.start("script") if script else match.start("code")
        found.append(
            Block(
                kind=match["kind"] or "script",
                code=(root / script).read_text() if script else match["code"],
                line=text.count("\n", 0, where) + 1,
                start=match.start(),
                end=match.end(),
                reason=match["reason"],
                script=script,
            )
        )
    return found


def executed(page: Path, *, root: Path = ROOT, kept: Path = KEPT) -> Executed:
    """A page's outputs, from an earlier build if nothing has changed since."""
    text = page.read_text()
    if all(block.reason for block in blocks_of(text, root)):
        return Executed([], {})
    folder = kept / f"{page.stem}-{_state(page, root)}"
    if not (folder / "outputs.json").exists():
        for old in kept.glob(f"{page.stem}-" + "?" * 12):
            shutil.rmtree(old)
        with tempfile.TemporaryDirectory() as work:
            _run_elsewhere(page, Path(work), root)
            _keep(text, Path(work), folder)
    stored = json.loads((folder / "outputs.json").read_text())
    outputs = [Output(**output) for output in stored["outputs"]]
    return Executed(outputs, {name: folder / flat for name, flat in stored["files"].items()})


def all_executed(pages: list[Path]) -> dict[Path, Executed]:
    """Several pages, as many at a time as there are cores."""
    with ThreadPoolExecutor(max(1, min(4, os.cpu_count() or 1))) as pool:
        return dict(zip(pages, pool.map(executed, pages), strict=True))


def shown(text: str, found: Executed, place: Callable[[str], str], root: Path = ROOT) -> str:
    """The page's Markdown with outputs and pictures behind its blocks.

    Args:
        text: the page's Markdown.
        found: what its blocks left.
        place: the link to a file of `found`, by its name.
        root: where scripts are.
    """
    outputs, parts, at = iter(found.outputs), [], 0
    for block in blocks_of(text, root):
        parts += [_linked(text[at : block.start], found, place)]
        if block.reason:
            parts += [_fenced(block), f"\n*Not run when this page was built: {block.reason}*\n"]
        else:
            output = next(outputs)
            parts += [_with_output(block, output)]
            parts += [f"\n![{_words(name)}]({place(name)})\n" for name in output.pictures]
        at = block.end
    return "".join([*parts, _linked(text[at:], found, place)])


def run_page(page: Path, work: Path, root: Path = ROOT) -> list[Output]:
    """Run a page's blocks within this process, in the folder `work`."""
    module = types.ModuleType("page")
    sys.modules["page"] = module  # where dataclasses and pickle look for what a page defines
    for name in ("examples", "results"):
        if (root / name).is_dir():
            shutil.copytree(root / name, work / name)
    os.chdir(work)
    outputs = []
    for block in blocks_of(page.read_text(), root):
        if not block.reason:
            before = _pictures(work)
            texts = [t.replace(str(work), "...") for t in _RUN[block.kind](block, page, module)]
            new = [name for name, made in _pictures(work).items() if before.get(name) != made]
            outputs.append(Output(texts, new))
    return outputs


def _python(block: Block, page: Path, module: types.ModuleType) -> Iterator[str]:
    printed, errors = io.StringIO(), io.StringIO()
    code = "\n" * (block.line - 1) + block.code  # so that tracebacks name the page's lines
    try:
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(errors):
            exec(compile(code, str(page), "exec"), module.__dict__)
    except (Exception, SystemExit) as error:
        last = traceback.extract_tb(error.__traceback__)
        line = next((f.lineno for f in reversed(last) if f.filename == str(page)), block.line)
        said = "".join(traceback.format_exception_only(error)) + errors.getvalue()[-2000:]
        raise BlockError(f"{page}:{line}: {said}") from error
    yield printed.getvalue()


def _pycon(block: Block, page: Path, module: types.ModuleType) -> Iterator[str]:
    test = doctest.DocTestParser().get_doctest(
        block.code, module.__dict__, page.name, str(page), block.line - 1
    )
    said: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    runner.run(test, out=said.append, clear_globs=False)
    if said:
        raise BlockError(f"{page}:{block.line}: {''.join(said)}")
    yield ""


def _console(block: Block, page: Path, module: types.ModuleType) -> Iterator[str]:
    del module
    for line, command in commands_of(block, page):
        yield _process(["bash", "-c", f"set -o pipefail; {command}"], f"{page}:{line}", Path.cwd())


def _script(block: Block, page: Path, module: types.ModuleType) -> Iterator[str]:
    del module
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, str(Path.cwd() / block.script)]
        yield _process(command, f"{page}:{block.line}", Path(folder), own=True)
        for name in _pictures(Path(folder)):
            shutil.move(Path(folder) / name, Path.cwd() / name)


_RUN = {"python": _python, "pycon": _pycon, "console": _console, "script": _script}


def commands_of(block: Block, page: Path) -> Iterator[tuple[int, str]]:
    """The commands of a console block, each with its line on the page."""
    lines = block.code.splitlines()
    at = 0
    while at < len(lines):
        if not lines[at].startswith("$ "):
            raise BlockError(f"{page}:{block.line + at}: a console block has commands behind `$ `")
        first, command = at, lines[at][2:]
        while lines[at].endswith("\\"):
            at += 1
            command += "\n" + lines[at]
        yield block.line + first, command
        at += 1


def _process(command: list[str], where: str, folder: Path, *, own: bool = False) -> str:
    """What a command prints; if it is a script of its `own`, without what it says as errors."""
    errors = subprocess.PIPE if own else subprocess.STDOUT
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=errors,
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise BlockError(f"{where}: {command[-1]} took over {SECONDS} s") from error
    if done.returncode:
        said = (done.stdout + (done.stderr or ""))[-4000:]
        raise BlockError(f"{where}: {command[-1]} exited with {done.returncode}\n{said}")
    return done.stdout


def _run_elsewhere(page: Path, work: Path, root: Path) -> None:
    """Run a page in a process of its own, with one thread: pages run beside each other."""
    usual = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "RAY_USAGE_STATS_ENABLED": "0"}
    usual |= {"MPLBACKEND": "Agg", "HF_HUB_OFFLINE": "1", "COLUMNS": "100", "NO_COLOR": "1"}
    usual |= {"PYTHONHASHSEED": "0", "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16"}
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    code = os.pathsep.join([str(root / "src"), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, __file__, str(page), str(work), str(root)],
        env={**usual, **os.environ, "PATH": path, "PYTHONPATH": code},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise BlockError(done.stderr.strip()[-6000:])


def _keep(text: str, work: Path, folder: Path) -> None:
    """Move a page's outputs, and the files that it shows or links to, out of its folder."""
    outputs = json.loads((work / "outputs.json").read_text())
    named = {name for name in _LINK.findall(text) if (work / name).is_file()}
    for output in outputs:  # a picture that the page itself shows is not shown twice
        output["pictures"] = [name for name in output["pictures"] if name not in named]
    names = [*sorted(named), *(name for output in outputs for name in output["pictures"])]
    files = {name: name.replace("/", "-") for name in names}
    partial = folder.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    for name, flat in files.items():
        shutil.copy(work / name, partial / flat)
    (partial / "outputs.json").write_text(json.dumps({"outputs": outputs, "files": files}))
    partial.rename(folder)


def _linked(text: str, found: Executed, place: Callable[[str], str]) -> str:
    """The text with links to the page's own files pointing to where they are."""

    def where(match: re.Match[str]) -> str:
        return f"]({place(match[1])}" if match[1] in found.files else match[0]

    return _LINK.sub(where, text)


def _fenced(block: Block) -> str:
    language = "python" if block.kind == "script" else block.kind
    return f"```{language}\n{block.code}```\n"


def _with_output(block: Block, output: Output) -> str:
    if block.kind == "console":
        pairs = zip(commands_of(block, Path()), output.texts, strict=True)
        return "".join(
            f"```console\n$ {command}\n```\n{_printed(printed)}" for (_, command), printed in pairs
        )
    return _fenced(block) + "".join(map(_printed, output.texts))


def _printed(text: str) -> str:
    lines = [line.rsplit("\r", 1)[-1].rstrip() for line in text.splitlines()]
    body = html.escape("\n".join(lines).strip("\n"))
    return f'\n<pre class="printed"><code>{body}</code></pre>\n\n' if body else "\n"


def _pictures(folder: Path) -> dict[str, int]:
    """The pictures that lie in a folder, oldest first, each with when it was written."""
    found = [path for path in folder.iterdir() if path.suffix in PICTURES]
    made = {path.name: path.stat().st_mtime_ns for path in found}
    return dict(sorted(made.items(), key=lambda item: item[1]))


def _words(name: str) -> str:
    return Path(name).stem.replace("_", " ").replace("-", " ")


def _state(page: Path, root: Path) -> str:
    """A name for the page's text and all that its code may read."""
    state = hashlib.sha256(page.read_bytes() + Path(__file__).read_bytes())
    state.update(_library(root))
    return state.hexdigest()[:12]


@cache
def _library(root: Path) -> bytes:
    state = hashlib.sha256()
    scripts = [*(root / "src").rglob("*.py"), *(root / "examples").glob("*.py")]
    for path in sorted(scripts):
        state.update(path.relative_to(root).as_posix().encode() + path.read_bytes())
    return state.digest()


def _main() -> None:
    page, *rest = map(Path, sys.argv[1:])
    page = page.resolve()
    try:
        if rest:
            work, root = rest
            outputs = [asdict(output) for output in run_page(page, work, root)]
            (work / "outputs.json").write_text(json.dumps(outputs))
        else:
            with tempfile.TemporaryDirectory() as kept:
                found = executed(page, kept=Path(kept))
                print(shown(page.read_text(), found, lambda name: name))
    except BlockError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    _main()
