"""The exact Beta tail against SciPy and elementary cases."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import betainc, betaincc

from normscope.theory import opposite_halves_bound, opposite_halves_probability


@given(st.integers(2, 3000), st.floats(1e-6, 1 - 1e-6))
def test_probability_equals_scipys_beta_tail(d: int, eps: float) -> None:
    a = (d - 1) / 2
    if eps < 0.5:
        expected = betainc(a, 0.5, eps * (2 - eps)) / 2
    else:  # the other tail, whose argument keeps its digits here
        expected = betaincc(0.5, a, (1 - eps) ** 2) / 2
    value = opposite_halves_probability(d, eps).item()
    assert value == pytest.approx(expected, rel=1e-9, abs=1e-300)


@given(st.floats(1e-6, 1 - 1e-6))
def test_probability_is_elementary_in_one_two_and_three_dimensions(eps: float) -> None:
    one, two, three = opposite_halves_probability(torch.tensor([1, 2, 3]), eps).tolist()
    assert one == 0.5
    assert two == pytest.approx(math.atan2(math.sqrt(eps * (2 - eps)), 1 - eps) / math.pi)
    assert three == pytest.approx(eps / 2)


def test_probability_is_the_share_of_random_pairs() -> None:
    x, y = torch.randn(2, 200_000, 6, generator=torch.Generator().manual_seed(0))
    share = (torch.cosine_similarity(x, y) >= 0.7).double().mean().item()
    p = opposite_halves_probability(6, 0.3).item()
    assert share == pytest.approx(p, abs=4 * math.sqrt(p / 200_000))


def test_bound_holds_everywhere_and_is_loose() -> None:
    d, eps = torch.arange(1, 500)[:, None], torch.linspace(0.001, 0.999, 200, dtype=torch.float64)
    assert (opposite_halves_probability(d, eps) <= opposite_halves_bound(d, eps)).all()
    assert opposite_halves_bound(20, 0.1).item() == pytest.approx(1 / (2 * 20 * 0.81))
    assert opposite_halves_bound(20, 0.1) > 1e6 * opposite_halves_probability(20, 0.1)


def test_dtype_follows_eps() -> None:
    eps = torch.tensor([0.1, 0.2])
    assert opposite_halves_probability(8, eps).dtype == torch.float32
    assert opposite_halves_bound(8, eps).dtype == torch.float32


@pytest.mark.parametrize(("d", "eps"), [(0, 0.1), (2.5, 0.1), (3, 0.0), (3, 1.0), (3, -1.0)])
def test_impossible_dimensions_and_distances_are_refused(d: int, eps: float) -> None:
    for function in (opposite_halves_bound, opposite_halves_probability):
        with pytest.raises(ValueError, match=r"must be (a whole number|between 0 and 1)"):
            function(d, eps)
