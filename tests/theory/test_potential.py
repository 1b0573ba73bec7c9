"""GradScale's field has no potential."""

import pytest
import torch

from normscope import grad_scale
from normscope.theory import grad_scale_field, grad_scale_work, path_integral


@pytest.mark.parametrize("power", [-1.0, 0.0, 0.5, 1.0, 2.0])
def test_work_differs_between_two_paths_unless_the_power_is_zero(power: float) -> None:
    work = grad_scale_work(power)
    assert work.inside.item() == pytest.approx(-2, rel=1e-12)
    assert work.outside.item() == pytest.approx(-(2 ** (power + 1)), rel=1e-12)
    assert (abs(work.outside - work.inside) < 1e-12) == (power == 0)


def test_path_integral_of_a_gradient_is_the_difference_of_its_potential() -> None:
    a, b = torch.randn(2, 3, dtype=torch.float64)
    value = path_integral(lambda z: 2 * z, lambda s: a + (s**2)[:, None] * (b - a))
    torch.testing.assert_close(value, b.dot(b) - a.dot(a))


def test_field_is_what_grad_scale_sends_back() -> None:
    z = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    t = torch.randn(5, 3, dtype=torch.float64)
    torch.cosine_similarity(grad_scale(z, power=1.5), t).sum().backward()
    torch.testing.assert_close(z.grad, grad_scale_field(z.detach(), t, power=1.5))
