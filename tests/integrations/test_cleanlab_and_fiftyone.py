"""Novelty in cleanlab's Datalab and as FiftyOne's fields."""

import re
import runpy
from pathlib import Path

import numpy as np
import pytest

import normscope as ns

ROOT = Path(__file__).parents[2]


@pytest.fixture
def trust() -> ns.EmbeddingTrust:
    rows = np.random.default_rng(0).normal(3, 1, (120, 6))
    return ns.EmbeddingTrust.fit(rows, labels=(rows[:, 0] > 3).astype(int))


@pytest.fixture
def rows() -> np.ndarray:
    """Thirty rows like the reference's, of which three are far off and one is zero."""
    found = np.random.default_rng(1).normal(3, 1, (30, 6))
    found[[4, 9, 20]] *= -1
    found[7] = 0
    return found


def test_datalab_finds_rows_that_are_new_or_can_not_be_judged(trust, rows) -> None:
    pytest.importorskip("cleanlab", reason="needs the extra cleanlab")
    from cleanlab import Datalab

    import normscope.integrations.cleanlab

    assert normscope.integrations.cleanlab.Novelty.issue_name == "novelty"
    lab = Datalab({"row": [*range(30)]}, verbosity=0)
    lab.find_issues(issue_types={"novelty": {"trust": trust, "features": rows, "alpha": 0.02}})
    issues, said = lab.get_issues("novelty"), trust.explain(rows)
    assert {4, 7, 9, 20} <= set(issues.index[issues["is_novelty_issue"]])
    assert issues["is_novelty_issue"].sum() < 8
    assert issues["novelty_score"][7] == 0
    judged = np.arange(30) != 7
    assert np.array_equal(issues["novelty_score"][judged], said.p_value[judged])
    info = lab.get_info("novelty")
    assert np.array_equal(info["nearest"], said.nearest)
    assert np.array_equal(info["confidence"], said.confidence, equal_nan=True)
    for arguments, message in (
        ({"features": rows}, "trust must be a fitted EmbeddingTrust, got None"),
        ({"trust": trust, "features": rows, "alpha": 1.5}, "alpha must be between 0 and 1"),
        ({"trust": trust, "features": rows[:5]}, "a row for each of 30 examples, got 5"),
    ):
        manager = normscope.integrations.cleanlab.Novelty
        with pytest.raises(ValueError, match=message):
            manager(lab, **arguments).find_issues(**arguments)


def test_the_datalab_example_is_short_and_finds_the_noise(capsys) -> None:
    pytest.importorskip("cleanlab", reason="needs the extra cleanlab")
    script = ROOT / "examples/datalab_novelty.py"
    assert len(script.read_text().splitlines()) < 30
    runpy.run_path(str(script))
    said = capsys.readouterr().out
    found = {int(i) for i in re.findall(r"\d+", said.splitlines()[-1])}
    assert set(range(10)) <= found
    assert len(found) < 30
    assert "novelty issues" in said


@pytest.mark.filterwarnings("ignore")  # its own, on deprecations in what it imports
def test_fields_of_fiftyone_samples_are_what_trust_explains(trust, rows) -> None:
    fiftyone = pytest.importorskip("fiftyone", reason="needs fiftyone")
    from normscope.integrations.fiftyone import write_fields

    samples = [fiftyone.Sample(filepath=f"{i}.png") for i in range(30)]
    names = write_fields(samples, trust, rows, prefix="ns_")
    said = trust.explain(rows)
    assert {"ns_novelty", "ns_p_value", "ns_confidence", "ns_norm", "ns_nearest"} <= {*names}
    assert samples[7]["ns_novelty"] is None
    for i in (4, 5):
        assert samples[i]["ns_novelty"] == said.novelty[i]
        assert samples[i]["ns_speaks"] == (said.speaks[i] or None)
        assert samples[i]["ns_norm"] == pytest.approx(np.linalg.norm(rows[i]), rel=1e-5)
    with pytest.raises(ValueError, match="z must be one row for each of 29 samples, got 30"):
        write_fields(samples[1:], trust, rows)
