"""NormConfidence: percentiles by the definition, covariates, calibration, files; risk_coverage."""

import math
import os
import re
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

from normscope.confidence import NormConfidence
from normscope.confidence.calibration import _isotonic, _logistic, reliability
from normscope.confidence.covariates import bin_edges
from normscope.evaluation import auroc, knn, risk_coverage


def gamma(m: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).gamma(9.0, size=m)


def directed(norms: np.ndarray, d: int = 6, seed: int = 0) -> np.ndarray:
    """Embeddings with these norms, in random directions."""
    z = np.random.default_rng(seed).normal(size=(len(norms), d))
    return z / np.linalg.norm(z, axis=1, keepdims=True) * norms[:, None]


@given(
    st.lists(st.sampled_from([0.5, 1.0, 1.5, 2.0, 7.0]), min_size=20, max_size=60),
    st.lists(st.floats(0.01, 9.0), min_size=1, max_size=9),
)
def test_score_and_novelty_equal_plain_loops_with_ties(reference, queries) -> None:
    reference = [*reference, 0.5, 2.0]
    queries = [*queries, 1.0, 2.0]
    confidence = NormConfidence.from_norms(np.array(reference))
    scores = confidence.score_norms(np.array(queries))
    bits = confidence.novelty_norms(np.array(queries))
    m = len(reference)
    for x, score, surprise in zip(queries, scores, bits, strict=True):
        expected = sum((r < x) + (r == x) / 2 for r in reference) / m
        assert score == pytest.approx(expected)
        p = (1 + sum(r <= x for r in reference)) / (m + 1)
        assert surprise == pytest.approx(-math.log2(p))


@given(
    st.lists(st.floats(1e-300, 1e300), min_size=20, max_size=80, unique=True),
    st.randoms(use_true_random=False),
)
def test_score_is_monotone_in_unit_range_and_blind_to_row_order(norms, random) -> None:
    if np.std(np.array(norms) / max(norms)) < 2e-3:
        return
    queries = np.sort(np.array([*norms, 1e-308, 1.0, 1e308]))
    first = NormConfidence.from_norms(np.array(norms))
    random.shuffle(norms)
    again = NormConfidence.from_norms(np.array(norms))
    scores, bits = first.score_norms(queries), first.novelty_norms(queries)
    assert (np.diff(scores) >= 0).all()
    assert (np.diff(bits) <= 0).all()
    assert scores.min() == 0
    assert scores.max() == 1
    assert np.array_equal(scores, again.score_norms(queries))


@pytest.mark.parametrize("conditional", ["binned", "smooth"])
def test_conditional_score_is_monotone_in_the_norm(conditional) -> None:
    x = gamma(600, 1)
    with pytest.warns(UserWarning, match="length"):
        confidence = NormConfidence.fit(
            directed(x * gamma(600)), None, {"length": x}, conditional=conditional
        )
    for at in (0.0, 4.0, 9.0, 1e6):
        scores = confidence.score_norms(np.logspace(-3, 3, 99), {"length": np.full(99, at)})
        assert (np.diff(scores) >= 0).all()
        assert scores[0] == 0
        assert scores[-1] == 1


def test_score_of_arrays_and_tensors_of_any_type_is_that_of_the_norms() -> None:
    z = directed(gamma(300))
    confidence = NormConfidence.fit(z)
    expected = confidence.score_norms(np.linalg.norm(z, axis=1))
    np.testing.assert_allclose(confidence.score(z), expected, atol=1 / 300)
    frozen = np.asfortranarray(z).astype(">f8")
    frozen.flags.writeable = False
    assert NormConfidence.fit(frozen, np.arange(300) % 7).trust is not None
    np.testing.assert_array_equal(confidence.score(frozen), confidence.score(z))
    tensor = torch.tensor(z, requires_grad=True)
    np.testing.assert_array_equal(confidence.score(tensor), confidence.score(z))
    np.testing.assert_allclose(confidence.score(tensor.bfloat16()), expected, atol=0.05)
    assert confidence.score(z[:0]).shape == (0,)


