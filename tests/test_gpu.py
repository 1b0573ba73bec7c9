"""The same answers on a GPU as on the CPU."""

import copy

import pytest
import torch
from torch import nn

import normscope as ns
from normscope.nets import backbone

pytestmark = pytest.mark.gpu


def on_both(function, *tensors: torch.Tensor):
    return function(*tensors), function(*(t.cuda() for t in tensors))


def test_theory_agrees() -> None:
    z, t = torch.randn(2, 5, 8, dtype=torch.float64)
    phi = torch.rand(7, dtype=torch.float64) * 3
    for function, tensors in (
        (ns.theory.cosine_grad, (z, t)),
        (lambda z, t: ns.theory.info_nce_grad(z, t, t[None].expand(5, 5, 8)).anchor, (z, t)),
        (lambda phi: ns.theory.step_gain(phi, 2.0, 0.5), (phi,)),
        (lambda phi: ns.theory.step_gain_bound(phi, 2.0, 0.5), (phi,)),
        (lambda eps: ns.theory.opposite_halves_probability(20, eps), (phi / 4 + 0.01,)),
    ):
        cpu, cuda = on_both(function, *tensors)
        assert cuda.is_cuda
        torch.testing.assert_close(cuda.cpu(), cpu, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("n", [6, 3000])
@pytest.mark.parametrize("tau", [0.01, 0.5])
def test_info_nce_and_its_gradient_agree(n: int, tau: float) -> None:
    z = torch.randn(2, n, 16, dtype=torch.float64)
    grads = []
    for device in ("cpu", "cuda"):
        z1, z2 = z.to(device).requires_grad_()
        loss = ns.losses.info_nce(z1, z2, temperature=tau)
        grads.append([loss.cpu(), *(g.cpu() for g in torch.autograd.grad(loss, (z1, z2)))])
    for cpu, cuda in zip(*grads, strict=True):
        torch.testing.assert_close(cuda, cpu, rtol=1e-9, atol=1e-12)


def test_supervised_info_nce_agrees() -> None:
    z, labels = torch.randn(50, 8, dtype=torch.float64), torch.randint(4, (50,))
    cpu, cuda = on_both(
        lambda z, y: ns.losses.supervised_info_nce(z, y, positives="all"), z, labels
    )
    torch.testing.assert_close(cuda.cpu(), cpu)
    assert ns.losses.supervised_info_nce(z.cuda(), labels.cuda()).isfinite()


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_grad_scale_compiled_under_autocast() -> None:
    net = nn.Sequential(nn.Linear(8, 4), ns.GradScale(1.0)).cuda()
    x = torch.randn(6, 8, device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        out = torch.compile(net, fullgraph=True)(x)
        torch.testing.assert_close(out, net(x))
    out.float().sum().backward()
    assert net[0].weight.grad.isfinite().all()


def test_cut_init_and_probes() -> None:
    net = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Linear(16, 4)).cuda()
    x = torch.randn(32, 8, device="cuda")
    rng = torch.cuda.get_rng_state()
    c = ns.suggest_cut(net, x)
    assert ns.scale_invariant_parameters(net, x) == {"0.weight"}
    assert torch.equal(torch.cuda.get_rng_state(), rng)
    assert ns.cut_init_(net, c)(x).norm(dim=-1).mean().item() == pytest.approx(1, rel=1e-3)
    assert net.cut_init_c.is_cuda


def test_info_nce_by_kernels_agrees_with_float64_and_shows_what_is_not_finite() -> None:
    for n, d, tau in ((1, 8, 0.5), (7, 5, 0.1), (600, 128, 0.1), (1500, 256, 0.5), (40, 512, 0.5)):
        z = torch.randn(2, n, d, device="cuda")
        losses, grads = [], []
        for dtype in (torch.float32, torch.float64):
            z1, z2 = z.clone().to(dtype).requires_grad_()
            loss = ns.losses.info_nce(z1, z2, temperature=tau)
            losses.append(loss.double())
            grads.append([g.double() for g in torch.autograd.grad(loss, (z1, z2))])
        torch.testing.assert_close(*losses, rtol=1e-5, atol=1e-6)
        for own, theirs in zip(*grads, strict=True):
            assert (own - theirs).norm() <= 1e-5 * theirs.norm()
    z[0, 3] = torch.nan
    assert ns.losses.info_nce(*z).isnan()


@pytest.mark.parametrize("name", ["resnet18", "resnet50"])
def test_resnet_by_kernels_is_as_near_to_float64_as_torchs(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = backbone(name, side=32).cuda().to(memory_format=torch.channels_last)
    for layer in net.modules():
        if isinstance(layer, nn.BatchNorm2d):
            nn.init.uniform_(layer.weight, 0.5, 1.0)
    x, dh = torch.randn(16, 3, 32, 32, device="cuda"), torch.randn(16, net.width, device="cuda")

    def found(dtype: torch.dtype) -> list[torch.Tensor]:
        again = copy.deepcopy(net).to(torch.promote_types(dtype, torch.float32))
        with torch.autocast("cuda", torch.bfloat16, enabled=dtype == torch.bfloat16):
            h = again(x.to(torch.promote_types(dtype, torch.float32)))
        h.backward(dh.to(h.dtype))
        return [t.detach().double() for t in (h, *(p.grad for p in again.parameters()))]

    own = found(torch.bfloat16)
    monkeypatch.setattr("normscope.nets.layers.has_kernels", lambda _: False)
    for mine, torchs, exact in zip(own, found(torch.bfloat16), found(torch.float64), strict=True):
        assert (mine - exact).norm() < 1.5 * (torchs - exact).norm() + 1e-3 * exact.norm()
