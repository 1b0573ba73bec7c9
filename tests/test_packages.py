"""The wheel and the sdist: built by the real backend, small, and used outside the repository."""

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def test_sdist_is_small_and_has_what_the_wheel_is_built_from(built: Path) -> None:
    (path,) = built.glob("*.tar.gz")
    assert path.stat().st_size < 2_000_000
    with tarfile.open(path) as packed:
        names = {name.partition("/")[2] for name in packed.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "src/normscope/__init__.py"} <= names
    sources = {str(p.relative_to(ROOT)) for p in (ROOT / "src").rglob("*.py")}
    assert sources <= names
    assert not [name for name in names if name.startswith(("results", "runs", ".venv"))]


def test_wheel_has_both_packages_their_data_and_the_command(built: Path) -> None:
    (path,) = built.glob("*.whl")
    with zipfile.ZipFile(path) as packed:
        names = set(packed.namelist())
        (entry,) = (name for name in names if name.endswith("entry_points.txt"))
        assert "normscope = normscope._start:run" in packed.read(entry).decode()
    tracked = [p for p in (ROOT / "src").rglob("*") if p.is_file() and "__pycache__" not in p.parts]
    assert {str(p.relative_to(ROOT / "src")) for p in tracked} <= names
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {
        "normscope",
        "normscope_paper",
    }


def test_the_command_trains_from_the_wheel_alone(built: Path, tmp_path: Path) -> None:
    (path,) = built.glob("*.whl")
    installed = tmp_path / "installed"
    with zipfile.ZipFile(path) as packed:
        packed.extractall(installed)
    code = "import normscope; print(normscope.__file__, flush=True)\n"
    code += "from normscope._start import run; run()"
    words = ["train", "simclr", "--epochs", "1", "--device", "cpu", "--quiet", "--out", "run"]
    done = subprocess.run(
        [sys.executable, "-c", code, *words],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(installed))
    assert (tmp_path / "run" / "encoder.safetensors").exists()
