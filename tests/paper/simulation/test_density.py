"""Neighbour distances and rank correlations against sklearn and scipy."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import spearmanr
from sklearn.neighbors import NearestNeighbors
from torch import nn

from normscope_paper.simulation import density, density_correlation, neighbour_distance


@pytest.mark.parametrize("chunk", [1 << 22, 500])
def test_neighbour_distance_equals_sklearn(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(density, "_CHUNK", chunk)
    z = torch.randn(200, 5, generator=torch.Generator().manual_seed(0))
    u = nn.functional.normalize(z.double())
    for k in (1, 10, 199):
        distances, _ = NearestNeighbors(n_neighbors=k + 1).fit(u.numpy()).kneighbors(u.numpy())
        expected = torch.from_numpy(distances[:, k]).float()
        torch.testing.assert_close(neighbour_distance(z, k=k), expected)


@given(st.lists(st.tuples(st.integers(0, 5), st.floats(-10, 10)), min_size=3, max_size=30))
def test_spearman_equals_scipy_with_ties(pairs: list[tuple[int, float]]) -> None:
    x, y = torch.tensor(pairs, dtype=torch.float64).T
    if len(x.unique()) == 1 or len(y.unique()) == 1:
        assert math.isnan(density._spearman(x, y))
    else:
        expected = spearmanr(x.numpy(), y.numpy()).statistic
        assert density._spearman(x, y) == pytest.approx(expected, abs=1e-12)


def test_density_correlation_takes_classes_apart() -> None:
    z = torch.randn(110, 3, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([0] * 50 + [1] * 45 + [2] * 15)  # class 2 is too small to count
    distance, norm = neighbour_distance(z).numpy(), z.norm(dim=1).numpy()
    result = density_correlation(z, labels)
    assert result.overall == pytest.approx(spearmanr(distance, norm).statistic)
    parts = (slice(0, 50), slice(50, 95))
    within = [spearmanr(distance[part], norm[part]).statistic for part in parts]
    assert result.within == pytest.approx(sum(within) / 2)
    assert math.isnan(density_correlation(z[:30], labels[:30] + torch.arange(30) % 3).within)


def test_bad_embeddings_and_neighbours_are_refused_in_one_line() -> None:
    z = torch.randn(8, 3)
    bad: list[Any] = [0, 8, 1.5, True]
    for k in bad:
        with pytest.raises(ValueError, match=r"^k must be [^\n]+, got"):
            neighbour_distance(z, k=k)
    with pytest.raises(ValueError, match=r"^z must be finite and without zero rows"):
        neighbour_distance(z * (torch.arange(8) > 0)[:, None], k=2)
    with pytest.raises(ValueError, match=r"^labels must be"):
        density_correlation(z, torch.zeros(7, dtype=torch.int64), k=2)
