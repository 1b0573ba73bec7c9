"""The texts that `benchmarks/texts.py` draws."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
CODE = """
import json, texts
texts.SIZES.update(reference=400, known=100, novel=20)
(sets, labels), (again, _), (other, _) = (texts.texts(seed) for seed in (0, 0, 1))
told = {k: v.tolist() for k, v in labels.items()}
first = [texts.Writer(0).known(n)[0][0] for n in (1, 50)]
print(json.dumps([sets, told, sets == again, sets == other, sorted(texts.KINDS), first]))
"""


@pytest.fixture(scope="module")
def drawn() -> list:
    command = [sys.executable, "-W", "error", "-c", CODE]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=BENCHMARKS)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_seed_draws_the_same_texts_and_another_seed_others(drawn: list) -> None:
    assert drawn[2]
    assert not drawn[3]


def test_known_texts_are_not_in_the_reference_and_each_has_a_topic(drawn: list) -> None:
    sets, labels = drawn[:2]
    assert not set(sets["reference"]) & set(sets["known"])
    assert {k: len(v) for k, v in labels.items()} == {"reference": 400, "known": 100}
    assert set(labels["reference"]) == set(range(12))


def test_there_are_sixteen_kinds_of_novel_text_and_no_slot_is_left(drawn: list) -> None:
    sets, kinds = drawn[0], drawn[4]
    assert len(kinds) == 16
    for name, rows in sets.items():
        assert all(row.strip() for row in rows)
        if name not in ("novel_code", "novel_logs", "novel_markup"):
            assert not any(mark in row for row in rows for mark in "{}()")


def test_known_texts_are_not_in_the_order_in_which_they_were_drawn(drawn: list) -> None:
    alone, among_fifty = drawn[5]
    assert alone != among_fifty
