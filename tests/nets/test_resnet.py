"""ResNets: torchvision's names and shapes, what a fresh block does, and odd formats."""

import importlib

import pytest
import torch
from torch import Tensor, nn

from normscope import cut_init_
from normscope.nets import load_torchvision_, resnet10_narrow, resnet18, resnet50
from normscope.nets.resnet import BasicBlock, Bottleneck

NORM = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")


def norm(name: str, channels: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.{part}": (channels,) if part != NORM[-1] else () for part in NORM}


def torchvision_shapes(depths: list[int], *, bottleneck: bool) -> dict[str, tuple[int, ...]]:
    """torchvision's published structure, written out: every name in the state_dict but fc's."""
    shapes = {"conv1.weight": (64, 3, 7, 7), **norm("bn1", 64)}
    channels = 64
    for stage, depth in enumerate(depths):
        width = 64 * 2**stage
        out = 4 * width if bottleneck else width
        for i in range(depth):
            name = f"layer{stage + 1}.{i}"
            if bottleneck:
                convs = [(width, channels, 1, 1), (width, width, 3, 3), (out, width, 1, 1)]
            else:
                convs = [(width, channels, 3, 3), (out, width, 3, 3)]
            for j, shape in enumerate(convs, start=1):
                shapes[f"{name}.conv{j}.weight"] = shape
                shapes |= norm(f"{name}.bn{j}", shape[0])
            if i == 0 and (stage > 0 or bottleneck):
                shapes[f"{name}.downsample.0.weight"] = (out, channels, 1, 1)
                shapes |= norm(f"{name}.downsample.1", out)
            channels = out
    return shapes


@pytest.mark.parametrize(
    ("build", "depths", "bottleneck", "parameters"),
    [
        (resnet18, [2, 2, 2, 2], False, 11_176_512),
        (resnet50, [3, 4, 6, 3], True, 23_508_032),
    ],
)
def test_resnet_has_torchvisions_names_shapes_and_size(build, depths, bottleneck, parameters):
    net = build(stem="imagenet")
    shapes = {name: tuple(value.shape) for name, value in net.state_dict().items()}
    assert shapes == torchvision_shapes(depths, bottleneck=bottleneck)
    assert sum(p.numel() for p in net.parameters()) == parameters


def test_resnet_cifar_stem_keeps_the_side_up_to_the_first_stage() -> None:
    sides = {}
    for stem in ("cifar", "imagenet"):
        net = resnet18(stem=stem)
        net.layer1.register_forward_hook(lambda *a, stem=stem: sides.update({stem: a[2].shape[-1]}))
        assert net.eval()(torch.zeros(1, 3, 32, 32)).shape == (1, 512)
    assert sides == {"cifar": 32, "imagenet": 8}
    assert net.conv1.weight.shape == (64, 3, 7, 7)
    assert resnet18(stem="cifar").conv1.weight.shape == (64, 3, 3, 3)


def test_resnet50_gives_2048_features_and_strides_on_the_3x3() -> None:
    net = resnet50(stem="cifar")
    assert net.eval()(torch.zeros(1, 3, 8, 8)).shape == (1, net.width) == (1, 2048)
    assert net.layer2[0].conv1.stride == (1, 1)
    assert net.layer2[0].conv2.stride == (2, 2)


@pytest.mark.parametrize("block", [BasicBlock, Bottleneck])
def test_fresh_blocks_pass_their_shortcut_on(block) -> None:
    x = torch.randn(4, 4 * block.expansion, 6, 6)
    same = block(4 * block.expansion, 4)
    torch.testing.assert_close(same(x), x.relu())
    halved = block(4 * block.expansion, 8, stride=2)
    torch.testing.assert_close(halved(x), halved.downsample(x).relu())


def test_convolutions_start_at_hes_scale_over_their_outputs() -> None:
    weight = resnet18(stem="cifar").layer3[0].conv1.weight  # 256 128 3 3
    assert weight.std().item() == pytest.approx((2 / (256 * 9)) ** 0.5, rel=0.01)


def test_every_part_of_a_trained_resnet_reaches_the_output() -> None:
    net = resnet10_narrow().train()
    with torch.no_grad():
        for m in net.modules():
            if isinstance(m, nn.BatchNorm2d):
                m.weight.fill_(1.0)
    net(torch.randn(8, 3, 8, 8)).square().sum().backward()
    assert all(p.grad.abs().max() > 0 for p in net.parameters())


def test_resnet_in_channels_last_gives_the_same_features() -> None:
    net = resnet10_narrow().double()
    x = torch.randn(4, 3, 8, 8, dtype=torch.float64)
    expected = net(x)
    last = net.to(memory_format=torch.channels_last)(x.to(memory_format=torch.channels_last))
    torch.testing.assert_close(last, expected)


def test_resnet_under_autocast_stays_close() -> None:
    net = resnet10_narrow().eval()
    x = torch.rand(4, 3, 8, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        low = net(x)
    assert low.dtype == torch.bfloat16
    torch.testing.assert_close(low.float(), net(x), rtol=0.05, atol=0.05)


def published(net: nn.Module) -> dict[str, Tensor]:
    """Another network's weights as an old torchvision file holds them: with fc, no counts."""
    state = {k: torch.randn_like(v) for k, v in net.state_dict().items() if "tracked" not in k}
    return {**state, "fc.weight": torch.zeros(1000, 512), "fc.bias": torch.zeros(1000)}


def test_load_torchvision_loads_everything_but_the_classifier() -> None:
    net = resnet18(stem="imagenet")
    weights = published(net)
    assert load_torchvision_(net, weights) is net
    for name, value in net.state_dict().items():
        if "tracked" not in name:
            assert torch.equal(value, weights[name])


@pytest.mark.parametrize("flaw", ["stem", "missing", "unexpected"])
def test_load_torchvision_loads_nothing_where_something_does_not_fit(flaw: str) -> None:
    net = resnet18(stem="cifar" if flaw == "stem" else "imagenet")
    weights = published(resnet18(stem="imagenet"))
    if flaw == "missing":
        del weights["layer4.1.bn2.bias"]
    if flaw == "unexpected":
        weights["layer4.2.bn2.bias"] = torch.zeros(512)
    before = {name: v.clone() for name, v in net.state_dict().items()}
    with pytest.raises(ValueError, match=r"state_dict must be the weights .*'1 names or sh"):
        load_torchvision_(net, weights)
    assert all(torch.equal(v, before[name]) for name, v in net.state_dict().items())


def test_load_torchvision_says_that_a_cut_network_is_none_to_load_into() -> None:
    net = cut_init_(resnet18(stem="imagenet"))
    before = net.conv1.weight.clone()
    with pytest.raises(
        ValueError, match=r"net must be uncut.*load them into a network that is not"
    ):
        load_torchvision_(net, published(resnet18(stem="imagenet")))
    assert torch.equal(net.conv1.weight, before)


def test_resnet_refuses_an_unknown_stem_in_one_line() -> None:
    with pytest.raises(ValueError, match="stem must be 'cifar' or 'imagenet', got 'mnist'"):
        resnet18(stem="mnist")


@pytest.mark.gpu
@pytest.mark.parametrize("build", [resnet18, resnet50])
def test_resnet_with_torchvisions_weights_gives_torchvisions_features(build) -> None:
    models = importlib.import_module("torchvision.models")
    theirs = getattr(models, build.__name__)(weights=None).cuda().double()
    ours = build(stem="imagenet").cuda().double()
    load_torchvision_(ours, theirs.state_dict())
    theirs.fc = nn.Identity()
    x = torch.randn(4, 3, 96, 96, device="cuda", dtype=torch.float64)
    for mode in (True, False):
        torch.testing.assert_close(ours.train(mode)(x), theirs.train(mode)(x))
