"""Counts among a kept sample are those of a plain search, however its values lie."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from normscope.confidence.quantiles import Quantiles

VALUES = st.one_of(
    st.floats(0, 1e3), st.sampled_from([1.0, 2.0, 2.5]), st.floats(1e-300, 1e300), st.just(5e-324)
)


@given(sample=st.lists(VALUES, min_size=1, max_size=60), x=st.lists(VALUES, max_size=20))
def test_counts_are_those_of_a_search(sample: list[float], x: list[float]) -> None:
    values = np.sort(sample)
    asked = np.array([*x, *sample, 0.0, np.inf, np.nan])
    below, up_to = Quantiles.of(np.array(sample), most=1000).counts(asked)
    known = ~np.isnan(asked)
    np.testing.assert_array_equal(below[known], np.searchsorted(values, asked[known], "left"))
    np.testing.assert_array_equal(up_to[known], np.searchsorted(values, asked[known], "right"))
    assert np.isnan(below[~known]).all()
    assert np.isnan(up_to[~known]).all()


@pytest.mark.parametrize("outlier", [10.0, 1e9])
def test_one_value_far_away_does_not_spoil_the_others(outlier: float) -> None:
    values = np.append(np.random.default_rng(0).normal(1, 0.1, 10_000), outlier)
    asked = np.random.default_rng(1).normal(1, 0.1, 5000)
    below, _ = Quantiles.of(values, most=len(values)).counts(asked)
    np.testing.assert_array_equal(below, np.searchsorted(np.sort(values), asked))
