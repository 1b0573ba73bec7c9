"""P-values among held-out rows are at least conformal ones, and fall on beyond the highest."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from normscope.confidence.delivered import Delivered
from normscope.confidence.held_out import HeldOut, TwoSided

SCORES = st.one_of(st.floats(-50, 50), st.sampled_from([0.0, 1.0, 2.5]))


@given(st.lists(SCORES, min_size=7, max_size=50), st.lists(SCORES, min_size=1, max_size=9))
def test_p_values_are_at_least_conformal_and_fall_with_the_score(known, asked) -> None:
    asked, held_out = np.sort([*asked, *known]), HeldOut.of(np.array(known))
    bits = held_out.bits(asked)
    p = 2.0**-bits
    conformal = [(1 + sum(k >= s for k in known)) / (len(known) + 1) for s in asked]
    within = asked <= max(known)
    assert (p[within] >= np.array(conformal)[within] * (1 - 1e-12)).all()
    at = np.isin(asked, known)
    np.testing.assert_allclose(p[at], np.array(conformal)[at])
    assert (np.diff(bits) >= -1e-12).all()
    beyond = held_out.bits(np.array([max(known) + 1, max(known) + 2]))
    assert beyond[1] > beyond[0] > bits[within].max()


def test_no_held_out_row_is_called_new_more_often_than_a_level_allows() -> None:
    rng = np.random.default_rng(0)
    for m in (19, 99, 400):
        below = []
        for _ in range(400):
            p = 2.0 ** -HeldOut.of(rng.normal(size=m)).bits(rng.normal(size=50))
            below.append((p <= 0.05).mean())
        assert np.mean(below) < 0.0525
        assert np.mean(below) > 0.05 - 2 / m


def test_both_sides_of_a_norm_are_unusual_and_valid() -> None:
    rng = np.random.default_rng(0)
    found = TwoSided.of(rng.normal(size=2000))
    bits = found.bits(np.array([-6.0, -4.0, 0.0, 4.0, 6.0]))
    assert bits[0] > bits[1] > 8 > 0.1 > bits[2]
    assert bits[4] > bits[3] > 8
    assert (found.bits(rng.normal(size=20_000)) >= -np.log2(0.05)).mean() == pytest.approx(
        0.05, abs=0.01
    )


def test_rows_that_are_all_alike_have_finite_bits() -> None:
    bits = HeldOut.of(np.zeros(30)).bits(np.array([-1.0, 0.0, 1e-9]))
    assert np.isfinite(bits).all()
    assert bits.tolist()[:2] == [0.0, 0.0]
    assert bits[2] > 0


@pytest.mark.parametrize("m", [20, 50, 100])
def test_parts_together_call_no_more_rows_new_than_the_level_with_few_rows(m: int) -> None:
    rng, shares = np.random.default_rng(0), []
    for _ in range(200):
        known, asked = rng.normal(size=(3, m)), rng.normal(size=(3, 500))
        parts = {"norm": TwoSided.of(known[0])}
        parts |= {name: HeldOut.of(row) for name, row in zip("ab", known[1:], strict=True)}
        usual = {name: parts[name].left_out(row) for name, row in zip(parts, known, strict=True)}
        novelty = Delivered.of(tuple(parts), usual, by="test")
        bits = novelty.bits(
            {name: parts[name].bits(row) for name, row in zip(parts, asked, strict=True)}
        )
        shares.append([(bits >= -np.log2(a)).mean() for a in (0.05, 1.001 / (m + 1))])
    assert (np.mean(shares, 0) < [0.055, 1.15 / (m + 1)]).all()
