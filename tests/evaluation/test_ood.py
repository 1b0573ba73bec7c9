"""Out-of-distribution measures and novelty scores, against plain loops and scikit-learn."""

import math
from dataclasses import asdict

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.covariance import LedoitWolf
from sklearn.metrics import average_precision_score, roc_curve

from normscope.evaluation import linear_probe, novelty_scores, ood_intervals, ood_metrics


def metrics_loop(inside: list[float], outside: list[float]) -> dict[str, float]:
    """Each measure by its definition: one pair, one threshold at a time."""
    wins = sum((a > b) + (a == b) / 2 for a in inside for b in outside)
    both = [*inside, *outside]
    accepted = {t: sum(b >= t for b in outside) / len(outside) for t in both}
    kept = [t for t in both if sum(a >= t for a in inside) >= math.ceil(0.95 * len(inside) - 1e-9)]
    caught = [
        t for t in both if sum(b <= t for b in outside) >= math.ceil(0.95 * len(outside) - 1e-9)
    ]
    positive = np.repeat([1, 0], [len(inside), len(outside)])
    return {
        "auroc": wins / len(inside) / len(outside),
        "aupr_in": average_precision_score(positive, both),
        "aupr_out": average_precision_score(1 - positive, [-x for x in both]),
        "fpr95_id_kept": accepted[max(kept)],
        "fpr95_ood_caught": sum(a <= min(caught) for a in inside) / len(inside),
    }


@given(st.integers(1, 45), st.integers(1, 45), st.integers(1, 60), st.integers(0, 999))
def test_ood_metrics_equal_plain_loops_with_ties(n, m, levels, seed) -> None:
    rng = np.random.default_rng(seed)
    inside, outside = rng.integers(levels, size=n) / 3, rng.integers(levels, size=m) / 3 - 0.5
    outside = np.where(rng.random(m) < 0.5, np.round(outside * 3) / 3, outside)  # ties across too
    expected = metrics_loop(inside.tolist(), outside.tolist())
    assert asdict(ood_metrics(inside, outside)) == pytest.approx(expected)


def test_ood_metrics_have_both_conventions_as_scikit_learns_curve_gives_them() -> None:
    rng = np.random.default_rng(0)
    inside, outside = rng.normal(size=1000) + 1.5, rng.normal(size=400)
    found = ood_metrics(torch.tensor(inside), torch.tensor(outside))
    both, positive = np.concatenate([inside, outside]), np.repeat([1, 0], [1000, 400])
    for ours, sign, label in (
        (found.fpr95_id_kept, 1, positive),
        (found.fpr95_ood_caught, -1, 1 - positive),
    ):
        fpr, tpr, _ = roc_curve(label, sign * both, drop_intermediate=False)
        assert ours == pytest.approx(fpr[np.argmax(tpr >= 0.95)])
    assert found.fpr95_id_kept != found.fpr95_ood_caught


def test_fpr95_takes_the_95_percent_in_whole_numbers() -> None:
    # .95 * 20 is 19 rows: the twentieth, below all others, need not be kept
    inside = np.array([*range(10, 29), 0.0])
    assert ood_metrics(inside, np.array([5.0, 10.0])).fpr95_id_kept == 0.5


def test_ood_intervals_are_those_of_plain_draws_and_hold_the_value() -> None:
    rng = np.random.default_rng(0)
    inside, outside = rng.normal(size=300) + 1, rng.normal(size=200)
    found = ood_intervals(inside, outside, draws=300, seed=7)
    drawn = [ood_metrics(rng.choice(inside, 300), rng.choice(outside, 200)) for _ in range(300)]
    for name, value in asdict(ood_metrics(inside, outside)).items():
        low, high = found[name]
        assert low < value < high
        spread = np.quantile([getattr(d, name) for d in drawn], [0.025, 0.975])
        np.testing.assert_allclose([low, high], spread, atol=0.25 * (high - low))
    assert found == ood_intervals(inside, outside, draws=300, seed=7)
    assert found != ood_intervals(inside, outside, draws=300, seed=8)