def test_scores_of_zero_infinite_and_nan_rows_are_nan() -> None:
    confidence = NormConfidence.fit(directed(gamma(300)))
    z = directed(gamma(5))
    z[1], z[2, 0], z[3, 3] = 0.0, np.nan, np.inf
    for scores in (confidence.score(z), confidence.novelty(z)):
        assert np.isnan(scores).tolist() == [False, True, True, True, False]
    confidence.calibrate(directed(gamma(50)), np.arange(50) % 3 > 0)
    assert np.isnan(confidence.probability(z)).tolist() == [False, True, True, True, False]


def test_a_large_reference_is_kept_as_quantiles_that_score_as_all_of_it(tmp_path) -> None:
    norms = np.round(gamma(300_000), 3)  # with ties
    confidence = NormConfidence.from_norms(norms)
    queries = np.concatenate([gamma(1000, 5), [norms.min() - 1e-9, norms.max() + 1e-9]])
    ordered = np.sort(norms)
    left, right = (np.searchsorted(ordered, queries, side) for side in ("left", "right"))
    got = confidence.score_norms(queries)
    np.testing.assert_allclose(got, (left + right) / 2 / len(norms), atol=1 / 65_536)
    bits = confidence.novelty_norms(queries[-2:])
    np.testing.assert_allclose(bits, [math.log2(300_001), 0])
    confidence.save(tmp_path / "large.npz")
    assert os.path.getsize(tmp_path / "large.npz") < 600_000


def test_novelty_is_a_valid_p_value() -> None:
    confidence = NormConfidence.from_norms(gamma(200))
    p = 2 ** -confidence.novelty_norms(gamma(20_000, 1))
    for level in (0.05, 0.2, 0.5):
        assert (p <= level).mean() < level + 0.04


def planted(seed: int) -> tuple[np.ndarray, dict, np.ndarray, dict, np.ndarray]:
    """Norms that fall with the length of a text; novelties are short, and small for that length."""
    rng = np.random.default_rng(seed)
    length, other = rng.random(6000) * 10, rng.normal(size=6000)
    new = np.arange(6000) >= 5000
    length[new] = rng.random(1000) * 3
    log_norms = 2 - 0.2 * length + 0.01 * (length - 5) ** 2
    noise = rng.normal(size=6000) * (0.05 + 0.01 * length)
    norms = np.exp(log_norms + noise - 0.25 * new)
    columns = {"text_length": length, "other": other}
    reference = {name: values[:4000] for name, values in columns.items()}
    queries = {name: values[4000:] for name, values in columns.items()}
    return norms[:4000], reference, norms[4000:], queries, new[4000:]


@pytest.mark.parametrize(
    ("names", "conditional"),
    [
        (("text_length",), None),
        (("text_length",), "smooth"),
        (("other", "text_length"), None),
    ],
)
def test_a_covariate_that_drives_the_norm_fools_the_plain_score_alone(names, conditional) -> None:
    norms, reference, queries, given_queries, new = planted(0)
    z = directed(norms)
    plain = NormConfidence.fit(z)
    assert auroc(plain.novelty_norms(queries), new) < 0.5
    assert plain.warnings == []
    with pytest.warns(UserWarning, match="text_length explains") as caught:
        told = NormConfidence.fit(
            z, covariates={n: reference[n] for n in names}, conditional=conditional
        )
    columns = {n: given_queries[n] for n in names}
    assert auroc(told.novelty_norms(queries, columns), new) > 0.9
    assert auroc(-told.score_norms(queries, columns), new) > 0.9
    assert [str(w.message) for w in caught] == told.warnings
    assert re.fullmatch(
        r"text_length explains 9\d % of the variance of the log norm \(correlation -0\.9\d\): "
        r"scores are percentiles given it; without it, rows of small text_length would look "
        r"surer\.",
        told.warnings[0],
    )
    assert told.explained["text_length"] > 0.9
    assert told.explained.get("other", 0) < 0.03


