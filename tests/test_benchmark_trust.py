"""`benchmarks/trust.py`, on a few rows."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

SCRIPT = Path(__file__).parents[1] / "benchmarks/trust.py"


def run(*command: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *map(str, command)], capture_output=True, text=True, check=False
    )


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    """Two topics by direction, with one new direction and one kind like the reference."""
    random = np.random.default_rng(0)

    def rows(n: int, *, shift: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
        labels = random.integers(2, size=n)
        centre = np.array([[2.0, 0, 4, shift], [0, 2, 4, shift]])[labels]
        return (centre + random.normal(size=(n, 4))).astype(np.float32), labels

    arrays = {}
    for name, n in (("reference", 300), ("known", 200)):
        arrays[name], arrays[f"{name}_labels"] = rows(n)
    arrays["novel_same"], arrays["novel_other"] = rows(100)[0], rows(100, shift=-6)[0]
    for name in ("reference", "known", "novel_same", "novel_other"):
        arrays[f"{name}_length"] = random.integers(10, 200, len(arrays[name]))
    np.savez(tmp_path / "few.npz", **arrays)
    return tmp_path / "few.npz"


def test_trust_tells_what_is_new_and_what_is_not(texts: Path, tmp_path: Path) -> None:
    pytest.importorskip("cleanlab", reason="needs the extra bench")
    done = run(SCRIPT, "--texts", texts, "--splits", 2, "--draws", 5, "--folder", tmp_path)
    assert done.returncode == 0, done.stderr
    stored = json.loads((tmp_path / "results/trust-few.json").read_text())
    measured = stored["measured"]
    for name, kinds in measured["auroc"].items():
        assert 0.4 < kinds["same"] < 0.6, name
    for name in ("neighbours", "delivered", "delivered, known bad", "cleanlab"):
        assert measured["auroc"][name]["other"] > 0.9, name
    assert measured["right"]["delivered"] > 0.7
    assert len(measured["shares"]) == 2
    for value, low, high in measured["said"].values():
        assert low <= high
        assert -1 <= value <= 1
    assert [row[0] for row in stored["rows"]][:3] == ["same", "other", "**mean**"]


@pytest.mark.parametrize("options", [["--texts", "none.npz"], ["--run", "none"]])
def test_trust_refuses_what_is_not_there(options: list[str], tmp_path: Path) -> None:
    done = run(SCRIPT, *options, "--folder", tmp_path)
    assert done.returncode == 2
    assert "must exist" in done.stderr.splitlines()[-1]
    assert not list(tmp_path.iterdir())
