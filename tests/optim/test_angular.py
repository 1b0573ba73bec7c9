"""AngularSGD: known angles, kept norms, and what users expect of an optimizer."""

import copy
import io
import math

import pytest
import torch
from torch import nn

from normscope._sphere import angles_between
from normscope.interventions import cut_init_
from normscope.optim import AngularSGD
from normscope.optim.newton_schulz import orthogonalised


def network(*, seed: int = 0, bias: bool = True) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, bias=bias),
        nn.BatchNorm2d(8, eps=1e-12),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3, bias=bias),
        nn.BatchNorm2d(8, eps=1e-12),
        nn.Flatten(),
        nn.Linear(128, 5, bias=bias),
        nn.BatchNorm1d(5, eps=1e-12),
    )


def train(net: nn.Module, optimizer: torch.optim.Optimizer, steps: int, seed: int = 1) -> None:
    generator = torch.Generator().manual_seed(seed)
    dtype = next(net.parameters()).dtype
    for _ in range(steps):
        x = torch.randn(16, 3, 8, 8, generator=generator).to(dtype)
        optimizer.zero_grad()
        (net(x) - x.mean((2, 3)).repeat(1, 2)[:, :5]).square().mean().backward()
        optimizer.step()


def matrices(net: nn.Module) -> list[torch.Tensor]:
    return [p.detach().clone() for p in net.parameters() if p.ndim > 1]


@pytest.mark.parametrize("orthogonal", [True, False])
@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [
        (torch.float64, 1e-9),
        (torch.float32, 1e-5),
        (torch.float16, 0.005),
        (torch.bfloat16, 0.02),
    ],
)
def test_each_step_turns_every_matrix_by_the_learning_rate(dtype, tolerance, orthogonal) -> None:
    net = network().to(dtype)
    optimizer = AngularSGD(net.parameters(), lr=0.1, orthogonal=orthogonal)
    for _ in range(3):
        before = matrices(net)
        train(net, optimizer, 1)
        angles = angles_between(before, matrices(net))
        torch.testing.assert_close(
            angles.double(), torch.full((3,), 0.1, dtype=torch.float64), rtol=tolerance, atol=0
        )


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.bfloat16, 2e-3)])
def test_norms_stay_over_hundreds_of_steps(dtype, tolerance) -> None:
    net = network().to(dtype)
    before = [w.double().norm() for w in matrices(net)]
    train(net, AngularSGD(net.parameters(), lr=0.05), 300)
    after = [w.double().norm() for w in matrices(net)]
    torch.testing.assert_close(after, before, rtol=tolerance, atol=0)


def test_steps_are_those_of_the_formula() -> None:
    torch.manual_seed(0)
    layer = nn.Linear(3, 2).double()
    w, b = layer.weight.detach().clone(), layer.bias.detach().clone()
    optimizer = AngularSGD(
        layer.parameters(), lr=0.1, momentum=0.8, orthogonal=False, scalar_lr=0.5
    )
    v_w, v_b = torch.zeros_like(w), torch.zeros_like(b)
    for _ in range(3):
        optimizer.zero_grad()
        layer(torch.randn(4, 3, dtype=torch.float64)).square().sum().backward()
        assert layer.weight.grad is not None
        assert layer.bias.grad is not None
        v_w = 0.8 * v_w + 0.2 * layer.weight.grad
        v_b = 0.8 * v_b + layer.bias.grad
        w_hat = w / w.norm()
        aside = v_w - (v_w * w_hat).sum() * w_hat
        w = w.norm() * (math.cos(0.1) * w_hat - math.sin(0.1) * aside / aside.norm())
        b = b - 0.5 * v_b
        optimizer.step()
        torch.testing.assert_close(layer.weight.detach(), w)
        torch.testing.assert_close(layer.bias.detach(), b)


