"""The exact gain of a step, its printed bound and its valid one."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from normscope.theory import norm_after_step, printed_bound_fails, step_gain, step_gain_bound

angles = st.floats(0.01, math.pi - 0.01)
log_norms = st.floats(-3, 3)
log_rates = st.floats(-3, 3)


def pair(phi: float, rho: float) -> tuple[Tensor, Tensor]:
    """Two vectors of norm rho at angle phi, in R^3."""
    z = rho * torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64)
    t = rho * torch.tensor([math.cos(phi), math.sin(phi), 0.0], dtype=torch.float64)
    return z.requires_grad_(), t.requires_grad_()


def random_cases(n: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    u = torch.rand(3, n, generator=generator, dtype=torch.float64)
    return math.pi * u[0], 10 ** (4 * u[1] - 2), 10 ** (6 * u[2] - 3)


@given(angles, log_norms, log_rates)
def test_step_gain_and_norm_after_step_equal_a_real_step(
    phi: float, log_rho: float, log_g: float
) -> None:
    rho = 10**log_rho
    gamma = 10**log_g * rho**2
    z, t = pair(phi, rho)
    cosine = torch.cosine_similarity(z, t, dim=0, eps=0)
    grad_z, grad_t = torch.autograd.grad(-cosine, (z, t))
    z2, t2 = z - gamma * grad_z, t - gamma * grad_t
    gain = torch.cosine_similarity(z2, t2, dim=0, eps=0) - cosine
    # both cosines are of order one, so the difference is good to a few units in the 16th place
    torch.testing.assert_close(step_gain(phi, rho, gamma), gain, rtol=1e-9, atol=1e-14)
    predicted = norm_after_step(z.norm(), grad_z.norm(), gamma)
    torch.testing.assert_close(predicted, z2.norm(), rtol=1e-12, atol=0)


def test_printed_bound_is_beaten_by_the_counterexample() -> None:
    phi = 0.75 * math.pi
    gain = step_gain(phi, 1.0, 1.0)
    assert gain > step_gain_bound(phi, 1.0, 1.0, kind="paper")
    assert gain < step_gain_bound(phi, 1.0, 1.0, kind="valid")
    assert gain.item() == pytest.approx(1.138, abs=5e-4)


def test_valid_bound_holds_and_printed_bound_fails_just_where_said_on_a_million_cases() -> None:
    phi, rho, gamma = random_cases(1_000_000)
    gain = step_gain(phi, rho, gamma)
    rounding = 1 + 1e-12
    assert (gain <= step_gain_bound(phi, rho, gamma, kind="valid") * rounding).all()
    fails = printed_bound_fails(phi, rho, gamma)
    printed = step_gain_bound(phi, rho, gamma, kind="paper")
    assert (gain[fails] * rounding >= printed[fails]).all()
    assert (gain[~fails] <= printed[~fails] * rounding).all()
    assert 0.1 < fails.double().mean() < 0.5  # neither side of the claim is empty


def test_bounds_agree_for_acute_angles() -> None:
    phi = torch.linspace(0, math.pi / 2, 50, dtype=torch.float64)
    paper = step_gain_bound(phi, 0.3, 2.0, kind="paper")
    torch.testing.assert_close(step_gain_bound(phi, 0.3, 2.0), paper)


def test_step_gain_is_finite_for_absurd_steps_in_float32() -> None:
    gain = step_gain(torch.tensor([0.5, 2.0]), rho=1e-12, gamma=10.0)
    assert gain.isfinite().all()
    # both turn by a right angle, so the pair ends as far apart as it began, turned inside out
    torch.testing.assert_close(gain, -2 * torch.tensor([0.5, 2.0]).cos())


def test_steps_broadcast_and_keep_the_dtype() -> None:
    phi, rho = torch.rand(3, 1), torch.rand(4) + 1
    assert step_gain(phi, rho, 0.1).shape == (3, 4)
    assert step_gain(phi.half(), 1.0, 0.1).dtype == torch.float16
    assert step_gain_bound(1, 2, 3).dtype == torch.float64
    assert norm_after_step(torch.ones(2, dtype=torch.int64), 1.0, 1.0).dtype == torch.float32


def test_step_gain_bound_refuses_an_unknown_kind() -> None:
    with pytest.raises(ValueError, match="kind must be 'valid' or 'paper', got 'printed'"):
        step_gain_bound(1.0, 1.0, 1.0, kind="printed")
