"""Claims, intervals and files."""

import json
import math
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest, t

from normscope import _environment
from normscope_paper.harness import Claim, Results, stored_results
from normscope_paper.harness.intervals import mean_interval, share_interval
from normscope_paper.harness.results import Made, Provenance
from normscope_paper.harness.summary import EarlierVersion, made_by

MADE = Provenance(command="x", hardware="y", seconds=1.0, versions={})


def claim(interval: tuple[float, float], region: tuple[float, float]) -> Claim:
    return Claim("x", "1", sum(interval) / 2, interval, region, "text")


@pytest.mark.parametrize(
    ("interval", "region", "verdict"),
    [
        ((1.0, 2.0), (0.0, 3.0), "reproduced"),
        ((1.0, 2.0), (1.0, 2.0), "reproduced"),
        ((1.0, 2.0), (1.5, 3.0), "inconclusive"),
        ((0.0, 9.0), (1.5, 3.0), "inconclusive"),
        ((1.0, 2.0), (2.1, 3.0), "not reproduced"),
        ((1.0, 2.0), (-math.inf, 0.9), "not reproduced"),
        ((2.0, 2.0), (2.0, 2.0), "reproduced"),
    ],
)
def test_verdict_follows_from_interval_and_region(interval, region, verdict: str) -> None:
    assert claim(interval, region).verdict == verdict


def test_a_claim_that_cannot_be_judged_is_refused() -> None:
    for interval in ((math.nan, 1.0), (2.0, 1.0)):
        with pytest.raises(ValueError, match="interval must be two numbers in order"):
            claim(interval, (0.0, 1.0))


def test_mean_interval_equals_scipys() -> None:
    values = [1.0, 3.0, 2.5, 7.0, 4.0, 4.5, 1.5]
    mean, interval = mean_interval(values)
    spread = (sum((v - mean) ** 2 for v in values) / 6 / 7) ** 0.5
    assert interval == pytest.approx(t.interval(0.95, 6, loc=mean, scale=spread), rel=1e-3)
    with pytest.raises(ValueError, match="values must be at least two"):
        mean_interval([1.0])


@given(st.integers(1, 200), st.integers(0, 200))
def test_share_interval_equals_scipys_wilson(cases: int, hits: int) -> None:
    hits = min(hits, cases)
    share, interval = share_interval(hits, cases)
    expected = binomtest(hits, cases).proportion_ci(method="wilson")
    assert share == hits / cases
    assert interval == pytest.approx((expected.low, expected.high), abs=1e-9)


def test_results_survive_a_round_trip_and_refuse_nan(tmp_path: Path) -> None:
    results = Results("fig1", "smoke", 2, 0, {"a": [1.5, 2]}, MADE)
    assert Results.load(results.save(tmp_path)) == results
    before = (tmp_path / "fig1.smoke.json").read_text()
    with pytest.raises(ValueError, match="JSON"):
        Results("fig1", "smoke", 2, 0, {"a": math.nan}).save(tmp_path)
    assert (tmp_path / "fig1.smoke.json").read_text() == before


@pytest.mark.parametrize("text", ["{bad", '{"foo": 1}', "[]", '{"experiment": "fig1"}'])
def test_a_foreign_file_is_refused_by_name(tmp_path: Path, text: str) -> None:
    path = tmp_path / "fig1.smoke.json"
    path.write_text(text)
    with pytest.raises(
        ValueError, match=r"fig1\.smoke\.json must be a file that `reproduce` wrote"
    ):
        Results.load(path)


def test_an_interval_has_possible_values_alone() -> None:
    options = {"paper": "", "recipe": "text", "possible": (0.0, 1.0)}
    claim = Claim.over_seeds("x", [0.2, 0.9], (0.0, 1.0), **options)
    assert claim.interval == (0, 1)
    assert claim.verdict == "reproduced"


@pytest.mark.parametrize("lost", ["hardware", "seconds", "versions"])
def test_results_that_lost_their_provenance_are_refused_by_name(tmp_path: Path, lost: str) -> None:
    path = Results("fig1", "smoke", 2, 0, {"a": 1}, MADE).save(tmp_path)
    stored = json.loads(path.read_text())
    del stored["provenance"][lost]
    path.write_text(json.dumps(stored))
    with pytest.raises(ValueError, match=r"fig1\.smoke\.json must be a file that"):
        Results.load(path)


def test_results_under_another_name_are_refused(tmp_path: Path) -> None:
    path = Results("fig1", "smoke", 2, 0, {"a": 1}, MADE).save(tmp_path)
    path.rename(tmp_path / "density.smoke.json")
    with pytest.raises(ValueError, match=r"density\.smoke\.json must be results of that name"):
        stored_results(tmp_path)


def test_a_joint_claim_is_decided_by_its_worst_member() -> None:
    columns = [[1.0, 1.1, 0.9], [-0.5, -0.4, -0.6], [5.0, -5.0, 0.3]]
    options = {"paper": "> 0", "recipe": "text"}
    good = Claim.jointly("x", columns[:1], (0.0, math.inf), worst="smallest", **options)
    bad = Claim.jointly("x", columns[:2], (0.0, math.inf), worst="smallest", **options)
    # a wide member does not hide that another is surely below
    still_bad = Claim.jointly("x", columns, (0.0, math.inf), worst="smallest", **options)
    verdicts = [good.verdict, bad.verdict, still_bad.verdict]
    assert verdicts == ["reproduced", "not reproduced", "not reproduced"]


def test_provenance_can_be_told_from_a_source_tree(monkeypatch) -> None:
    def missing(package: str) -> str:
        raise PackageNotFoundError(package)

    monkeypatch.setattr(_environment, "version", missing)
    made = Provenance.of("x", 1.0, gpu=False, runs={})
    assert made.versions["normscope"].startswith("from source ")


def test_runs_of_earlier_versions_are_counted() -> None:
    earlier = {"old": EarlierVersion(exact_knn=False, same_bits=False)}
    runs = {
        str(i): Made("cuda", "some GPU", {"normscope": version}, "", 2.0)
        for i, version in enumerate(("old", "old", "0.1.0"))
    }
    made = Provenance("x", 1.0, {}, "some CPU", runs)
    text = made_by(Results("wd_cut", "small", 1, 0, {}, made), earlier)
    assert "3 runs, shared with other experiments: 6 s on some GPU." in text
    assert "2 of them precede reproducible bits on a GPU. The kNN of 2 was" in text
    new = Provenance("x", 1.0, {}, "some CPU", {"2": runs["2"]})
    assert "earlier" not in made_by(Results("wd_cut", "small", 1, 0, {}, new), earlier)


@pytest.mark.parametrize(
    ("value", "interval", "text"),
    [
        (4.965, (3.164, 6.766), "5.0 [3.2, 6.8]"),
        (0.0623, (0.0018, 0.1228), "0.062 [0.002, 0.123]"),
        (-23.13, (-47.0, 0.74), "-23 [-47, 1]"),
        (1234.5, (1234.5, 1234.5), "1.23e+03"),
        (1.0, (-math.inf, math.inf), "-"),
    ],
)
def test_numbers_have_the_digits_that_their_interval_supports(value, interval, text) -> None:
    assert Claim("x", "1", value, interval, (0.0, 1.0), "text").value_text == text
