"""timm's networks and lightly's heads and loss, where they and torchvision import."""

import runpy
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import normscope as ns

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.filterwarnings("ignore")  # theirs, on what they import


def needs(name: str) -> Any:
    """A module, or a skip that says why it does not import."""
    try:
        return import_module(name)
    except Exception as error:  # a torchvision of another torch raises RuntimeError
        pytest.skip(f"{name} does not import: {error}")


def test_every_convolution_of_timms_resnet_is_scale_invariant_and_the_head_is_not() -> None:
    net = needs("timm").create_model("resnet18", num_classes=7)
    names = ns.scale_invariant_parameters(net, torch.rand(4, 3, 16, 16))
    assert names == {
        f"{name}.weight" for name, m in net.named_modules() if isinstance(m, nn.Conv2d)
    }


@pytest.mark.parametrize("name", ["resnet18", "vit_tiny_patch16_224", "convnext_atto"])
def test_timms_networks_are_cut_scaled_and_watched(name: str) -> None:
    options = {"img_size": 32} if "vit" in name else {}
    net = needs("timm").create_model(name, num_classes=0, **options)
    before = {n: p.detach().clone() for n, p in net.named_parameters()}
    ns.cut_init_(net, c=3.0)
    for n, p in net.named_parameters():
        assert torch.allclose(3 * p, before[n], rtol=1e-5)
    layers = {n: p for n, p in net.named_parameters() if p.ndim > 1}
    monitor = ns.NormMonitor(layers=layers)
    z = nn.Sequential(net, ns.GradScale(1.0))(torch.rand(6, 3, 32, 32))
    z.retain_grad()
    ns.losses.info_nce(z[:3], z[3:]).backward()
    monitor.observe(z, lr=0.1)
    assert monitor.power == 1
    assert monitor.summary()["norm_mean"] > 0


@pytest.mark.parametrize(
    ("head", "sizes", "invariant"),
    [
        ("SimCLRProjectionHead", (8, 16, 4), {"layers.0.weight", "layers.3.weight"}),
        ("SimSiamPredictionHead", (8, 16, 4), {"layers.0.weight"}),
        ("BYOLProjectionHead", (8, 16, 4), {"layers.0.weight"}),
        ("MoCoProjectionHead", (8, 16, 4), set()),
    ],
)
def test_lightlys_heads_are_scale_invariant_where_a_batch_norm_follows(
    head: str, sizes: tuple[int, ...], invariant: set[str]
) -> None:
    net = getattr(needs("lightly.models.modules.heads"), head)(*sizes)
    assert ns.scale_invariant_parameters(net, torch.randn(16, 8)) == invariant
    if isinstance(net.layers[-1], nn.BatchNorm1d):  # which sets the norms, whatever the weights
        with pytest.raises(ValueError, match="eps of a normalisation"):
            ns.suggest_cut(net, torch.randn(64, 8), target_norm=0.5, scope="last")
    else:
        c = ns.suggest_cut(net, torch.randn(64, 8), target_norm=0.5, scope="last")
        assert c > 0


def test_lightlys_loss_is_our_info_nce() -> None:
    loss = needs("lightly.loss").NTXentLoss(temperature=0.5)
    z1, z2 = torch.randn(2, 16, 8)
    assert loss(z1, z2).item() == pytest.approx(ns.losses.info_nce(z1, z2).item(), rel=1e-5)


def test_the_example_is_short_and_trains(capsys) -> None:
    script = ROOT / "examples/timm_lightly.py"
    assert len(script.read_text().splitlines()) < 30
    needs("timm")
    needs("lightly.loss")
    runpy.run_path(str(script))
    first, last = capsys.readouterr().out.splitlines()[-2:]
    assert first == "22 of 66 parameters are scale-invariant"
    assert "mean norm" in last
