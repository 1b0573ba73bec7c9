"""EmbeddingTrust: valid p-values, the choice of parts, confidence, inputs, files, refusals."""

import os
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

import normscope as ns
from normscope.confidence import EmbeddingTrust
from normscope.evaluation import auroc

D = 12
CENTRES = np.random.default_rng(99).normal(size=(4, D)) + 2


def sampled(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows around four directions, with norms of their own, and whose they are."""
    rng = np.random.default_rng(seed)
    label = rng.integers(4, size=n)
    direction = CENTRES[label] + rng.normal(size=(n, D)) * rng.uniform(0.3, 1.6, size=(n, 1))
    direction /= np.linalg.norm(direction, axis=1, keepdims=True)
    return direction * rng.gamma(30.0, 0.2, size=(n, 1)), label


def strange(kind: str, n: int, seed: int = 7) -> np.ndarray:
    """Rows that are new in one way."""
    z, _ = sampled(n, seed)
    if kind == "large":
        return 2 * z
    if kind == "small":
        return z / 2
    other = np.random.default_rng(seed).normal(size=(n, D)) + 1.4
    return other / np.linalg.norm(other, axis=1, keepdims=True) * np.linalg.norm(z, axis=1)[:, None]


def quiet(*args, **kwargs) -> EmbeddingTrust:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return EmbeddingTrust.fit(*args, **kwargs)


@pytest.fixture(scope="module")
def trust() -> EmbeddingTrust:
    return quiet(*sampled(1500, 0))


def separated(trust: EmbeddingTrust, new: np.ndarray) -> dict[str, float]:
    """AUROC of each part, and of what is delivered, for new rows against known ones."""
    known, other = trust.explain(sampled(600, 1)[0]), trust.explain(new)
    positive = np.repeat([False, True], [len(known), len(other)])
    columns = {name: (known.bits[name], other.bits[name]) for name in known.bits}
    columns["delivered"] = known.novelty, other.novelty
    return {name: auroc(np.concatenate(pair), positive) for name, pair in columns.items()}


def test_a_row_like_the_reference_is_called_new_as_often_as_the_p_value_says() -> None:
    z, _ = sampled(2400, 3)
    at_five, at_one = [], []
    for seed in range(10):
        order = np.random.default_rng(seed).permutation(len(z))
        p = EmbeddingTrust.fit(z[order[:1400]]).explain(z[order[1400:]]).p_value
        at_five.append((p <= 0.05).mean())
        at_one.append((p <= 0.01).mean())
    assert 0.04 < np.mean(at_five) < 0.06
    assert 0.005 < np.mean(at_one) < 0.015


def test_p_values_are_valid_with_hardly_more_rows_than_columns() -> None:
    shares = []
    for seed in range(10):
        z = np.random.default_rng(seed).normal(size=(2200, 60)) @ np.diag(np.linspace(0.1, 3, 60))
        bits = quiet(z[:200]).explain(z[200:]).bits["mahalanobis"]
        shares.append((bits >= -np.log2(0.05)).mean())
    assert 0.03 < np.mean(shares) < 0.07


def test_p_values_are_valid_given_many_covariates_and_few_rows() -> None:
    shares = []
    for seed in range(10):
        z, _ = sampled(1700, seed)
        x = np.random.default_rng(seed).normal(size=(1700, 4))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            p = EmbeddingTrust.fit(z[:200], None, x[:200]).explain(z[200:], x[200:]).p_value
        shares.append((p <= 0.05).mean())
    assert 0.02 < np.mean(shares) < 0.06


def test_p_values_given_a_covariate_are_valid_at_both_of_its_ends() -> None:
    rng = np.random.default_rng(0)
    z, _ = sampled(5000, 3)
    length = rng.uniform(1, 50, size=5000)
    z = z / np.linalg.norm(z, axis=1, keepdims=True) + rng.normal(size=z.shape) / length[:, None]
    z *= rng.gamma(40.0, 0.02, size=(5000, 1)) * length[:, None] ** 0.5
    known, new = slice(0, 3000), slice(3000, 5000)
    given = quiet(z[known], None, {"length": length[known]})
    blind = quiet(z[known])
    short = length[new] < 10
    asked = np.clip(length[new], length[known].min(), length[known].max())
    for part in ("neighbours", "mahalanobis"):
        limit = -np.log2(0.05)
        found = given.explain(z[new], {"length": asked}).bits[part] >= limit
        ignored = blind.explain(z[new]).bits[part] >= limit
        assert ignored[short].mean() > 0.15 > 0.02 > ignored[~short].mean()
        assert 0.02 < found[short].mean() < 0.09
        assert 0.02 < found[~short].mean() < 0.09


def test_the_delivered_novelty_beats_every_part_over_kinds_of_newness(trust) -> None:
    found = [separated(trust, strange(kind, 300)) for kind in ("large", "small", "direction")]
    mean = {name: np.mean([f[name] for f in found]) for name in found[0]}
    assert mean.pop("delivered") > max(mean.values()) + 0.05


def test_a_row_is_judged_alike_whatever_is_judged_beside_it(trust, monkeypatch) -> None:
    z, _ = sampled(90, 4)
    before = z.copy()
    whole, order = trust.explain(z), np.random.default_rng(0).permutation(90)
    monkeypatch.setattr("normscope.confidence.embedding_trust._AT_ONCE", 7)
    some = trust.explain(z[order])
    for name, column in whole.columns().items():
        if column.dtype.kind == "f":
            np.testing.assert_allclose(some.columns()[name], column[order], rtol=1e-4, atol=1e-6)
        else:
            np.testing.assert_array_equal(some.columns()[name], column[order])
    np.testing.assert_array_equal(z, before)


def test_very_new_rows_are_still_ordered(trust) -> None:
    z = sampled(1, 5)[0]
    bits = trust.novelty(z * np.array([[10.0], [20.0], [40.0], [80.0]]))
    assert (np.diff(bits) > 1).all()
    assert bits[0] > np.log2(1501)


def test_known_bad_rows_choose_the_parts_that_show_them() -> None:
    z, _ = sampled(1500, 0)
    bad = strange("direction", 150)
    chosen, ruled = quiet(z, known_bad=bad), quiet(z)
    new = strange("direction", 300, seed=8)
    assert separated(chosen, new)["delivered"] >= separated(ruled, new)["delivered"]
    assert not chosen.verdict.of("new")["norm"].used
    assert chosen.verdict.of("new")["neighbours"].used
    assert chosen.verdict.of("new")["neighbours"].auroc[1] > 0.8
    assert "chosen by known bad rows" in chosen.verdict.novelty


def test_known_bad_rows_of_one_kind_do_not_cost_the_neighbours() -> None:
    trust = quiet(sampled(1500, 0)[0], known_bad=1.5 * sampled(300, 7)[0])  # by norm alone
    assert trust.verdict.of("new")["neighbours"].used
    assert separated(trust, strange("direction", 300))["delivered"] > 0.7


def test_known_bad_rows_that_are_not_new_leave_the_rule() -> None:
    trust = quiet(sampled(1500, 0)[0], known_bad=sampled(200, 11)[0])
    assert all(finding.used for finding in trust.verdict.findings)
    assert "says nothing here" in str(trust.verdict.of("new")["norm"])
    assert "favour no others" in trust.verdict.novelty


def test_confidence_is_near_the_best_part_and_calibrated(trust) -> None:
    z, label = sampled(2000, 1)
    right = trust.predict(z) == label
    confidence = trust.confidence(z)
    assert 0.05 < 1 - right.mean() < 0.5
    share = trust._voters.vote(trust._space.measured(z).near).share
    assert auroc(confidence, right) > auroc(share, right) - 0.01
    assert abs(confidence.mean() - right.mean()) < 0.03
    told = trust.verdict.of("right")
    assert told["vote"].auroc[1] > 0.7
    assert told["vote"].used
    assert told["norm"].auroc[1] < 0.5 < told["norm"].auroc[2]
    assert "the norm says nothing here" in str(trust.verdict)


def test_a_part_that_misleads_is_said_to() -> None:
    z, _ = sampled(1500, 2)
    norm = np.linalg.norm(z, axis=1)
    correct = norm < np.quantile(norm, np.random.default_rng(0).random(1500))
    other = quiet(*sampled(1500, 0))
    model = other.calibrate(z, correct)
    assert model.n == 1500
    assert other.verdict.of("right")["norm"].auroc[2] < 0.4
    assert "higher norm means *less* sure here" in str(other.verdict)
    assert auroc(other.confidence(z), correct) > 0.7


def test_a_flat_confidence_is_called_flat() -> None:
    trust = quiet(sampled(800, 0)[0])
    assert "no confidence" in trust.verdict.confidence
    with pytest.raises(RuntimeError, match="calibrate called, before confidence"):
        trust.confidence(sampled(3, 0)[0])
    with pytest.raises(RuntimeError, match="fit must be given labels before predict"):
        trust.predict(sampled(3, 0)[0])
    coin = np.random.default_rng(0).random(1000) < 0.8
    z, _ = sampled(1000, 2)
    with pytest.warns(UserWarning, match=r"the confidence is flat: it says about 0\.(79|8)"):
        model = trust.calibrate(z, coin)
    assert model.flat
    assert model.ece < 0.05  # which would look perfect
    with pytest.warns(UserWarning, match="flat"):
        always = trust.calibrate(z, np.ones(1000))
    assert always.names == ()
    assert len(np.unique(trust.confidence(z))) == 1
    assert sum("flat" in line for line in trust.verdict.warnings) == 1


def test_explain_says_which_part_speaks(trust) -> None:
    z = np.concatenate([strange("large", 50), strange("small", 50), sampled(300, 1)[0]])
    found = trust.explain(z)
    assert (found.speaks[:50] == "large norm").mean() > 0.7
    assert (found.speaks[50:100] == "small norm").mean() > 0.7
    assert (found.speaks[100:] == "").mean() > 0.8
    np.testing.assert_array_equal(found.novelty, trust.novelty(z))
    np.testing.assert_array_equal(found.confidence, trust.confidence(z))
    np.testing.assert_array_equal(found.answer.astype(int), trust.predict(z))
    assert ((found.p_value <= 0.05) == (found.speaks != "")).all()
    frame = pd.DataFrame(found.columns())
    assert list(frame["status"].unique()) == ["ok"]


def test_rows_that_cannot_be_judged_have_a_status(trust) -> None:
    z = sampled(4, 1)[0]
    z[0], z[1, 0], z[2, 0] = 0.0, np.nan, np.inf
    found = trust.explain(z)
    assert found.status.tolist() == ["zero", "nan", "infinite", "ok"]
    assert np.isnan(found.novelty).tolist() == [True, True, True, False]
    assert found.nearest[:3].tolist() == [-1] * 3
    assert found.answer[0] is None
    with pytest.raises(ValueError, match="z must be of finite rows that are not zero"):
        trust.predict(z)
    assert trust.novelty(np.empty((0, D))).shape == (0,)


def test_a_covariate_beyond_the_reference_has_its_own_status() -> None:
    z, _ = sampled(600, 0)
    x = np.random.default_rng(0).uniform(1, 2, size=600)
    trust = quiet(z, None, pd.DataFrame({"length": x}))
    asked = {"length": np.array([x.max(), 9.0, np.nan, 0.0])}
    with pytest.warns(UserWarning, match="2 of 4 rows of z have a covariate beyond"):
        found = trust.explain(z[:4], asked)
    assert found.status.tolist() == ["ok", "outside", "covariate", "outside"]
    assert np.isnan(found.novelty).tolist() == [False, False, True, False]
    assert "norm_given" in found.bits


def test_a_row_of_the_reference_is_not_its_own_neighbour() -> None:
    z, label = sampled(500, 0)
    copied = np.concatenate([z, z])
    with pytest.warns(UserWarning, match="100% of the reference's rows have a copy"):
        trust = EmbeddingTrust.fit(copied)
    assert trust.explain(z[:5]).distance.max() < 1e-6
    single = quiet(z)
    p = single.explain(sampled(500, 9)[0]).p_value
    assert 0.02 < (p <= 0.05).mean() < 0.09  # had each row found itself, most would look new
    shuffled = np.random.default_rng(0).permutation(label)
    told = quiet(z, shuffled)
    assert told._sureness.right < 0.35  # four classes: a row that votes for itself is right more


@pytest.mark.parametrize(("rows", "columns"), [(20, 3), (25, 60), (40, 1)])
def test_tiny_references_and_more_columns_than_rows_work(rows: int, columns: int) -> None:
    rng = np.random.default_rng(0)
    z = rng.normal(size=(rows, columns)) + 1
    trust = quiet(z, np.arange(rows) % 2)
    bits = trust.novelty(rng.normal(size=(50, columns)) + 1)
    assert np.isfinite(bits).all()
    assert (bits >= -1e-9).all()
    assert ((trust.confidence(z) > 0) & (trust.confidence(z) < 1)).all()


def test_a_narrow_cone_is_read_as_well_as_a_wide_one() -> None:
    rng = np.random.default_rng(0)
    axis = 1000 * np.ones(D)
    known, new = rng.normal(size=(1000, D)), 3 * rng.normal(size=(200, D))
    trust = quiet((known + axis).astype(np.float32))
    inside = trust.novelty((rng.normal(size=(500, D)) + axis).astype(np.float32))
    outside = trust.novelty((new + axis).astype(np.float32))
    positive = np.repeat([False, True], [500, 200])
    assert auroc(np.concatenate([inside, outside]), positive) > 0.95


def test_normalised_rows_against_a_raw_reference_are_refused(trust) -> None:
    z, _ = sampled(50, 1)
    unit = z / np.linalg.norm(z, axis=1, keepdims=True)
    norm = ns.NormConfidence.fit(sampled(500, 0)[0])
    tensor = torch.tensor(unit)
    for call in (trust.novelty, trust.confidence, trust.explain, norm.score, norm.novelty):
        for rows in (unit, unit.astype(np.float32)[:1], tensor.half()[:9], 7 * unit):
            with pytest.raises(
                ValueError, match=r"z must be raw, .* leave out its Normalize module"
            ):
                call(rows)
    assert np.isfinite(norm.score(np.repeat(z[:1], 30, 0))).all()  # copies of one row are raw
    with pytest.raises(ValueError, match="known_bad must be raw"):
        quiet(sampled(500, 0)[0], known_bad=unit)


def test_raw_rows_whose_norms_hardly_vary_are_scored() -> None:
    rng = np.random.default_rng(0)
    z = rng.normal(size=(400, 8))
    z *= (1 + 0.0012 * rng.normal(size=(400, 1))) / np.linalg.norm(z, axis=1, keepdims=True)
    norm = ns.NormConfidence.fit(z)
    few = z[np.argsort(np.linalg.norm(z, axis=1))[40:280]]  # whose norms vary by less than z's
    assert np.isfinite(norm.score(few)).all()


def test_a_normalised_reference_is_read_by_direction_alone_and_said_to_be() -> None:
    z, _ = sampled(800, 0)
    unit = z / np.linalg.norm(z, axis=1, keepdims=True)
    with pytest.warns(UserWarning, match="norms carry nothing here: all of the reference's are 1"):
        trust = EmbeddingTrust.fit(unit)
    assert not trust.raw
    new = sampled(50, 1)[0]
    assert set(trust.explain(new).bits) == {"neighbours", "mahalanobis"}
    other = new / np.linalg.norm(new, axis=1, keepdims=True)
    np.testing.assert_allclose(trust.novelty(new), trust.novelty(other), rtol=1e-4, atol=1e-4)


def test_arrays_tensors_frames_and_lists_give_the_same() -> None:
    z, label = sampled(400, 0)
    z = z.astype(np.float32)
    new = sampled(20, 1)[0].astype(np.float32)
    expected = quiet(z, label).explain(new)
    names = np.array(["a", "b", "c", "d"])[label]
    kinds = [
        (torch.tensor, torch.tensor(label)),
        (pd.DataFrame, pd.Series(names)),
        (lambda a: pd.Series(list(a)), list(names)),
        (lambda a: a.tolist(), label.tolist()),
    ]
    for rows_as, given in kinds:
        found = quiet(rows_as(z), given).explain(rows_as(new))
        np.testing.assert_allclose(found.novelty, expected.novelty, rtol=1e-5)
        np.testing.assert_allclose(found.confidence, expected.confidence, rtol=1e-5)
    answers = quiet(z, names).predict(new)
    assert answers.tolist() == [str(a) for a in quiet(z, pd.Series(names)).predict(new)]
    assert set(answers) <= set("abcd")


@pytest.mark.parametrize("search", ["exact", "faiss"])
@pytest.mark.parametrize("given", [False, True])
def test_a_saved_trust_is_the_same_to_the_last_bit(tmp_path, search, given) -> None:
    z, label = sampled(600, 0)
    new, _ = sampled(70, 1)
    x = {"length": np.linalg.norm(z, axis=1) + np.arange(600) % 7} if given else None
    asked = {"length": np.linspace(5, 9, 70)} if given else None
    bad = {"length": np.linspace(5, 9, 60)} if given else None
    names = np.array(["a", "bb", "c", "d"])[label]
    one = quiet(z, names, x, strange("large", 60), bad_covariates=bad, search=search)
    one.save(tmp_path / "trust.safetensors")
    other = EmbeddingTrust.load(tmp_path / "trust.safetensors")
    assert os.listdir(tmp_path) == ["trust.safetensors"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mine, theirs = (t.explain(new, asked).columns() for t in (one, other))
    assert mine.keys() == theirs.keys()
    for name, column in mine.items():
        np.testing.assert_array_equal(column, theirs[name])
    assert one.verdict == other.verdict
    assert str(one.verdict) == str(other.verdict)
    assert other._sureness.probability({n: np.ones(1) for n in other._sureness.names}) > 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        other.calibrate(new, np.arange(70) % 2, asked)


def test_load_refuses_foreign_and_damaged_files_in_one_line(tmp_path, trust) -> None:
    path = tmp_path / "trust.safetensors"
    trust.save(path)
    whole = path.read_bytes()
    tensors = load_file(path)
    bad = tmp_path / "bad.safetensors"
    message = "bad.safetensors must be a file that EmbeddingTrust.save wrote, version 1, got"
    for content in (whole[: len(whole) // 2], b"", b"no tensors"):
        bad.write_bytes(content)
        with pytest.raises(ValueError, match=message) as error:
            EmbeddingTrust.load(bad)
        assert "\n" not in str(error.value)
    for metadata in (None, {"kind": "normscope.EmbeddingTrust", "version": "2", "said": "{}"}):
        save_file(tensors, bad, metadata=metadata)
        with pytest.raises(ValueError, match=message):
            EmbeddingTrust.load(bad)
    tensors.pop("cluster.mean")
    said = {"kind": "normscope.EmbeddingTrust", "version": "1", "said": "{}"}
    save_file(tensors, bad, metadata=said)
    with pytest.raises(ValueError, match=message):
        EmbeddingTrust.load(bad)
    with pytest.raises(ValueError, match="got 'nothing there'"):
        EmbeddingTrust.load(tmp_path / "missing.safetensors")


def test_a_large_reference_is_drawn_from_and_said_to_be(monkeypatch, capsys) -> None:
    monkeypatch.setattr("normscope.evaluation.bank.MOST", 300)
    z, label = sampled(700, 0)
    with pytest.warns(UserWarning, match="the reference is 300 of 700 rows, drawn at random"):
        trust = EmbeddingTrust.fit(z, label, search="sample")
    assert len(trust._space.bank) == 300
    monkeypatch.setattr("normscope.evaluation.bank.importlib.util.find_spec", {}.get)
    with pytest.warns(UserWarning, match="300 of 700"):
        EmbeddingTrust.fit(z)
    with pytest.raises(ValueError, match=r"pip install 'normscope\[faiss\]'"):
        EmbeddingTrust.fit(z, search="faiss")
    monkeypatch.setattr("normscope.confidence.progress._LONG", 0.0)
    capsys.readouterr()
    trust.novelty(z[:30])
    assert "normscope: neighbours of 30 rows among 300: about" in capsys.readouterr().err


def test_wrong_arguments_are_refused_in_one_line(trust) -> None:
    z, label = sampled(300, 0)
    x = np.arange(300.0)
    bad = z.copy()
    bad[0], bad[1, 0] = 0.0, np.nan
    fit = EmbeddingTrust.fit
    told = quiet(z, None, {"x": x})
    cases = [
        (lambda: fit(bad), "got '1 NaN, 1 zero of 300 rows'. Leave these out"),
        (lambda: fit(z[:19]), "z must be at least 20 rows, got 19"),
        (lambda: fit(z[0]), r"z must be floating-point rows \(n, d\)"),
        (lambda: fit(z.astype(int)), "floating-point rows"),
        (lambda: fit([[1.0, 2.0], [1.0]]), "floating-point rows"),
        (lambda: fit("words"), "floating-point rows"),
        (lambda: fit(z, label[:5]), "labels must be a whole number or a string for each of 300"),
        (lambda: fit(z, label + 0.5), "labels must be a whole number"),
        (lambda: fit(z, 0 * label), "labels must be of two classes or more, got '0 alone'"),
        (lambda: fit(z[:199], None, {"x": x[:199]}), "covariates must be given with at least 200"),
        (lambda: fit(z, None, {"x": x * np.nan}), "300 with a covariate that is not finite"),
        (lambda: fit(z, None, x), "covariates must be columns by name"),
        (lambda: fit(z, known_bad=z[:5]), "known_bad must be at least 20 rows, got 5"),
        (lambda: fit(z, known_bad=z[:50, :3]), "known_bad must be of 12 columns"),
        (lambda: fit(z, None, {"x": x}, z[:50]), "covariates must be x, got 'none'"),
        (lambda: fit(z, search="nearest"), "search must be auto, exact, faiss or sample"),
        (lambda: trust.novelty(z[:, :2]), "z must be of 12 columns, as the reference was, got 2"),
        (lambda: trust.novelty(z, {"x": x}), "covariates must be left out"),
        (lambda: told.novelty(z), "covariates must be x, got 'none'"),
        (lambda: trust.calibrate(z[:9], label[:9] > 1), "z must be at least 20 rows, got 9"),
        (lambda: trust.calibrate(z, label), "correct must be zeros and ones"),
    ]
    for call, message in cases:
        with pytest.raises(ValueError, match=message) as error:
            call()
        assert "\n" not in str(error.value)


def test_a_warning_stands_at_the_line_that_called() -> None:
    z, label = sampled(300, 0)
    unit = z / np.linalg.norm(z, axis=1, keepdims=True)
    with pytest.warns(UserWarning, match="carry nothing") as caught:
        EmbeddingTrust.fit(unit)
    fitted = quiet(z)
    with pytest.warns(UserWarning, match="flat") as also:
        fitted.calibrate(z, np.ones(300))
    given = quiet(z, None, {"length": label})
    with pytest.warns(UserWarning, match="beyond the reference's range") as more:
        given.novelty(z, {"length": label + 9})
    assert {w.filename for w in (*caught, *also, *more)} == {__file__}


def test_missing_numbers_of_any_kind_are_not_taken_for_numbers(trust) -> None:
    z = sampled(5, 1)[0]
    masked = np.ma.masked_array(z, mask=np.zeros_like(z, bool))
    masked[2, 3] = np.ma.masked
    frame = pd.DataFrame(z).astype("Float64")
    frame.iloc[2, 3] = pd.NA
    for rows in (masked, frame):
        found = trust.explain(rows)
        assert found.status.tolist() == ["ok", "ok", "nan", "ok", "ok"]
        np.testing.assert_allclose(found.novelty[3:], trust.novelty(z)[3:], rtol=1e-5)
    known, label = sampled(200, 0)
    with pytest.raises(ValueError, match="labels must be a whole number or a string"):
        EmbeddingTrust.fit(known, np.ma.masked_array(label, mask=label == 0))
    with pytest.raises(ValueError, match="covariate that is not finite"):
        EmbeddingTrust.fit(known, None, {"a": np.ma.masked_array(label + 0.5, mask=label == 0)})


def test_a_file_with_one_number_changed_is_refused(trust, tmp_path) -> None:
    path = tmp_path / "trust.safetensors"
    trust.save(path)
    with safe_open(path, framework="pt") as file:
        metadata = file.metadata()
    for name in ("cluster.mean", "labels", "parts.floor"):
        tensors = load_file(path)
        tensors[name].view(-1)[0] += 1
        save_file(tensors, tmp_path / "other.safetensors", metadata)
        with pytest.raises(ValueError, match="another, or damaged"):
            EmbeddingTrust.load(tmp_path / "other.safetensors")
    edited = metadata | {"said": metadata["said"].replace('"raw": true', '"raw": false')}
    save_file(load_file(path), tmp_path / "other.safetensors", edited)
    with pytest.raises(ValueError, match="another, or damaged"):
        EmbeddingTrust.load(tmp_path / "other.safetensors")
    with pytest.raises(ValueError, match="path must be a file in a folder that exists"):
        trust.save(tmp_path / "none" / "trust.safetensors")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ({"covariates": 3.0}, "covariates must be columns by name, or one array"),
        ({"covariates": [[1, 2], [3]]}, "covariates must be columns by name, or one array"),
        ({"bad_covariates": {"a": np.ones(9)}}, "bad_covariates must be left out without"),
        ({"labels": torch.ones(300).bfloat16()}, "labels must be a whole number or a string"),
        ({"z": torch.ones(300, 2).to_sparse()}, "z must be dense"),
        ({"z": torch.ones(300, 2, device="meta")}, "z must be dense"),
        ({"z": np.full((300, 2), "1e400", np.longdouble)}, "got '300 infinite of 300 rows'"),
    ],
)
def test_odd_input_is_refused_in_one_line(arguments, line) -> None:
    with pytest.raises(ValueError, match=line):
        EmbeddingTrust.fit(**{"z": sampled(300, 0)[0]} | arguments)


def test_covariates_may_have_numbers_for_names_and_known_bad_rows_lack_theirs(tmp_path) -> None:
    z, label = sampled(300, 0)
    trust = quiet(z, None, {np.int64(1): label})
    with pytest.raises(ValueError, match="covariates must be 1, got 'none'"):
        trust.novelty(z)
    trust.save(tmp_path / "trust.safetensors")
    assert EmbeddingTrust.load(tmp_path / "trust.safetensors").names == ("1",)
    with pytest.raises(ValueError, match="bad_covariates must be 1, got 'none'"):
        EmbeddingTrust.fit(z, None, {1: label}, z[:30])


def test_a_confidence_that_could_not_be_fitted_is_described_without_nan() -> None:
    said = str(quiet(sampled(200, 0)[0], np.arange(200)).verdict)
    assert "Confidence is the share of right rows, 0.0%, for every row" in said
    assert "nan" not in said
