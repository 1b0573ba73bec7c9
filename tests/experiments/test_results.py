"""Claims, intervals and files."""

import math
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest, t

from normscope import _environment
from normscope.experiments.results import (
    Claim,
    Results,
    mean_interval,
    provenance,
    share_interval,
    t_quantile,
)
from normscope.experiments.summary import made_by, stored_results


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


@given(st.integers(1, 1000))
def test_t_quantile_equals_scipys_to_three_digits(degrees: int) -> None:
    assert t_quantile(degrees) == pytest.approx(t.ppf(0.975, degrees), rel=1e-3)


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
    made = {"command": "x", "hardware": "y", "seconds": 1, "versions": {}}
    results = Results("fig1", "smoke", 2, 0, {"a": [1.5, 2]}, made)
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
    made = {"command": "x", "hardware": "y", "seconds": 1, "versions": {}}
    del made[lost]
    path = Results("fig1", "smoke", 2, 0, {"a": 1}, made).save(tmp_path)
    with pytest.raises(ValueError, match=r"fig1\.smoke\.json must be a file that"):
        Results.load(path)


def test_results_under_another_name_are_refused(tmp_path: Path) -> None:
    made = {"command": "x", "hardware": "y", "seconds": 1, "versions": {}}
    path = Results("fig1", "smoke", 2, 0, {"a": 1}, made).save(tmp_path)
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
    assert provenance("x", 1.0, gpu=False)["versions"]["normscope"].startswith("from source ")


def test_runs_judged_by_an_earlier_version_are_counted() -> None:
    sources = ("from source 28403ab054", "from source 28403ab054", "0.1.0")
    runs = {
        str(i): {"seconds": 2.0, "hardware": "some GPU", "versions": {"normscope": source}}
        for i, source in enumerate(sources)
    }
    made = {"seconds": 1.0, "hardware": "some CPU", "versions": {}, "runs": runs}
    told = made_by(Results("wd_cut", "small", 1, 0, {}, made))
    assert "3 runs, shared with other experiments: 6 s on some GPU." in told
    assert (
        "2 of them were trained before a seed gave the same bits on a GPU. The kNN of 2 was" in told
    )
    made["runs"] = {"2": runs["2"]}
    assert "earlier version" not in made_by(Results("wd_cut", "small", 1, 0, {}, made))
