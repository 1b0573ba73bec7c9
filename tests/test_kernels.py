"""GPU kernels; where there is no GPU, one element after the other by Triton's interpreter."""

import builtins
import copy
import gc
import weakref
from collections.abc import Iterator
from importlib import import_module

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from normscope.losses import info_nce

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
interpreter = pytest.importorskip("triton.runtime.interpreter")

from normscope.losses.fused import FusedInfoNCE  # noqa: E402
from normscope.nets import fused, layers, mlp, resnet10_narrow  # noqa: E402
from normscope.optim import AngularSGD  # noqa: E402
from normscope.optim import fused as turns  # noqa: E402

ANGULAR = import_module("normscope.optim.angular")  # a function has its name


class _Kind(type):
    def __instancecheck__(cls, x: object) -> bool:
        return isinstance(x, builtins.int)


class _Int(builtins.int, metaclass=_Kind):
    """The interpreter makes ints of arrays of one number, which numpy has come to refuse."""

    def __new__(cls, x=0):
        return builtins.int(x.item() if isinstance(x, np.ndarray) else x)


@pytest.fixture(autouse=True)
def _interpreter(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    if DEVICE == "cpu":
        monkeypatch.setattr(interpreter, "int", _Int, raising=False)
    with torch.device(DEVICE):
        yield


def images(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape).to(dtype).contiguous(memory_format=torch.channels_last)


def relative(a: Tensor | None, b: Tensor | None) -> float:
    assert a is not None
    assert b is not None
    return float((a.detach().double() - b.detach()).norm() / b.detach().norm())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("readers", [1, 2])
@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("has_residual", [False, True])
@pytest.mark.parametrize("c", [16, 128])
def test_norm_relu_and_its_gradients_are_torchs(c, has_residual, relu, readers, dtype) -> None:
    torch.manual_seed(c + readers)
    shape = (5, c, 3, 7)
    x0 = images(*shape, dtype=dtype) * 2 + 30  # far from zero, where squares would cancel
    r0, *dys = (images(*shape, dtype=dtype) for _ in range(1 + readers))
    norm, reference = nn.BatchNorm2d(c), nn.BatchNorm2d(c, dtype=torch.float64)
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    reference.load_state_dict(norm.state_dict())

    x, r = x0.clone().requires_grad_(), r0.clone().requires_grad_()
    residual = r if has_residual else None
    ys = fused.NormReLU.apply(x, norm.weight, norm.bias, residual, norm, relu)
    torch.autograd.backward(ys[:readers], dys)

    x_ref, r_ref = (t.double().requires_grad_() for t in (x0, r0))
    y_ref = reference(x_ref) + (r_ref if has_residual else 0)
    y_ref = y_ref.relu() if relu else y_ref
    y_ref.backward(torch.stack(dys).double().sum(0))

    near = 2e-5 if dtype == torch.float32 else 8e-3
    assert relative(ys[0], y_ref) < near
    assert relative(x.grad, x_ref.grad) < near
    assert relative(norm.weight.grad, reference.weight.grad) < near
    assert relative(norm.bias.grad, reference.bias.grad) < near
    assert relative(norm.running_mean, reference.running_mean) < 1e-6
    assert relative(norm.running_var, reference.running_var) < 1e-5
    assert norm.num_batches_tracked == 1
    if has_residual:
        assert relative(r.grad, r_ref.grad) < near


def test_norm_takes_a_residual_of_another_layout() -> None:
    norm, x = nn.BatchNorm2d(16), images(3, 16, 4, 5)
    r = torch.randn(3, 16, 4, 5)
    y, _ = fused.NormReLU.apply(x, norm.weight, norm.bias, r, norm, True)
    torch.testing.assert_close(y, nn.BatchNorm2d(16)(x).add(r).relu())


def test_fused_resnet_and_its_gradients_are_torchs() -> None:
    net = resnet10_narrow().to(memory_format=torch.channels_last)
    for layer in net.modules():
        if isinstance(layer, nn.BatchNorm2d):
            nn.init.uniform_(layer.weight, 0.5, 1.5)  # a fresh block passes its shortcut on
            nn.init.normal_(layer.bias, std=0.1)
    plain = copy.deepcopy(net).double()
    x, dh = images(6, 3, 8, 8), torch.randn(6, net.width)
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        layers.fused_features(net, x).backward(dh)
    plain(x.double()).backward(dh.double())
    for (name, own), theirs in zip(net.named_parameters(), plain.parameters(), strict=True):
        assert relative(own.grad, theirs.grad) < 1e-4, name
    for (name, own), theirs in zip(net.named_buffers(), plain.buffers(), strict=True):
        torch.testing.assert_close(own.double(), theirs.double(), rtol=1e-4, atol=1e-6, msg=name)


def test_fused_norms_keep_nothing_once_their_output_is_gone() -> None:
    norm, x = nn.BatchNorm2d(16), images(3, 16, 4, 5).requires_grad_()
    y, twin = layers._norm(norm, x)
    gone = weakref.ref(y)
    del y, twin
    gc.collect()
    assert gone() is None


def test_fused_norm_shows_what_is_not_finite() -> None:
    norm, x = nn.BatchNorm2d(16), images(3, 16, 4, 5)
    x[1, 3, 2, 2] = torch.nan
    y, _ = layers._norm(norm, x)
    assert y[:, 3].isnan().all()
    assert y[:, :3].isfinite().all()


def test_fused_head_and_its_gradients_are_torchs(monkeypatch) -> None:
    monkeypatch.setattr(layers, "has_kernels", lambda x: x.dtype == torch.float32)
    head = mlp([8, 32, 64, 4], batch_norm=True)
    plain, x, dz = copy.deepcopy(head).double(), torch.randn(11, 8), torch.randn(11, 4)
    head(x).backward(dz)
    plain(x.double()).backward(dz.double())
    for (name, own), theirs in zip(head.named_parameters(), plain.parameters(), strict=True):
        assert relative(own.grad, theirs.grad) < 1e-5, name
    assert head[1].num_batches_tracked == 1


@pytest.mark.parametrize("change", ["nothing", "hook", "eval", "layer", "double", "gradient"])
def test_kernels_are_for_a_network_as_it_was_built(change, monkeypatch) -> None:
    monkeypatch.setattr(layers, "has_kernels", lambda _: True)
    net, x = resnet10_narrow(), images(2, 3, 8, 8)
    blocks = tuple({type(block) for block in net.layer1})
    if change == "hook":
        net.layer2.register_forward_hook(lambda *_: None)
    elif change == "eval":
        net.eval()
    elif change == "layer":
        net.layer1[0].bn2 = nn.GroupNorm(4, 16)
    elif change == "double":
        x = x.double()
    elif change == "gradient":
        x.requires_grad_()
    assert layers.fuses(net, blocks, x) == (change == "nothing")


def test_patches_times_weights_are_a_convolution() -> None:
    x, weight = images(3, 3, 5, 8), torch.randn(7, 3, 3, 3)
    flat = F.pad(weight.permute(0, 2, 3, 1).flatten(1), (0, fused.PATCH - 27))
    y = F.linear(fused.patches(x, torch.float32), flat).permute(0, 3, 1, 2)
    torch.testing.assert_close(y, F.conv2d(x, weight, padding=1), rtol=1e-5, atol=1e-5)


@pytest.mark.filterwarnings("ignore:divide by zero")  # one pair has no negatives: log 0
@pytest.mark.parametrize(
    ("n", "d", "tau"), [(1, 5, 0.5), (2, 3, 0.5), (9, 20, 0.1), (200, 40, 0.03), (3, 600, 0.5)]
)
def test_fused_info_nce_and_its_gradient_are_the_tiled_ones(
    n: int, d: int, tau: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    # of 400 rows there are four tiles: two for each share, and two chunks
    monkeypatch.setattr("normscope.losses.fused._CHUNK", 256)
    monkeypatch.setattr("normscope.losses.fused._SHARES", 2)
    torch.manual_seed(n)
    z = torch.randn(2, n, d) * torch.tensor([1e-8, 1e12])[torch.randint(2, (2, n, 1))]
    w1, w2 = (part.double().requires_grad_() for part in z)
    z1, z2 = (part.T.contiguous().T.requires_grad_() for part in z)  # columns first
    loss: Tensor = FusedInfoNCE.apply(z1, z2, tau)
    reference = info_nce(w1, w2, temperature=tau)
    torch.testing.assert_close(loss.double(), reference, rtol=1e-6, atol=1e-9)
    (3 * loss).backward()
    (3 * reference).backward()
    for own, theirs in ((z1, w1), (z2, w2)):
        assert own.grad is not None
        assert theirs.grad is not None
        for a, b in zip(own.grad, theirs.grad, strict=True):  # norms are of every size
            torch.testing.assert_close(a.double(), b, rtol=1e-4, atol=1e-5 * float(b.abs().max()))


def test_fused_info_nce_of_half_precision_and_zero_rows() -> None:
    z1, z2 = torch.randn(2, 6, 4).bfloat16()
    z1[2] = 0
    z1, z2 = z1.requires_grad_(), z2.requires_grad_()
    loss: Tensor = FusedInfoNCE.apply(z1, z2, 0.5)
    torch.testing.assert_close(loss, info_nce(z1.float(), z2.float(), temperature=0.5))
    loss.backward()
    assert z1.grad is not None
    assert z1.grad.dtype == torch.bfloat16
    assert z1.grad[2].count_nonzero() == 0
    assert z1.grad.isfinite().all()


def test_fused_info_nce_of_pairs_that_align_keeps_its_digits() -> None:
    u1, u2 = torch.eye(2, 40).requires_grad_(), torch.eye(2, 40).requires_grad_()
    w1, w2 = (u.detach().double().requires_grad_() for u in (u1, u2))
    loss: Tensor = FusedInfoNCE.apply(u1, u2, 0.05)
    reference = info_nce(w1, w2, temperature=0.05)
    loss.backward()
    reference.backward()
    assert 0 < reference < 1e-7
    torch.testing.assert_close(loss.double(), reference, rtol=1e-5, atol=0)
    torch.testing.assert_close(u1.grad.double(), w1.grad, rtol=1e-4, atol=0)


def test_fused_info_nce_under_autocast_is_the_same() -> None:
    z1, z2 = torch.randn(2, 6, 40, requires_grad=True)
    own = torch.autograd.grad(FusedInfoNCE.apply(z1, z2, 0.5), z1)
    with torch.autocast(DEVICE, torch.bfloat16):
        again = torch.autograd.grad(FusedInfoNCE.apply(z1, z2, 0.5), z1)
    torch.testing.assert_close(own, again, rtol=0, atol=0)


def test_fused_info_nce_refuses_a_second_derivative() -> None:
    z1, z2 = torch.randn(2, 4, 3, requires_grad=True)
    with pytest.raises(RuntimeError, match="differentiated once"):
        torch.autograd.grad(FusedInfoNCE.apply(z1, z2, 0.5), z1, create_graph=True)


@pytest.fixture
def turned_by_kernels(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of matrices that kernels turned, in blocks of some entries."""
    seen = []
    made = turns.Turns.__init__

    def noted(self: turns.Turns, w: list[Tensor], *args, **options) -> None:
        seen.append(len(w))
        made(self, w, *args, **options)

    monkeypatch.setattr(turns.Turns, "__init__", noted)
    monkeypatch.setattr(turns, "_BLOCK", 512)
    monkeypatch.setattr(turns, "_CHUNK", 4)
    monkeypatch.setattr(turns, "_SPARE", 100_000)
    monkeypatch.setattr(ANGULAR, "has_kernels", lambda _: True)
    return seen


def same_steps(weights: list[Tensor], grads: list[list[Tensor]]) -> list[Tensor]:
    """The weights after steps by kernels, once PyTorch has found the same."""
    found = []
    for by_kernels in (True, False):
        ws = [nn.Parameter(w.clone()) for w in weights]
        lr = torch.tensor(0.1)
        optimizer = AngularSGD(ws, lr=lr, scalar_lr=0.2, fused=by_kernels)
        for step, each in enumerate(grads):
            lr.fill_(0.1 / (1 + step))
            for w, g in zip(ws, each, strict=True):
                w.grad = g
            optimizer.step()
        found.append([w.detach() for w in ws])
    near = 2e-5 if DEVICE == "cpu" else 0.02  # in bfloat16 on a GPU
    for own, theirs in zip(*found, strict=True):
        torch.testing.assert_close(own.isnan(), theirs.isnan())
        apart = (own - theirs).nan_to_num().norm()
        assert apart <= near * theirs.nan_to_num().norm(), own.shape
    return found[0]


@pytest.mark.filterwarnings("ignore:divide by zero", "ignore:invalid value")  # a zero weight
def test_kernels_turn_matrices_of_every_shape_as_torch_does(turned_by_kernels) -> None:
    shapes = [(8, 3, 3, 3), (8, 8, 3, 3), (20, 5), (5, 40), (70, 90), (9,), (1, 3), (6, 7)]
    weights = [torch.randn(shape) for shape in shapes]
    weights[1] = weights[1].contiguous(memory_format=torch.channels_last)
    weights[3] *= 1e6
    weights[7] *= 0
    grads = [[torch.randn(shape) for shape in shapes] for _ in range(2)]
    same_steps(weights, grads)
    assert turned_by_kernels == [7, 7]


@pytest.mark.filterwarnings("ignore:divide by zero", "ignore:invalid value")
def test_kernels_leave_weights_that_have_no_way_to_turn(turned_by_kernels) -> None:
    weights = [torch.randn(4, 8) for _ in range(3)]
    first = [torch.randn(4, 8), torch.zeros(4, 8), torch.zeros(4, 8)]
    first[2][1, 1] = torch.nan
    weights[1][0, 0] = weights[1].norm()
    once = same_steps(weights, [first])
    assert torch.equal(once[1], weights[1])
    assert once[2].isnan().all()
    still = [torch.zeros(4, 8) for _ in range(3)]  # momentum alone turns nothing
    twice = same_steps(weights, [first, still])
    assert torch.equal(twice[0], once[0])
    row = [torch.full((1, 8), 3.0)]  # its direction is along it in bfloat16 too
    along = same_steps(row, [row])[0]
    torch.testing.assert_close(along, row[0])
    assert turned_by_kernels == [3, 3, 3, 1]


@pytest.mark.parametrize(
    "change", ["nothing", "double", "half", "stride", "unasked", "orthogonal", "gradient"]
)
def test_kernels_turn_whole_float32_matrices(change, turned_by_kernels) -> None:
    w = torch.randn(6, 6).to({"double": torch.float64, "half": torch.bfloat16}.get(change))
    w = nn.Parameter(w.T if change == "stride" else w)
    w.grad = torch.randn(6, 6, dtype=w.dtype)
    w.grad = w.grad.T if change == "gradient" else w.grad
    AngularSGD([w], orthogonal=change != "orthogonal", fused=change != "unasked" or None).step()
    assert turned_by_kernels == ([1] if change in ("nothing", "gradient") else [])


def test_matrices_are_multiplied_together_unless_zeros_cost_too_much() -> None:
    sizes = [(64, 27), (64, 576), (512, 4608), (512, 2304), (256, 128), (256, 1152), (512, 256)]
    batches = turns._batches(sizes)
    assert batches == [
        ([2], 512, 4608),
        ([3], 512, 2304),
        ([5, 6, 4, 1, 0], 256, 1152),
    ]
    places = turns._places(sizes, batches)
    assert places[2] == (0, 4608, 1)
    start = 512 * (4608 + 2304)
    assert places[5] == (start, 1152, 1)
    assert places[6] == (start + 256 * 1152, 1, 1152)  # a tall one lies down
    assert turns._first_padded(sizes, batches) == 2
