"""The examples for Spark and Daft: each row's novelty is the one that this process finds."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from normscope.scoring import as_source, fit_trust

EXAMPLES = Path(__file__).parents[2] / "examples"
REASONS = {
    "pyspark": "not a development package: it takes 491 MB",
    "daft": "not a development package: it needs pyarrow below 26",
}


@pytest.mark.parametrize(("script", "package"), [("spark", "pyspark"), ("daft", "daft")])
def test_a_frame_has_the_novelty_that_one_process_finds(script: str, package: str) -> None:
    example = EXAMPLES / f"score_{script}.py"
    assert len(example.read_text().splitlines()) < 30
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed: {REASONS[package]}")
    done = subprocess.run([sys.executable, example], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    random = np.random.default_rng(0)
    reference = fit_trust(as_source(random.normal(2, 1, (2000, 16))))
    new = np.concatenate([random.normal(2, 1, (3, 16)), random.normal(-2, 1, (2, 16))])
    block = next(iter(as_source(new).blocks()))
    expected = reference.columns(block)["novelty"]
    found = re.findall(r"row (\d): ([0-9.]+) bits of novelty", done.stdout)
    assert found == [(str(i), f"{bits:.1f}") for i, bits in enumerate(expected)]
    assert (expected > 10).tolist() == [False] * 3 + [True] * 2
