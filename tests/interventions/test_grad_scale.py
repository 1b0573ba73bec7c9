"""GradScale: identity forward, scaled backward, wherever PyTorch can take it."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from normscope import GradScale, grad_scale
from normscope._sphere import norm_factor

powers = st.sampled_from([-1.0, 0.0, 0.5, 1.0, 2.0])
shapes = st.lists(st.integers(1, 4), min_size=1, max_size=4)


def backward_through(z: Tensor, power: float) -> tuple[Tensor, Tensor]:
    """The gradient sent in and the one that came out."""
    z = z.detach().requires_grad_()
    incoming = torch.randn_like(z)
    (out,) = torch.autograd.grad(grad_scale(z, power), z, incoming)
    return incoming, out


@given(shapes, powers)
def test_grad_scale_multiplies_each_row_by_a_power_of_its_norm(
    shape: list[int], power: float
) -> None:
    z = torch.randn(shape, dtype=torch.float64)
    incoming, out = backward_through(z, power)
    torch.testing.assert_close(out, incoming * z.norm(dim=-1, keepdim=True) ** power)


@given(shapes, powers)
def test_scaling_by_mean_and_by_share_make_up_the_whole(shape: list[int], power: float) -> None:
    z = torch.randn(shape, dtype=torch.float64).requires_grad_()
    sent = torch.randn_like(z)
    by = {
        of: torch.autograd.grad(grad_scale(z, power, of=of), z, sent)[0] for of in ("mean", "share")
    }
    mean = z.detach().norm(dim=-1).mean()
    torch.testing.assert_close(by["mean"], sent * mean**power)
    torch.testing.assert_close(
        by["share"] * mean**power, sent * z.norm(dim=-1, keepdim=True) ** power
    )


@pytest.mark.parametrize("norm", [1e-3, 1.0, 1e3])
def test_grad_scale_power_one_removes_norm_from_gradient(norm: float) -> None:
    direction, t = torch.randn(2, 5, 8)
    z = (norm * direction).requires_grad_()
    torch.cosine_similarity(grad_scale(z, power=1.0), t).sum().backward()
    unit = direction / direction.norm(dim=-1, keepdim=True)
    unit.requires_grad_()
    torch.cosine_similarity(unit, t).sum().backward()
    torch.testing.assert_close(z.grad, unit.grad)


def test_grad_scale_power_zero_adds_nothing_to_the_graph() -> None:
    z = torch.randn(2, 3, requires_grad=True)
    assert grad_scale(z, power=0) is z
    assert GradScale(0)(z) is z


@pytest.mark.parametrize("power", [-1.0, 0.5, 1.0])
def test_grad_scale_gives_zero_rows_a_zero_gradient(power: float) -> None:
    incoming, out = backward_through(torch.tensor([[0.0, 0.0], [3.0, 4.0]]), power)
    assert torch.equal(out[0], torch.zeros(2))
    torch.testing.assert_close(out[1], incoming[1] * 5.0**power)


def test_shares_of_large_norms_and_of_none() -> None:
    norm = torch.full((2, 1), 2e38)
    assert torch.equal(norm_factor(norm, 1.0, "share"), torch.ones(2, 1))
    z = torch.zeros(2, 3, dtype=torch.float64, requires_grad=True)
    for of in ("each", "mean", "share"):
        (first,) = torch.autograd.grad(grad_scale(z, 1.0, of=of).sum(), z, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), z)
        assert not first.any()
        assert not second.any()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_grad_scale_takes_the_norm_of_half_inputs_in_float32(dtype: torch.dtype) -> None:
    z = torch.full((1, 4096), 2000.0, dtype=dtype)  # norm 128,000, beyond float16
    z = z.requires_grad_()
    (out,) = torch.autograd.grad(grad_scale(z), z, torch.full_like(z, 2.0**-14))
    assert out.dtype == dtype
    torch.testing.assert_close(out.float(), torch.full((1, 4096), 7.8125), rtol=1e-2, atol=0)


def test_grad_scale_keeps_values_bit_for_bit_including_infinities_and_nan() -> None:
    z = torch.tensor([[-0.0, torch.inf], [torch.nan, 1.0]])
    out = grad_scale(z)
    assert torch.equal(out.view(torch.int32), z.view(torch.int32))


def test_grad_scale_lets_the_next_layer_work_in_place() -> None:
    net = nn.Sequential(nn.Linear(4, 3), GradScale(), nn.ReLU(inplace=True))
    net(torch.randn(5, 4)).sum().backward()
    assert net[0].weight.grad.isfinite().all()


@pytest.mark.parametrize("size", [1e-30, 1e30])
def test_grad_scale_takes_norms_whose_squares_leave_float32(size: float) -> None:
    incoming, out = backward_through(size * torch.ones(1, 4), 0.5)
    torch.testing.assert_close(out, incoming * (2 * size) ** 0.5)


def test_grad_scale_is_the_identity_under_autocast() -> None:
    layer = nn.Sequential(nn.Linear(4, 3), GradScale())
    x = torch.randn(5, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = layer(x)
        plain = layer[0](x)
        out.sum().backward()
    assert out.dtype == torch.bfloat16
    assert torch.equal(out, plain)
    assert layer[0].weight.grad.isfinite().all()


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # dynamo's
def test_grad_scale_compiles_whole_with_equal_values_and_gradients() -> None:
    def loss(z: Tensor) -> Tensor:
        return torch.cosine_similarity(grad_scale(z, 1.0), torch.arange(3.0), dim=-1).sum()

    z = torch.randn(2, 4, 3, requires_grad=True)
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    (expected,) = torch.autograd.grad(loss(z), z)
    (value,) = torch.autograd.grad(compiled(z), z)
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(compiled(z), loss(z))


def test_grad_scale_works_with_torch_func_grad_vmap_and_jacrev() -> None:
    z, weight = torch.randn(5, 3), torch.randn(3)

    def loss(z: Tensor) -> Tensor:
        return (grad_scale(z, 1.0) * weight).sum()

    expected = weight * z.norm(dim=-1, keepdim=True)
    torch.testing.assert_close(torch.func.grad(loss)(z), expected)
    torch.testing.assert_close(torch.func.vmap(torch.func.grad(loss))(z), expected)
    jacobian = torch.func.jacrev(grad_scale)(z[0])
    torch.testing.assert_close(jacobian, z[0].norm() * torch.eye(3))


def test_grad_scale_second_derivative_is_that_of_the_scaled_gradient() -> None:
    z = torch.tensor([3.0, 4.0], dtype=torch.float64, requires_grad=True)
    (first,) = torch.autograd.grad(grad_scale(z, 1.0).sum(), z, create_graph=True)
    (second,) = torch.autograd.grad(first[0], z)  # d |z| / dz
    torch.testing.assert_close(second, z.detach() / 5)


def test_grad_scale_refuses_what_has_no_norm() -> None:
    with pytest.raises(ValueError, match="z must be a floating-point tensor"):
        grad_scale(torch.ones(2, 2, dtype=torch.int64))
    with pytest.raises(ValueError, match="z must be a floating-point tensor"):
        grad_scale(torch.tensor(1.0))
    for power in (float("nan"), "1", True, None):
        with pytest.raises(ValueError, match="power must be a finite number"):
            GradScale(power)
    with pytest.raises(ValueError, match="of must be 'each', 'mean' or 'share', got 'all'"):
        GradScale(of="all")


@pytest.mark.parametrize("of", ["each", "mean", "share"])
def test_fx_traces_grad_scale_as_one_call(of) -> None:
    net = nn.Sequential(nn.Linear(4, 3), GradScale(0.5, of=of), nn.ReLU())
    traced = torch.fx.symbolic_trace(net)
    called = [node.target for node in traced.graph.nodes if node.op == "call_function"]
    assert called == [grad_scale]
    x = torch.randn(5, 4)
    expected = torch.autograd.grad(net(x).square().sum(), net[0].weight)[0]
    found = torch.autograd.grad(traced(x).square().sum(), traced.get_parameter("0.weight"))[0]
    torch.testing.assert_close(found, expected)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")
def test_torchscript_says_what_to_put_in_its_place() -> None:
    with pytest.raises(RuntimeError, match=r"put nn.Identity\(\) there"):
        torch.jit.script(nn.Sequential(nn.Linear(4, 3), GradScale()))