@pytest.mark.parametrize("shape", [(2, 6, 20), (3, 20, 6), (1, 1, 7)])
def test_orthogonalised_keeps_singular_vectors_and_brings_values_near_one(shape) -> None:
    v = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = orthogonalised(v)
    values = torch.linalg.svdvals(found)
    assert values.min() > 0.6
    assert values.max() < 1.25
    # U^T found V is diagonal: the same singular vectors
    u, _, vh = torch.linalg.svd(v, full_matrices=False)
    inner = u.mT @ found @ vh.mT
    torch.testing.assert_close(inner, torch.diag_embed(inner.diagonal(dim1=1, dim2=2)))


def test_a_cut_and_a_scaled_loss_change_nothing() -> None:
    nets = [network(bias=False).double() for _ in range(3)]
    weights = {name for name, p in nets[1].named_parameters() if p.ndim > 1}
    cut_init_(nets[1], 30.0, weights)
    for net, scale in zip(nets, (1.0, 1.0, 1e3), strict=True):
        # the rate of gains and biases does depend on the loss's scale
        optimizer = AngularSGD(net.parameters(), lr=0.05, scalar_lr=0.1 / scale)
        for parameter in net.parameters():
            parameter.register_hook(lambda g, scale=scale: g * scale)
        train(net, optimizer, 20)
    x = torch.randn(16, 3, 8, 8, generator=torch.Generator().manual_seed(5)).double()
    expected = nets[0](x)
    for net in nets[1:]:
        torch.testing.assert_close(net(x), expected, rtol=1e-6, atol=1e-8)


def test_a_schedule_acts_on_angles_and_on_scalars() -> None:
    net = network()
    optimizer = AngularSGD(net.parameters(), lr=0.2, momentum=0.0, scalar_lr=0.4)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))
    train(net, optimizer, 1)
    schedule.step()
    norm = net[1]
    assert isinstance(norm, nn.BatchNorm2d)
    before, gain = matrices(net), norm.weight.detach().clone()
    train(net, optimizer, 1)
    assert norm.weight.grad is not None
    angles = angles_between(before, matrices(net))
    torch.testing.assert_close(angles, torch.full((3,), 0.1), rtol=1e-4, atol=0)
    torch.testing.assert_close(norm.weight.detach(), gain - 0.2 * norm.weight.grad)


def test_zero_gradients_and_zero_weights_do_no_harm() -> None:
    still, zero = (nn.Parameter(x) for x in (torch.randn(4, 4), torch.zeros(4, 4)))
    optimizer = AngularSGD([still, zero], lr=0.1, momentum=0.9, scalar_lr=0.5)
    before = still.detach().clone()
    still.grad, zero.grad = torch.zeros(4, 4), torch.ones(4, 4)
    optimizer.step()
    assert torch.equal(still.detach(), before)
    torch.testing.assert_close(zero.detach(), torch.full((4, 4), -0.5))  # plain SGD
    still.grad = torch.randn(4, 4)
    optimizer.step()
    moved = still.detach().clone()
    still.grad = torch.zeros(4, 4)  # momentum alone turns nothing
    optimizer.step()
    assert torch.equal(still.detach(), moved)
    still.grad = still.detach().clone()  # along the weight: nowhere to turn
    AngularSGD([still], lr=0.1, orthogonal=False).step()
    torch.testing.assert_close(still.detach(), moved)


def test_a_gradient_that_is_not_a_number_shows_in_the_weight() -> None:
    weight = nn.Parameter(torch.randn(4, 4))
    for orthogonal in (True, False):
        weight.grad = torch.full((4, 4), math.nan)
        AngularSGD([weight], orthogonal=orthogonal).step()
        assert weight.isnan().all()
        weight.data = torch.randn(4, 4)


def test_a_rate_that_is_a_tensor_stays_where_it_is_when_a_state_is_loaded() -> None:
    saved = AngularSGD([nn.Parameter(torch.ones(2, 2))], lr=0.3).state_dict()
    rate = torch.tensor(0.1)
    optimizer = AngularSGD([nn.Parameter(torch.ones(2, 2))], lr=rate)
    optimizer.load_state_dict(saved)
    assert optimizer.param_groups[0]["lr"] is rate
    assert rate == torch.tensor(0.3)
    plain = AngularSGD([nn.Parameter(torch.ones(2, 2))])
    plain.load_state_dict(optimizer.state_dict())
    assert plain.param_groups[0]["lr"] == pytest.approx(0.3)
    assert not isinstance(plain.param_groups[0]["lr"], torch.Tensor)


