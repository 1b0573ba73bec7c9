"""Norms and directions, and their gradients, which are written down rather than traced."""

import pytest
import torch

from normscope._sphere import angles_between, safe_norm, unit


@pytest.mark.parametrize("part", [lambda z: unit(z)[0], lambda z: unit(z)[1], safe_norm, unit])
def test_gradients_are_those_of_the_formula_twice_over(part) -> None:
    z = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(part, (z,))
    assert torch.autograd.gradgradcheck(part, (z,))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_narrow_numbers_are_worked_on_in_float32_and_get_their_own_gradient(dtype) -> None:
    z = torch.tensor([[3.0, 4.0]], dtype=dtype, requires_grad=True)
    direction, norm = unit(z)
    assert direction.dtype == norm.dtype == safe_norm(z).dtype == torch.float32
    (direction[:, 0] + 2 * norm[:, 0]).sum().backward()
    expected = torch.tensor([[0.128 + 1.2, -0.096 + 1.6]])  # (e_1 - .6 u) / 5 + 2 u
    assert z.grad is not None
    assert z.grad.dtype == dtype
    torch.testing.assert_close(z.grad.float(), expected, rtol=1e-2, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_zero_rows_have_no_direction_and_no_gradient(dtype: torch.dtype) -> None:
    z = torch.zeros(2, 3, dtype=dtype, requires_grad=True)
    direction, norm = unit(z)
    (direction.sum() + (1 / norm).sum() + safe_norm(z).sum()).backward()
    assert direction.eq(0).all()
    assert norm.isinf().all()
    assert z.grad is not None
    assert z.grad.eq(0).all()


@pytest.mark.parametrize(
    ("dtype", "size"),
    [
        (torch.float32, 1e-40),
        (torch.float32, 1e38),
        (torch.float64, 1e-300),
        (torch.float64, 1e300),
    ],
)
def test_squares_that_leave_the_dtype_do_no_harm(dtype: torch.dtype, size: float) -> None:
    z = torch.tensor([[0.6 * size, 0.8 * size]], dtype=dtype, requires_grad=True)
    norm = safe_norm(z)
    norm.backward()
    assert norm.item() == pytest.approx(size, rel=1e-4)
    assert z.grad is not None
    assert z.grad.flatten().tolist() == pytest.approx([0.6, 0.8], rel=1e-4)
    torch.testing.assert_close(
        unit(z)[0].detach(), torch.tensor([[0.6, 0.8]], dtype=dtype), rtol=1e-4, atol=0
    )


def test_small_angles_keep_their_digits_in_float32() -> None:
    before = torch.randn(1000, generator=torch.Generator().manual_seed(0))
    aside = torch.zeros(1000)
    aside[0], aside[1] = -before[1], before[0]  # orthogonal to it
    for tangent in (1e-5, 1e-2, 1.0):
        after = before.double() + tangent * aside * before.norm() / aside.norm()
        angle = angles_between([before], [3 * after.float()])
        torch.testing.assert_close(angle, torch.tensor([tangent]).atan(), rtol=2e-3, atol=0)
