"""Who may import whom, in both packages, and what `import normscope` may load."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

import normscope
import normscope_paper

SOURCE = Path(normscope.__file__).parent
PAPER = Path(normscope_paper.__file__).parent
# small, and open to all
PRIVATE = {
    *("_checks", "_environment", "_files", "_kernels", "_precision", "_sphere", "_threads"),
    "_typed",
}

# folder -> the other folders of ours that it may import
MAY_IMPORT: dict[str, set[str]] = {
    "theory": set(),
    "interventions": set(),
    "losses": set(),
    "augment": set(),
    "nets": set(),
    "data": set(),
    "evaluation": set(),
    "optim": set(),
    "confidence": {"evaluation"},
    "monitors": {"theory"},
    "methods": {"losses", "nets"},
    "engine": {
        *("methods", "interventions", "nets", "data", "augment", "monitors", "optim"),
        *("evaluation", "confidence"),
    },
    "report": {"evaluation", "engine", "scoring"},
    "scoring": {"confidence", "evaluation"},
    "integrations": {
        *("interventions", "monitors", "theory", "evaluation", "confidence", "optim"),
    },
    "cli": {"engine", "report", "data", "scoring"},
    "extend": set(),
}
# one import each, within the function that needs it
LAZY = {
    "confidence/embedding_trust.py": {"integrations"},
    "confidence/streams.py": {"scoring"},
}
FILES = sorted(SOURCE.rglob("*.py"))
# the front door, the console script's two, and the two doors to the reproduction
DOORS = {"__init__.py", "_start.py", "cli/__main__.py", "simulation.py", "cli/paper.py"}


def imports(path: Path, *, whole: bool = True) -> Iterator[tuple[str, str]]:
    """The modules that a file imports, at its top or anywhere below, and the names from each."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree) if whole else tree.body:
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield from ((node.module or "", alias.name) for alias in node.names)


def imported_folders(path: Path, *, whole: bool = True) -> set[str]:
    """The folders of normscope that a file imports, anywhere or, if not `whole`, at its top."""
    parts = (f"{module}.{name}".split(".") for module, name in imports(path, whole=whole))
    return {rest[0] for package, *rest in parts if package == "normscope"}


def name_of(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


@pytest.mark.parametrize("path", [p for p in FILES if name_of(p) not in DOORS], ids=name_of)
def test_imports_keep_to_the_table(path: Path) -> None:
    folder = Path(name_of(path)).with_suffix("").parts[0]
    others = PRIVATE if folder in PRIVATE else MAY_IMPORT[folder] | PRIVATE | {folder}
    lazy = LAZY.get(name_of(path), set())
    assert imported_folders(path) <= others | lazy
    assert not imported_folders(path, whole=False) & lazy


def test_the_library_reaches_the_reproduction_through_two_doors_alone() -> None:
    named = {name_of(path) for path in FILES if "normscope_paper" in path.read_text()}
    assert named == {"simulation.py", "cli/paper.py", "extend.py"}  # the last in its docstring
    assert "normscope_paper" not in {module for module, _ in imports(SOURCE / "extend.py")}


@pytest.mark.parametrize(
    "path", sorted(PAPER.rglob("*.py")), ids=lambda p: str(p.relative_to(PAPER))
)
def test_the_reproduction_uses_public_names_alone(path: Path) -> None:
    for module, name in imports(path):
        package, *rest = module.split(".")
        if package != "normscope":
            continue
        assert len(rest) <= 1, f"{module} is inside a public package"
        public = import_module(module).__all__
        # `from normscope import data` names a package, whose own names are public
        assert name in public or (not rest and not name.startswith("_")), f"{module}.{name}"


def test_import_normscope_stays_light() -> None:
    heavy = "matplotlib sklearn scipy pandas lightning lightning_fabric PIL rich typer torchvision"
    heavy += " normscope_paper"
    code = f"import normscope, sys; print(*(m for m in {heavy.split()} if m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_public_names_are_there() -> None:
    for name in normscope.__all__:
        assert hasattr(normscope, name)
    assert set(normscope.losses.__all__) >= {
        "info_nce",
        "negative_cosine",
        "triplet",
        "supervised_info_nce",
        "dino",
    }
    assert set(normscope.theory.__all__) >= {
        "cosine_grad",
        "info_nce_grad",
        "norm_after_step",
        "step_gain",
        "step_gain_bound",
        "opposite_halves_bound",
        "opposite_halves_probability",
    }


def test_the_citation_names_this_version() -> None:
    citation = (SOURCE.parents[1] / "CITATION.cff").read_text()
    assert f"\nversion: {normscope.__version__}\n" in citation