def test_parameters_without_gradient_are_left_alone() -> None:
    used, unused = nn.Parameter(torch.ones(2, 2)), nn.Parameter(torch.ones(2, 2))
    used.grad = torch.tensor([[1.0, 0.0], [0.0, 0.0]])
    optimizer = AngularSGD([used, unused])
    optimizer.step()
    assert torch.equal(unused.detach(), torch.ones(2, 2))
    assert unused not in optimizer.state


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_training_goes_on_to_the_bit_from_a_saved_state(dtype) -> None:
    whole = network().to(dtype)
    optimizer = AngularSGD(whole.parameters(), lr=0.05)
    train(whole, optimizer, 4)
    saved = io.BytesIO()
    torch.save({"net": whole.state_dict(), "optimizer": optimizer.state_dict()}, saved)
    saved.seek(0)
    state = torch.load(saved, weights_only=True)
    again = network(seed=3).to(dtype)
    again.load_state_dict(state["net"])
    resumed = AngularSGD(again.parameters(), lr=0.7)
    resumed.load_state_dict(state["optimizer"])
    for net, rule in ((whole, optimizer), (again, resumed)):
        train(net, rule, 4, seed=2)
    for p, q in zip(whole.parameters(), again.parameters(), strict=True):
        assert torch.equal(p, q)


def test_one_matrix_at_a_time_takes_the_same_steps() -> None:
    nets = [network().double() for _ in range(2)]
    for net, foreach in zip(nets, (True, False), strict=True):
        train(net, AngularSGD(net.parameters(), lr=0.05, foreach=foreach), 5)
    for p, q in zip(nets[0].parameters(), nets[1].parameters(), strict=True):
        torch.testing.assert_close(p, q)


def test_memory_format_does_not_change_the_steps() -> None:
    nets = [network().double(), network().double().to(memory_format=torch.channels_last)]
    for net in nets:
        train(net, AngularSGD(net.parameters(), lr=0.05), 5)
    for p, q in zip(nets[0].parameters(), nets[1].parameters(), strict=True):
        torch.testing.assert_close(p, q)


def test_a_view_that_is_not_contiguous_is_turned_too() -> None:
    whole = torch.randn(6, 4)
    weight = nn.Parameter(whole.t())
    before = weight.detach().clone()
    weight.grad = torch.randn(4, 6)
    AngularSGD([weight], lr=0.3).step()
    angle = angles_between([before], [weight.detach()])
    torch.testing.assert_close(angle, torch.tensor([0.3]), rtol=1e-4, atol=0)


def test_step_takes_a_closure() -> None:
    weight = nn.Parameter(torch.tensor([[3.0, 4.0]]))
    optimizer = AngularSGD([weight], lr=0.1)

    def closure() -> float:
        optimizer.zero_grad()
        loss = weight[0, 0].square()
        loss.backward()
        return loss.item()

    assert optimizer.step(closure) == 9
    assert weight[0, 0].item() < 3


def test_groups_have_rates_of_their_own_and_copies_stay_apart() -> None:
    a, b = (nn.Parameter(torch.randn(3, 3)) for _ in range(2))
    before = [a.detach().clone(), b.detach().clone()]
    optimizer = AngularSGD([{"params": [a], "lr": 0.2}, {"params": [b]}], lr=0.1)
    copied = copy.deepcopy(optimizer)
    for p in (a, b):
        p.grad = torch.randn(3, 3)
    optimizer.step()
    angles = angles_between(before, [a.detach(), b.detach()])
    torch.testing.assert_close(angles, torch.tensor([0.2, 0.1]), rtol=1e-4, atol=0)
    assert not copied.state


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lr": 3.6}, "lr must be an angle above 0 and below 1.57 radians, got 3.6"),
        ({"lr": -0.1}, "lr must be an angle"),
        ({"lr": 0}, "lr must be an angle above 0"),
        ({"lr": math.nan}, "lr must be a finite number"),
        ({"momentum": 1.0}, "momentum must be from 0 to below 1, got 1.0"),
        ({"scalar_lr": -1.0}, "scalar_lr must be zero or more"),
    ],
)
def test_wrong_settings_are_refused(options, message) -> None:
    with pytest.raises(ValueError, match=message):
        AngularSGD([nn.Parameter(torch.ones(2, 2))], **options)