@pytest.mark.parametrize("conditional", ["binned", "smooth"])
def test_conditional_scores_are_uniform_at_every_value_of_the_covariate(conditional) -> None:
    norms, reference, queries, given_queries, new = planted(1)
    told = NormConfidence.from_norms(
        norms, covariates={"x": reference["text_length"]}, conditional=conditional
    )
    x = given_queries["text_length"][~new]
    scores = told.score_norms(queries[~new], {"x": x})
    for part in np.array_split(np.argsort(x), 5):
        np.testing.assert_allclose(scores[part].mean(), 0.5, atol=0.08)
        np.testing.assert_allclose(scores[part].std(), 1 / math.sqrt(12), atol=0.05)


def test_binned_scores_are_percentiles_within_the_bin() -> None:
    x = np.random.default_rng(0).integers(3, size=600).astype(float)
    norms = gamma(600) * (1 + x)
    told = NormConfidence.from_norms(norms, covariates=x[:, None])
    assert told.names == ("c0",)
    np.testing.assert_array_equal(bin_edges(x), [1.0, 2.0])
    for value in (0.0, 1.0, 2.0):
        alone = NormConfidence.from_norms(norms[x == value])
        queries = gamma(50, 3) * 2
        got = told.score_norms(queries, np.full((50, 1), value))
        np.testing.assert_array_equal(got, alone.score_norms(queries))


def test_bins_have_fifty_rows_or_more_whatever_the_ties() -> None:
    rng = np.random.default_rng(0)
    for x in (
        rng.normal(size=1037),
        rng.geometric(0.3, size=900).astype(float),
        np.repeat([0.0, 1.0], [990, 10]),
        np.ones(300),
        rng.pareto(0.5, size=20_000),
    ):
        edges = bin_edges(x)
        counts = np.bincount(np.searchsorted(edges, x, side="right"), minlength=len(edges) + 1)
        assert counts.min() >= 50
    assert len(edges) == 63


def test_unknown_covariates_score_nan_and_constant_ones_change_nothing() -> None:
    norms, ones = gamma(400), np.ones((400, 2))
    told = NormConfidence.from_norms(norms, covariates=ones)
    plain = NormConfidence.from_norms(norms)
    # the tenths of the rows that are left out in turn have means that differ a little
    np.testing.assert_allclose(told.score_norms(norms, ones), plain.score_norms(norms), atol=0.03)
    for conditional in ("binned", "smooth"):
        told = NormConfidence.from_norms(
            norms, covariates=gamma(400, 1)[:, None], conditional=conditional
        )
        unknown = np.array([[1.0], [np.nan], [np.inf]])
        assert np.isnan(told.score_norms(norms[:3], unknown)).tolist() == [False, True, True]


def test_trust_is_the_auroc_of_left_out_neighbours() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=300)
    sure = rng.random(300) * 3
    z = np.eye(3)[labels] * sure[:, None] + 0.5 * rng.normal(size=(300, 3))
    found = NormConfidence.fit(z, labels).trust
    right = []
    for i in range(300):
        others = np.arange(300) != i
        bank, known = torch.tensor(z[others]), torch.tensor(labels[others])
        right.append(int(knn(bank, known, torch.tensor(z[i : i + 1]), 30).predictions) == labels[i])
    assert found == pytest.approx(auroc(np.linalg.norm(z, axis=1), np.array(right)))
    assert found is not None
    assert found > 0.7
    assert NormConfidence.fit(z).trust is None
    assert NormConfidence.fit(z, 0 * labels).trust is None  # all right: nothing to tell