def sample(m: int, n: int, d: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    bank = torch.randn(m, d, generator=generator, dtype=torch.float64)
    bank *= torch.linspace(0.5, 3, d, dtype=torch.float64)
    z = torch.randn(n, d, generator=generator, dtype=torch.float64) + 0.5
    return bank, z, torch.randint(3, (m,), generator=generator)


def test_novelty_scores_equal_plain_loops() -> None:
    bank, z, labels = sample(60, 7, 5)
    found = novelty_scores(bank, z, labels=labels, k=4)
    covariance = torch.tensor(LedoitWolf().fit(bank.numpy()).covariance_)
    probe = linear_probe(bank, labels, z)
    for i, row in enumerate(z):
        cosines = sorted(((row @ b) / (row.norm() * b.norm())).item() for b in bank)
        distances = sorted((row / row.norm() - b / b.norm()).norm().item() for b in bank)
        away = row - bank.mean(0)
        logits = [(row @ w + b).item() for w, b in zip(probe.weight, probe.bias, strict=True)]
        expected = {
            "norm": row.norm().item(),
            "max_cosine": cosines[-1],
            "csi": cosines[-1] * row.norm().item(),
            "knn_distance": -distances[3],
            "mahalanobis": -(away @ torch.linalg.solve(covariance, away)).item(),
            "energy": math.log(sum(math.exp(x) for x in logits)),
        }
        assert {name: scores[i].item() for name, scores in found.items()} == pytest.approx(expected)


def test_novelty_scores_take_half_precision_numpy_and_tiles(monkeypatch) -> None:
    bank, z, _ = sample(200, 30, 5)
    whole = novelty_scores(bank, z, k=20)
    monkeypatch.setattr("normscope.evaluation.mahalanobis.TILE", 300)
    monkeypatch.setattr("normscope.evaluation.neighbours._MEMORY", 20_000)
    for name, scores in novelty_scores(bank.numpy(), z.numpy(), k=20).items():
        torch.testing.assert_close(scores, whole[name])
    half = novelty_scores(bank.half(), z.half(), k=20)
    exact = novelty_scores(bank.half().double(), z.half().double(), k=20)
    for name, scores in half.items():
        assert scores.dtype == torch.float32
        torch.testing.assert_close(scores.double(), exact[name], rtol=1e-3, atol=1e-3)


def test_mahalanobis_takes_fewer_rows_than_columns_and_flat_directions() -> None:
    bank, z, _ = sample(8, 4, 30)
    theirs = LedoitWolf().fit(bank.numpy()).mahalanobis(z.numpy())
    found = novelty_scores(bank, z, k=2)["mahalanobis"]
    torch.testing.assert_close(found, -torch.tensor(theirs))
    bank, z, _ = sample(500, 4, 6)
    bank[:, 3] = 1.0
    inside = torch.cat([z[:, :3], torch.ones(4, 1), z[:, 4:]], 1)
    found = novelty_scores(bank, torch.cat([inside, z]), k=2)["mahalanobis"]
    assert found.isfinite().all()
    assert (found[:4] > 5 * found[4:]).all()  # off the plane is far


def test_a_collapsed_reference_leaves_the_plain_distance() -> None:
    row = torch.tensor([[1.0, 2.0, 0.5]])
    away = torch.tensor([[0.0, 0.0, 0.0], [0.0, 0.0, 0.5], [3.0, 4.0, 0.0]])
    scores = novelty_scores(row.repeat(60, 1), row + away)
    torch.testing.assert_close(scores["mahalanobis"], torch.tensor([0.0, -0.25, -25.0]))
    assert all(values.isfinite().all() for values in scores.values())


def test_every_novelty_score_is_higher_for_what_is_known() -> None:
    generator = torch.Generator().manual_seed(1)
    centres = 6 * torch.eye(16)[:4]
    labels = torch.arange(4).repeat(300)
    known = centres[labels] + 0.5 * torch.randn(1200, 16, generator=generator)
    new = 0.7 * torch.randn(300, 16, generator=generator)
    scores = novelty_scores(known[:900], torch.cat([known[900:], new]), labels=labels[:900])
    for name, values in scores.items():
        assert ood_metrics(values[:300], values[300:]).auroc > 0.9, name


def test_distances_in_a_narrow_cone_keep_their_digits() -> None:
    generator = torch.Generator().manual_seed(0)

    def sample(n: int, spread: float) -> torch.Tensor:
        return 1 + spread * torch.randn(n, 64, generator=generator)

    reference, inside, outside = sample(4000, 1e-4), sample(500, 1e-4), sample(500, 1.3e-4)
    auroc = []
    for dtype in (torch.float64, torch.float32):
        scores = [
            novelty_scores(reference.to(dtype), z.to(dtype))["knn_distance"]
            for z in (inside, outside)
        ]
        auroc.append(ood_metrics(*scores).auroc)
    assert auroc[0] > 0.9
    assert auroc[1] == pytest.approx(auroc[0], abs=1e-3)


def test_ood_refuses_wrong_arguments_in_one_line() -> None:
    x, z = np.ones(3), torch.ones(4, 3)
    nan = torch.full((4, 3), math.nan)
    cases = [
        (lambda: ood_metrics(x, x[:0]), "out_scores must be at least one number"),
        (lambda: ood_metrics(x * np.nan, x), "in_scores must be free of NaN"),
        (lambda: ood_intervals(x, x, draws=1), "draws must be an integer of at least 2, got 1"),
        (lambda: novelty_scores(z, z), "k must be an integer from 1 to 4, the rows of the ref"),
        (lambda: novelty_scores(z, z[:, :2], k=2), "z must be of 3 columns on cpu"),
        (lambda: novelty_scores(z, nan, k=2), "z must be finite"),
        (lambda: novelty_scores(nan, z, k=2), "reference must be finite"),
        (lambda: novelty_scores(z.int(), z, k=2), "reference must be a floating-point tensor"),
    ]
    for call, message in cases:
        with pytest.raises(ValueError, match=message) as error:
            call()
        assert "\n" not in str(error.value)