def test_what_it_can_not_do_is_refused() -> None:
    weight = nn.Parameter(torch.ones(2, 2))
    with pytest.raises(ValueError, match="weight_decay must be left out"):
        AngularSGD([{"params": [weight], "weight_decay": 0.1}])
    with pytest.raises(ValueError, match="params must be of real numbers"):
        AngularSGD([nn.Parameter(torch.ones(2, 2, dtype=torch.complex64))])
    weight.grad = torch.eye(2).to_sparse()
    with pytest.raises(RuntimeError, match="gradients must be dense"):
        AngularSGD([weight]).step()


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
def test_a_step_never_waits_for_the_gpu_and_can_be_recorded() -> None:
    nets = [network().cuda() for _ in range(2)]
    optimizers = [AngularSGD(net.parameters(), lr=torch.tensor(0.1, device="cuda")) for net in nets]
    for p, q in zip(nets[0].parameters(), nets[1].parameters(), strict=True):
        p.grad = torch.randn_like(p)
        q.grad = p.grad.clone()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for optimizer in optimizers:
            optimizer.step()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        optimizers[1].step()
    for lr in (0.1, 0.02):
        before = matrices(nets[1])
        for optimizer in optimizers:
            optimizer.param_groups[0]["lr"].fill_(lr)
        optimizers[0].step()
        graph.replay()
        angles = angles_between(before, matrices(nets[1]))
        torch.testing.assert_close(angles.cpu(), torch.full((3,), lr), rtol=1e-3, atol=0)
    for p, q in zip(nets[0].parameters(), nets[1].parameters(), strict=True):
        torch.testing.assert_close(p, q)


def recorded_steps(*, fused: bool) -> list[torch.Tensor]:
    """Weights after steps from changing gradients, the last ones of a CUDA graph."""
    generator = torch.Generator("cuda").manual_seed(0)
    shapes = [(512, 64, 3, 3), (64, 64, 3, 3), (64, 3, 3, 3), (70, 300), (300, 70), (20,), (9, 8)]
    ws = [torch.randn(shape, device="cuda", generator=generator) for shape in shapes]
    ws[0] = ws[0].contiguous(memory_format=torch.channels_last)
    ws[-1] *= 0
    params = [nn.Parameter(w) for w in ws]
    lr = torch.tensor(0.1, device="cuda")
    optimizer = AngularSGD(params, lr=lr, fused=fused)
    for _ in range(3):
        for p in params:
            p.grad = torch.empty_like(p).normal_(generator=generator)
        optimizer.step()
    grads = [torch.empty_like(p).normal_(generator=generator) for p in params]
    for p, g in zip(params, grads, strict=True):  # at new addresses
        p.grad = g
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        optimizer.step()
    for rate in (0.1, 0.02, 0.05):
        before = [p.detach().clone() for p in params]
        lr.fill_(rate)
        graph.replay()
        angles = angles_between(before[:-2], [p.detach() for p in params[:-2]])
        torch.testing.assert_close(angles.cpu(), torch.full((5,), rate), rtol=1e-3, atol=0)
        for g in grads:
            g.normal_(generator=generator)
    return [p.detach() for p in params]


@pytest.mark.gpu
def test_kernels_on_a_gpu_take_torchs_steps_and_the_same_ones_each_time() -> None:
    one, two, torchs = (recorded_steps(fused=fused) for fused in (True, True, False))
    for a, b, c in zip(one, two, torchs, strict=True):
        assert torch.equal(a, b)
        assert (a - c).norm() < 0.02 * c.norm(), a.shape  # of products in bfloat16
