"""Closed-form gradients against autograd in float64."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from normscope.theory import cosine_grad, info_nce_grad

sizes = st.integers(1, 8)
dims = st.integers(2, 32)
seeds = st.integers(0, 2**31)
taus = st.floats(-2, 1).map(lambda x: 10**x)  # .01 .. 10


def embeddings(generator: torch.Generator, *shape: int) -> Tensor:
    """Random directions with norms from 1e-3 to 1e3, in float64."""
    z = torch.randn(shape, generator=generator, dtype=torch.float64)
    exponent = 6 * torch.rand(*shape[:-1], 1, generator=generator, dtype=torch.float64) - 3
    return (z / z.norm(dim=-1, keepdim=True) * 10**exponent).requires_grad_()


def cosine(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).sum(-1) / (a.norm(dim=-1) * b.norm(dim=-1))


def worst_row_error(value: Tensor, reference: Tensor) -> float:
    return float(((value.detach() - reference).norm(dim=-1) / reference.norm(dim=-1)).max())


@given(sizes, dims, seeds)
def test_cosine_grad_equals_autograd(n: int, d: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    z, t = embeddings(generator, n, d), embeddings(generator, n, d)
    (expected,) = torch.autograd.grad(-cosine(z, t).sum(), z)
    assert worst_row_error(cosine_grad(z, t), expected) < 1e-9


@given(sizes, dims, seeds)
def test_cosine_grad_is_orthogonal_and_as_long_as_the_paper_says(n: int, d: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    z, t = embeddings(generator, n, d), embeddings(generator, n, d)
    grad = cosine_grad(z, t)
    sine = cosine(z, t).acos().sin()
    torch.testing.assert_close(grad.norm(dim=-1), sine / z.norm(dim=-1), rtol=1e-7, atol=0)
    assert cosine(grad, z).abs().max() < 1e-7


@given(sizes, sizes, dims, taus, seeds)
def test_info_nce_grad_equals_autograd_in_anchor_positive_and_each_negative(
    n: int, m: int, d: int, tau: float, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    z_i, z_j = embeddings(generator, n, d), embeddings(generator, n, d)
    z_l = embeddings(generator, n, m, d)
    # -log(e_j / (e_j + sum_l e_l)), written so that autograd keeps its digits when p_j is near 1
    excess = (cosine(z_i[:, None], z_l) - cosine(z_i, z_j)[:, None]) / tau
    loss = torch.log1p(excess.exp().sum(-1)).sum()
    expected = torch.autograd.grad(loss, (z_i, z_j, z_l))
    for value, reference in zip(
        info_nce_grad(z_i, z_j, z_l, temperature=tau), expected, strict=True
    ):
        assert worst_row_error(value, reference) < 1e-9


def test_info_nce_grad_pushes_a_negative_away_where_the_printed_sign_pulls_it() -> None:
    z_i, z_l = torch.tensor([1.0, 0.0]), torch.tensor([[1.0, 1.0]])
    after = z_l - 0.1 * info_nce_grad(z_i, torch.tensor([0.0, -1.0]), z_l).negatives
    assert cosine(after, z_i) < cosine(z_l, z_i)


def test_info_nce_grad_without_negatives_is_zero() -> None:
    grad = info_nce_grad(torch.ones(3), torch.arange(3.0), torch.empty(0, 3))
    assert grad.anchor.abs().max() == 0
    assert grad.positive.abs().max() == 0


def test_gradients_of_zero_rows_are_zero() -> None:
    z = torch.tensor([[0.0, 0.0], [1.0, 2.0]])
    t = torch.tensor([[1.0, 0.0], [0.0, 0.0]])
    assert torch.equal(cosine_grad(z, t), torch.zeros(2, 2))
    for grad in info_nce_grad(z, t, torch.zeros(2, 3, 2)):
        assert grad.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_gradients_keep_the_dtype_and_work_in_float32(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    z, t, far = (torch.randn(4, 8, generator=generator).to(dtype) for _ in range(3))
    wide = cosine_grad(z.double(), t.double())
    assert cosine_grad(z, t).dtype == dtype
    torch.testing.assert_close(cosine_grad(z, t), wide.to(dtype))
    narrow = info_nce_grad(z, t, far[:, None], temperature=0.1)
    exact = info_nce_grad(z.double(), t.double(), far.double()[:, None], temperature=0.1)
    for value, reference in zip(narrow, exact, strict=True):
        torch.testing.assert_close(value, reference.to(dtype))


def test_gradients_refuse_integers_and_bad_temperatures() -> None:
    z = torch.ones(2, 3)
    with pytest.raises(ValueError, match="z must be a floating-point tensor"):
        cosine_grad(torch.ones(2, 3, dtype=torch.int64), z)
    with pytest.raises(ValueError, match="t must be of dimension 3, as z"):
        cosine_grad(z, z[:, :2])
    with pytest.raises(ValueError, match="temperature must be a positive finite number, got 0"):
        info_nce_grad(z, z, z[None], temperature=0)
