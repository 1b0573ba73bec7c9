"""info_nce against Equation 1 as plain loops, and against autograd."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from normscope import theory
from normscope.losses import info_nce, partition

taus = st.floats(-2, 1).map(lambda x: 10**x)  # .01 .. 10


def plain_loops(z1: Tensor, z2: Tensor, tau: float) -> float:
    """Equation 1, one anchor at a time."""
    z = [row / row.norm() for row in torch.cat([z1, z2])]
    n, total = len(z1), 0.0
    for i in range(2 * n):
        j = (i + n) % (2 * n)
        denominator = sum(math.exp(z[i].dot(z[k]) / tau) for k in range(2 * n) if k != i)
        total -= math.log(math.exp(z[i].dot(z[j]) / tau) / denominator)
    return total / (2 * n)


def full_matrix(z1: Tensor, z2: Tensor, tau: float) -> Tensor:
    u = torch.nn.functional.normalize(torch.cat([z1, z2]), dim=1)
    s = (u @ u.T / tau).fill_diagonal_(-math.inf)
    return torch.nn.functional.cross_entropy(s, torch.arange(len(u)).roll(len(z1)))


def views(n: int, d: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    """Two views with norms from 1e-3 to 1e3."""
    generator = torch.Generator().manual_seed(seed)
    z = torch.randn(2, n, d, generator=generator, dtype=torch.float64)
    exponent = 6 * torch.rand(2, n, 1, generator=generator, dtype=torch.float64) - 3
    z = z / z.norm(dim=-1, keepdim=True) * 10**exponent
    return [v.to(dtype).requires_grad_() for v in z]


def relative_error(value: Tensor, reference: Tensor) -> float:
    return ((value - reference).norm() / reference.norm()).item()


@pytest.fixture
def _small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(partition._TILE, "cpu", 7)  # up to 8 tiles a side; 4 tiles in all are kept


@given(st.integers(1, 6), st.integers(1, 8), taus, st.integers(0, 2**31))
def test_info_nce_equals_the_papers_sum(n: int, d: int, tau: float, seed: int) -> None:
    z1, z2 = views(n, d, seed)
    value = info_nce(z1, z2, temperature=tau).item()
    assert value == pytest.approx(plain_loops(z1.detach(), z2.detach(), tau), rel=1e-9, abs=1e-9)


@pytest.mark.usefixtures("_small_tiles")
@pytest.mark.parametrize("tau", [0.01, 0.1, 0.5, 10.0])
@pytest.mark.parametrize("n", [2, 3, 7, 10, 25])
def test_info_nce_gradients_equal_autograds_whatever_the_tiling(n: int, tau: float) -> None:
    z1, z2 = views(n, 5)
    value, expected = info_nce(z1, z2, temperature=tau), full_matrix(z1, z2, tau)
    torch.testing.assert_close(value, expected, rtol=1e-12, atol=1e-12)
    for a, b in zip(
        torch.autograd.grad(3 * value, (z1, z2)),
        torch.autograd.grad(3 * expected, (z1, z2)),
        strict=True,
    ):
        assert relative_error(a, b) < 1e-9


def test_info_nce_gradient_is_the_sum_of_the_closed_forms() -> None:
    n, tau = 4, 0.3
    z1, z2 = views(n, 6)
    grads = torch.cat(torch.autograd.grad(info_nce(z1, z2, temperature=tau), (z1, z2)))
    z = torch.cat([z1, z2]).detach()
    expected = torch.zeros_like(z)
    for i in range(2 * n):
        j = (i + n) % (2 * n)
        negatives = [k for k in range(2 * n) if k not in (i, j)]
        term = theory.info_nce_grad(z[i], z[j], z[negatives], temperature=tau)
        expected[i] += term.anchor / (2 * n)
        expected[j] += term.positive / (2 * n)
        expected[negatives] += term.negatives / (2 * n)
    assert relative_error(grads, expected) < 1e-9


@pytest.mark.usefixtures("_small_tiles")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_info_nce_accumulates_in_float32_down_to_a_temperature_of_one_hundredth(dtype) -> None:
    z1, z2 = (z.detach().to(dtype).requires_grad_() for z in torch.randn(2, 64, 16))
    loss = info_nce(z1, z2, temperature=0.01)
    exact = full_matrix(z1.double(), z2.double(), 0.01)
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(exact.item(), rel=1e-5)
    grads = torch.autograd.grad(loss, (z1, z2))
    for value, reference in zip(grads, torch.autograd.grad(exact, (z1, z2)), strict=True):
        assert value.dtype == dtype
        # a half's own spacing, else what float32 leaves of a similarity divided by .01
        tolerance = 1e-4 if dtype == torch.float32 else torch.finfo(dtype).eps
        assert relative_error(value.double(), reference.double()) < tolerance


@pytest.mark.parametrize("noise", [0.1, 0.001])
@pytest.mark.parametrize("tau", [0.01, 0.05, 0.5])
def test_info_nce_keeps_its_digits_when_positives_are_aligned(noise: float, tau: float) -> None:
    a = torch.randn(64, 128)
    b = a + noise * torch.randn(64, 128)
    grads = []
    for dtype in (torch.float32, torch.float64):
        z1, z2 = (z.to(dtype).requires_grad_() for z in (a, b))
        loss = info_nce(z1, z2, temperature=tau)
        grads.append((loss, torch.autograd.grad(loss, z1)[0]))
    (loss, grad), (exact_loss, exact_grad) = grads
    # a cosine's rounding over tau, and the pair's own angle, of which float32 sees 1e-7 / noise^2
    tolerance = 2e-5 / tau if noise > 0.01 else 0.05
    assert loss.item() == pytest.approx(exact_loss.item(), rel=tolerance, abs=1e-37)
    assert (grad.double() - exact_grad).norm() <= tolerance * exact_grad.norm() + 1e-37


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_info_nce_of_opposite_views_at_a_low_temperature_is_finite(dtype: torch.dtype) -> None:
    # the first row is opposite to all others: each similarity over tau is near -100
    z1 = torch.tensor([[1.0, 0.0], [-1.0, 0.1]], dtype=dtype, requires_grad=True)
    z2 = torch.tensor([[-1.0, 0.02], [-1.0, -0.1]], dtype=dtype, requires_grad=True)
    loss = info_nce(z1, z2, temperature=0.01)
    torch.testing.assert_close(loss, full_matrix(z1, z2, 0.01), rtol=1e-5, atol=0)
    assert all(g.isfinite().all() for g in torch.autograd.grad(loss, (z1, z2)))


@pytest.mark.parametrize("size", [1e-30, 1e30])
def test_info_nce_takes_norms_whose_squares_leave_float32(size: float) -> None:
    z1, z2 = torch.randn(2, 5, 4)
    torch.testing.assert_close(info_nce(size * z1, z2), info_nce(z1, z2))


def saved_bytes(n: int) -> int:
    """What the graph of one loss keeps for its backward pass."""
    total = 0

    def pack(t: Tensor) -> Tensor:
        nonlocal total
        total += t.numel() * t.element_size()
        return t

    z1, z2 = views(n, 8, dtype=torch.float32)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        info_nce(z1, z2)
    return total


@pytest.mark.usefixtures("_small_tiles")
def test_info_nce_keeps_memory_linear_in_n() -> None:
    assert saved_bytes(400) < 2.1 * saved_bytes(200)


@pytest.mark.usefixtures("_small_tiles")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # dynamo's own
def test_info_nce_compiles_with_more_tiles_than_are_kept() -> None:
    z1, z2 = views(20, 4)
    loss = torch.compile(info_nce, backend="aot_eager")(z1, z2)
    torch.testing.assert_close(loss, info_nce(z1, z2))
    torch.testing.assert_close(
        torch.autograd.grad(loss, z1), torch.autograd.grad(info_nce(z1, z2), z1)
    )


def test_info_nce_ignores_autocast() -> None:
    z1, z2 = views(20, 8, dtype=torch.float32)
    expected = torch.autograd.grad(info_nce(z1, z2, temperature=0.05), (z1, z2))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = info_nce(z1, z2, temperature=0.05)
        grads = torch.autograd.grad(loss, (z1, z2))
    assert torch.equal(loss, info_nce(z1, z2, temperature=0.05))
    assert all(torch.equal(a, b) for a, b in zip(grads, expected, strict=True))


def test_info_nce_gives_a_zero_row_no_gradient_and_the_others_finite_ones() -> None:
    z1, z2 = (z.requires_grad_() for z in torch.randn(2, 4, 3))
    with torch.no_grad():
        z1[1] = 0
    loss = info_nce(z1, z2, temperature=0.1)
    g1, g2 = torch.autograd.grad(loss, (z1, z2))
    assert loss.isfinite()
    assert torch.equal(g1[1], torch.zeros(3))
    assert g1.isfinite().all()
    assert g2.isfinite().all()


def test_info_nce_of_a_single_pair_is_zero_with_zero_gradient() -> None:
    z1, z2 = views(1, 3)
    loss = info_nce(z1, z2)
    assert loss.item() == 0
    for grad in torch.autograd.grad(loss, (z1, z2)):
        assert torch.equal(grad, torch.zeros(1, 3, dtype=torch.float64))


def test_info_nce_is_symmetric_and_blind_to_norms() -> None:
    z1, z2 = views(5, 4)
    loss = info_nce(z1, z2)
    torch.testing.assert_close(info_nce(z2, z1), loss)
    torch.testing.assert_close(info_nce(7 * z1, 0.1 * z2), loss)


def test_info_nce_refuses_a_second_derivative_rather_than_leave_part_of_it_out() -> None:
    z1, z2 = views(5, 4)
    with pytest.raises(RuntimeError, match="InfoNCE must be differentiated once"):
        torch.autograd.grad(info_nce(z1, z2), z1, create_graph=True)


def test_info_nce_gather_alone_changes_nothing() -> None:
    z1, z2 = views(5, 4)
    assert torch.equal(info_nce(z1, z2, gather=True), info_nce(z1, z2))


def test_info_nce_makes_no_tensor_larger_than_a_tile() -> None:
    """Nothing that any operation returns, forward or backward, grows with n squared."""
    n, largest = 2048, 0

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            nonlocal largest
            out = func(*args, **(kwargs or {}))
            for t in torch.utils._pytree.tree_leaves(out):
                if isinstance(t, Tensor):
                    largest = max(largest, t.numel())
            return out

    z1, z2 = views(n, 8, dtype=torch.float32)
    with Watch():
        info_nce(z1, z2).backward()
    assert z1.grad is not None
    assert largest <= 1024 * 1024 < (2 * n) ** 2 / 15


@pytest.mark.parametrize(
    ("z1", "z2", "message"),
    [
        (torch.ones(3), torch.ones(3), r"z1 must be a floating-point tensor \(n, d\)"),
        (torch.ones(3, 2), torch.ones(2, 3), r"z2 must be like z1, a float32 tensor of shape"),
        (torch.ones(3, 2), torch.ones(3, 2).double(), "z2 must be like z1"),
        (torch.ones(3, 2).long(), torch.ones(3, 2).long(), "z1 must be a floating-point"),
        (torch.ones(0, 2), torch.ones(0, 2), "z1 must be at least one row"),
        ([[1.0]], [[1.0]], "z1 must be a floating-point tensor .* got a list"),
    ],
)
def test_info_nce_refuses_wrong_shapes_and_dtypes(z1, z2, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        info_nce(z1, z2)


def test_info_nce_refuses_temperatures_that_float64_cannot_hold() -> None:
    with pytest.raises(ValueError, match=r"temperature must be at least 0\.003, got 0\.001"):
        info_nce(torch.ones(2, 2), torch.ones(2, 2), temperature=0.001)


@pytest.mark.parametrize("tau", [0, -0.5, math.nan, math.inf, "0.5", None, torch.tensor(0.5)])
def test_info_nce_refuses_wrong_temperatures(tau) -> None:
    with pytest.raises(ValueError, match="temperature must be a positive finite number"):
        info_nce(torch.ones(2, 2), torch.ones(2, 2), temperature=tau)
