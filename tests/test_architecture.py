"""Who may import whom, and what `import normscope` may load."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import normscope

SOURCE = Path(normscope.__file__).parent
# small, and open to all
PRIVATE = {"_checks", "_environment", "_files", "_kernels", "_sphere", "_threads"}
EVALUATED = {"evaluation", "engine"}

# folder -> the other folders of ours that it may import
MAY_IMPORT: dict[str, set[str]] = {
    "theory": set(),
    "interventions": set(),
    "losses": set(),
    "augment": set(),
    "nets": set(),
    "data": set(),
    "evaluation": set(),
    "monitors": {"theory"},
    "methods": {"losses", "nets"},
    "simulation": {"theory", "losses", "interventions"},
    "engine": {"methods", "interventions", "nets", "data", "augment", "monitors", "evaluation"},
    "report": EVALUATED,
    "scoring": {"evaluation"},
    "integrations": {"interventions", "monitors", "theory", "evaluation"},
    "cli": {"experiments", "engine", "report", "data", "scoring"},
}
MAY_IMPORT["experiments"] = set(MAY_IMPORT) - {"cli", "integrations"}
FILES = sorted(SOURCE.rglob("*.py"))


def folder_of(path: Path) -> str:
    """The first part of a module's name below normscope."""
    return path.relative_to(SOURCE).with_suffix("").parts[0]


def imported_folders(path: Path) -> Iterator[str]:
    """The folders of ours that a file imports, at its top or anywhere below."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            package, *rest = name.split(".")
            if package == "normscope":
                yield rest[0] if rest else "normscope"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_keep_to_the_table(path: Path) -> None:
    folder = folder_of(path)
    if folder == "__init__":
        return  # the front door names what is public
    allowed = MAY_IMPORT.get(folder, set()) | PRIVATE | {folder}
    assert folder in MAY_IMPORT or folder in PRIVATE, f"{folder} is not in the table"
    assert set(imported_folders(path)) <= allowed


def test_private_modules_import_nothing_of_ours() -> None:
    for name in PRIVATE:
        assert set(imported_folders(SOURCE / f"{name}.py")) == set()


def test_import_normscope_stays_light() -> None:
    heavy = "matplotlib sklearn scipy pandas lightning lightning_fabric PIL rich typer torchvision"
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