def test_trust_is_of_the_score_given_covariates() -> None:
    rng = np.random.default_rng(0)
    length, sure = rng.uniform(1, 8, size=1000), rng.random(1000) + 0.3
    labels = rng.integers(3, size=1000)
    z = np.eye(3)[labels] * sure[:, None] + 0.35 * rng.normal(size=(1000, 3))
    z *= (length * sure / np.linalg.norm(z, axis=1))[:, None]
    blind = NormConfidence.fit(z, labels).trust
    with pytest.warns(UserWarning, match="length explains"):
        given = NormConfidence.fit(z, labels, {"length": length}).trust
    assert blind is not None
    assert given is not None
    assert given > blind + 0.05


def test_trust_leaves_each_row_out_among_its_copies() -> None:
    # alike in direction and never in label, so a row that could vote would be its own neighbour
    z = np.eye(2).repeat(10, 0) * np.linspace(1, 2, 20)[:, None]
    z = np.concatenate([z, z])
    labels = np.arange(40)
    assert NormConfidence.fit(z, labels).trust is None  # all wrong
    assert NormConfidence.fit(z, labels // 10 % 2).trust is None  # all right


def test_trust_is_that_of_rows_which_a_seed_draws(monkeypatch) -> None:
    z = directed(gamma(900), 3)
    labels = (z[:, 0] > 0).astype(np.int64)
    whole = NormConfidence.fit(z, labels).trust
    monkeypatch.setattr("normscope.confidence.trust.ROWS", 500)
    first, second = (NormConfidence.fit(z, labels).trust for _ in range(2))
    assert first == second != whole
    assert first == pytest.approx(whole, abs=0.1)


def model(n: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Norms, whether rows are right, and the true probability: logistic in the percentile."""
    norms = gamma(n, seed)
    reference = np.sort(gamma(20_000, 99))
    truth = 1 / (1 + np.exp(-(0.5 + 3 * np.searchsorted(reference, norms) / 20_000)))
    return norms, np.random.default_rng(seed + 1).random(n) < truth, truth


@pytest.mark.parametrize(
    ("n", "method", "chosen"),
    [
        (5000, "auto", "isotonic"),
        (999, "auto", "logistic"),
        (5000, "logistic", "logistic"),
        (999, "isotonic", "isotonic"),
    ],
)
def test_calibrate_recovers_a_monotone_model(n, method, chosen) -> None:
    confidence = NormConfidence.fit(directed(gamma(20_000, 99)))
    norms, correct, _ = model(n, 0)
    found = confidence.calibrate(directed(norms), correct, method=method)
    assert confidence.calibration is found
    assert (found.method, found.n, found.count.sum()) == (chosen, n, n)
    assert found.ece < 0.05
    assert found.ece_before > 0.2
    test_norms, _, truth = model(2000, 5)
    got = confidence.probability(directed(test_norms))
    assert np.abs(got - truth).mean() < 0.04
    assert (np.diff(got[np.argsort(test_norms)]) >= -1e-12).all()


def test_a_calibration_that_says_one_number_is_called_flat() -> None:
    confidence = NormConfidence.fit(directed(gamma(20_000, 99)))
    norms, correct, _ = model(3000, 0)
    assert not confidence.calibrate(directed(norms), correct).flat
    coin = np.random.default_rng(0).random(3000) < 0.75
    for method in ("logistic", "isotonic"):
        with pytest.warns(UserWarning, match=r"the confidence is flat: it says about 0\.7"):
            found = confidence.calibrate(directed(norms), coin, method=method)
        assert found.flat
        assert found.ece < 0.03  # which would look perfect


def test_ece_is_of_rows_held_out() -> None:
    # where the norm says nothing, an isotonic map believes its own rows and errs on others
    confidence = NormConfidence.from_norms(gamma(2000))
    correct = np.random.default_rng(1).random(300) < 0.5
    found = confidence.calibrate(directed(gamma(300, 2)), correct, method="isotonic")
    own = reliability(confidence.probability(directed(gamma(300, 2))), correct)[0]
    assert own < 1e-9 < 0.01 < found.ece


def test_reliability_equals_plain_loop() -> None:
    rng = np.random.default_rng(0)
    p, correct = np.append(rng.random(200), 1.0), rng.random(201) < 0.6
    ece, confidence, accuracy, count = reliability(p, correct)
    expected, bins = 0.0, []
    for b in range(15):
        rows = [i for i, x in enumerate(p) if b / 15 <= x < (b + 1) / 15 or (x == 1 and b == 14)]
        bins.append((p[rows].mean(), correct[rows].mean(), len(rows)))
        expected += len(rows) / 201 * abs(bins[-1][0] - bins[-1][1])
    assert ece == pytest.approx(expected)
    np.testing.assert_allclose(np.stack([confidence, accuracy, count], 1), bins)


@given(st.integers(1, 60), st.integers(1, 40), st.integers(0, 999))
def test_isotonic_map_equals_scikit_learns(n: int, levels: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    score, correct = rng.integers(levels, size=n) / levels, rng.random(n) < 0.5
    x, y = _isotonic(score, correct)
    theirs = IsotonicRegression(out_of_bounds="clip").fit(score, correct)
    at = np.linspace(0, 1, 50)
    np.testing.assert_allclose(np.interp(at, x, y), theirs.predict(at), atol=1e-9)


def test_logistic_map_equals_scikit_learns_on_platts_targets() -> None:
    norms, correct, _ = model(500, 0)
    score = norms / norms.max()
    yes, no = correct.sum(), (~correct).sum()
    # a target t is a row of each kind, weighted t and 1 - t
    t = np.where(correct, (yes + 1) / (yes + 2), 1 / (no + 2))
    x, y = np.tile(score, 2)[:, None], np.repeat([1, 0], 500)
    theirs = LogisticRegression(C=np.inf, tol=1e-10).fit(x, y, np.concatenate([t, 1 - t]))
    expected = [theirs.intercept_[0], theirs.coef_[0, 0]]
    np.testing.assert_allclose(_logistic(score, correct)[:, 0], expected, rtol=1e-4)


def test_logistic_map_stays_finite_and_never_falls() -> None:
    score = np.linspace(0, 1, 40)
    for correct in (score > 0.5, score < 0.5, score >= 0, score < 0):
        intercept, slope = _logistic(score, correct)[:, 0]
        assert np.isfinite([intercept, slope]).all()
        assert slope >= 0
    assert _logistic(score, score < 0.5)[1, 0] == 0


@pytest.mark.parametrize("conditional", [None, "binned", "smooth"])
@pytest.mark.parametrize("calibrated", [False, True])
def test_a_saved_confidence_is_the_same_when_loaded(tmp_path, conditional, calibrated) -> None:
    norms, reference, queries, given_queries, _ = planted(0)
    columns = None if conditional is None else {"text_length": reference["text_length"][:900]}
    asked = None if conditional is None else {"text_length": given_queries["text_length"]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        one = NormConfidence.fit(
            directed(norms[:900]), np.arange(900) % 5, columns, conditional=conditional
        )
    z = directed(queries)
    if calibrated:
        one.calibrate(z, one.score(z, asked) > np.random.default_rng(0).random(2000), asked)
    one.save(tmp_path / "saved")
    other = NormConfidence.load(tmp_path / "saved")
    assert os.listdir(tmp_path) == ["saved"]
    np.testing.assert_array_equal(one.score(z, asked), other.score(z, asked))
    np.testing.assert_array_equal(one.novelty(z, asked), other.novelty(z, asked))
    for name in ("d", "names", "explained", "trust", "warnings"):
        assert getattr(one, name) == getattr(other, name)
    if calibrated:
        np.testing.assert_array_equal(one.probability(z, asked), other.probability(z, asked))
        for name in ("method", "n", "ece", "ece_before"):
            assert getattr(one.calibration, name) == getattr(other.calibration, name)
        np.testing.assert_array_equal(one.calibration.count, other.calibration.count)
    else:
        assert other.calibration is None


def test_load_refuses_foreign_and_damaged_files_in_one_line(tmp_path) -> None:
    saved = tmp_path / "saved.npz"
    NormConfidence.from_norms(gamma(300)).save(saved)
    whole = saved.read_bytes()
    flipped = bytearray(whole)
    flipped[len(whole) // 3] ^= 255
    with np.load(saved) as file:
        arrays = dict(file)
    bad = tmp_path / "bad.npz"
    contents = [
        whole[: len(whole) // 2],
        bytes(flipped),
        b"",
        b"no archive",
        {"embeddings": np.ones((3, 2))},
        {**arrays, "kind": "something else"},
        {**arrays, "version": 2},
        {**arrays, "sizes": [200]},
        {**arrays, "way": "unheard of"},
        {**arrays, "said": np.array([{"names": []}], dtype=object)},
    ]
    for content in contents:
        if isinstance(content, bytes):
            bad.write_bytes(content)
        else:
            np.savez(bad, **content)
        message = "bad.npz must be a file that NormConfidence.save wrote, version 1, got"
        with pytest.raises(ValueError, match=message) as error:
            NormConfidence.load(bad)
        assert "\n" not in str(error.value)
    with pytest.raises(ValueError, match="got 'nothing there'"):
        NormConfidence.load(tmp_path / "missing.npz")


def test_a_failed_save_leaves_the_old_file_whole(tmp_path) -> None:
    path = tmp_path / "saved.npz"
    confidence = NormConfidence.from_norms(gamma(300))
    confidence.save(path)
    before = path.read_bytes()
    confidence.explained["bad"] = object()  # which no file can hold
    with pytest.raises(TypeError):
        confidence.save(path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["saved.npz"]


@given(st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=1, max_size=40))
def test_risk_coverage_equals_plain_loop_over_random_orders_of_ties(rows) -> None:
    found = risk_coverage(np.array([c for c, _ in rows]), np.array([r for _, r in rows]))
    ordered = sorted(rows, key=lambda row: -row[0])
    risks, wrong = [], 0.0
    for i, (confidence, _) in enumerate(ordered, 1):
        equals = [not right for c, right in rows if c == confidence]
        wrong += sum(equals) / len(equals)
        risks.append(wrong / i)
    np.testing.assert_allclose(found.risk, risks)
    np.testing.assert_allclose(found.coverage, [i / len(rows) for i in range(1, len(rows) + 1)])
    assert found.aurc == pytest.approx(sum(risks) / len(rows))
    assert found.oracle_aurc <= found.aurc + 1e-12
    assert found.random_aurc == pytest.approx(found.risk[-1])


def test_risk_coverage_of_the_best_and_of_no_confidence() -> None:
    correct = np.random.default_rng(0).random(500) < 0.8
    best = risk_coverage(correct + np.linspace(0, 0.5, 500), correct)
    assert best.aurc == pytest.approx(best.oracle_aurc)
    none = risk_coverage(np.ones(500), correct)
    assert none.aurc == pytest.approx(none.random_aurc)
    assert best.aurc < 0.05 < none.aurc


def test_calibration_refuses_wrong_arguments_in_one_line() -> None:
    z = directed(gamma(300))
    bad = z.copy()
    bad[:3], bad[3, 0], bad[4, 0] = 0.0, np.nan, np.inf
    x, right = np.ones(300), np.arange(300) % 2
    fit = NormConfidence.fit
    confidence = fit(z)
    told = NormConfidence.from_norms(gamma(300), covariates={"x": gamma(300, 1)})
    unit = z / np.linalg.norm(z, axis=1, keepdims=True)
    cases = [
        (lambda: fit(bad), "reference must be of finite norms above zero, got '1 NaN, 1 inf"),
        (lambda: fit(bad), r"3 zero of 300 rows'\. Leave these rows out"),
        (lambda: fit(z[:19]), "reference must be at least 20 rows, got 19"),
        (
            lambda: fit(unit),
            "reference must be raw, got 'norms that are all 1: they carry nothing'",
        ),
        (lambda: fit(torch.tensor(unit).half()), "reference must be raw"),
        (lambda: fit(z.astype(int)), r"reference must be floating-point rows \(n, d\), got 'int64"),
        (lambda: fit(z[0]), "reference must be floating-point rows"),
        (lambda: fit(z, right[:3]), "labels must be a whole number or a string for each of 300"),
        (lambda: fit(z, None, x), r"covariates must be columns by name, or one array \(300, c\)"),
        (lambda: fit(z, None, {"x": x[:3]}), r"covariates\['x'\] must be numbers of shape \(300"),
        (lambda: fit(z, None, {"x": x * np.nan}), "must be finite, got '300 that are not, of 300'"),
        (lambda: fit(z[:199], None, {"x": x[:199]}), "covariates must be given with at least 200"),
        (lambda: fit(z, conditional="binned"), "conditional must be None without covariates"),
        (lambda: fit(z, conditional="x"), "conditional must be binned or smooth, got 'x'"),
        (
            lambda: fit(z, None, {"a": x, "b": x}, conditional="binned"),
            "conditional must be smooth with 2 covariates",
        ),
        (lambda: confidence.score(z[:, :2]), "z must be of 6 columns, as the reference was, got 2"),
        (lambda: confidence.score(z, {"x": x}), "covariates must be left out, as they were in fit"),
        (lambda: told.score_norms(x), "covariates must be x, got 'none'"),
        (lambda: told.score_norms(x, {"y": x}), "covariates must be x, got 'y'"),
        (lambda: confidence.calibrate(z, right, method="x"), "method must be auto, isotonic or"),
        (lambda: confidence.calibrate(z, right * 2), "correct must be zeros and ones"),
        (lambda: confidence.calibrate(z[:9], right[:9]), "z must be at least 20 rows, got 9"),
        (lambda: confidence.calibrate(bad, right), "z must be rows that are finite and not zero"),
        (lambda: risk_coverage(x * np.nan, right), "confidence must be free of NaN"),
    ]
    for call, message in cases:
        with pytest.raises(ValueError, match=message) as error:
            call()
        assert "\n" not in str(error.value)
    with pytest.raises(RuntimeError, match="calibrate must be called before probability"):
        confidence.probability(z)


@pytest.mark.parametrize(("rows", "columns"), [(200, 2), (200, 5), (1000, 3)])
def test_rows_like_the_reference_are_no_newer_given_several_covariates(rows, columns) -> None:
    shares = []
    for seed in range(5):
        random = np.random.default_rng(seed)
        known, x = np.exp(0.3 * random.normal(size=rows)), random.normal(size=(rows, columns))
        confidence = NormConfidence.from_norms(known, covariates=x)
        norms, x = np.exp(0.3 * random.normal(size=4000)), random.normal(size=(4000, columns))
        shares.append((confidence.score_norms(norms, x) < 0.05).mean())
    assert 0.03 < np.mean(shares) < 0.07


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("values", lambda v: v[::-1]),
        ("values", lambda v: np.where(v == v[0], np.nan, v)),
        ("values", lambda v: v.astype(str)),
        ("totals", lambda v: -v),
        ("totals", lambda v: 0 * v),
        ("said", lambda v: np.array(str(v).replace('"names": []', '"names": [["a"]]'))),
        ("said", lambda v: np.array(str(v).replace('"trust": null', '"trust": [1]'))),
        ("said", lambda v: np.array(str(v).replace('"warnings": []', '"warnings": 5'))),
    ],
)
def test_a_reference_that_was_tampered_with_is_refused(tmp_path, name: str, change) -> None:
    path = tmp_path / "fit.npz"
    NormConfidence.from_norms(gamma(400)).save(path)
    with np.load(path) as stored:
        arrays = dict(stored)
    changed = change(arrays[name])
    assert not np.array_equal(changed, arrays[name])
    np.savez(path, **(arrays | {name: changed}))
    with pytest.raises(ValueError, match=r"must be a file that NormConfidence\.save wrote"):
        NormConfidence.load(path)
