"""Backbones under timm's names: as timm lists them, and loaded there where it imports."""

import json
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import nn

from normscope.engine import Encoder, RunSpec, build, write_timm
from normscope.engine.encoder import load_encoder
from normscope.engine.encoder_file import EncoderConfig, write_encoder
from normscope.engine.timm_file import TimmModel

# made with timm's create_model(..., num_classes=0).state_dict()
LISTED = json.loads(Path(__file__).with_name("timm_names.json").read_text())


def stored(folder: Path, net: str, side: int) -> Path:
    """A network as a run leaves it; its batch norms have seen images."""
    spec = RunSpec(net=net, options={"dimension": 16})
    method = build(spec, side=side)
    with torch.no_grad():
        method.layers(torch.rand(4, 3, side, side))
    write_encoder(folder, method, EncoderConfig.of(spec, side=side))
    return folder


@pytest.mark.parametrize(
    ("net", "side"), [("resnet18", 64), ("resnet50", 64), ("vit_tiny", 32), ("vit_small", 64)]
)
def test_names_and_shapes_are_timms(net: str, side: int) -> None:
    spec = RunSpec(net=net, options={"dimension": 16})
    weights = build(spec, side=side).backbone.state_dict()
    assert {name: list(weight.shape) for name, weight in weights.items()} == LISTED[net]


def test_a_small_stem_differs_in_one_shape_and_says_so(tmp_path: Path) -> None:
    model = write_timm(stored(tmp_path, "resnet18", 32), tmp_path / "x.safetensors")
    weights = load_file(tmp_path / "x.safetensors")
    shapes = {name: list(weight.shape) for name, weight in weights.items()}
    differ = [name for name in LISTED["resnet18"] if shapes.pop(name) != LISTED["resnet18"][name]]
    assert (differ, shapes) == (["conv1.weight"], {})
    assert model.small_stem
    assert any(line.startswith("model.conv1 = ") for line in model.lines("x.safetensors"))
    with safe_open(tmp_path / "x.safetensors", "pt") as file:
        assert json.loads(file.metadata()["timm"]) == vars(model)


@pytest.mark.parametrize(
    ("net", "side"), [("resnet18", 32), ("resnet18", 64), ("vit_micro", 8), ("vit_tiny_fixed", 32)]
)
def test_timm_gives_the_same_features(tmp_path: Path, net: str, side: int) -> None:
    try:
        import timm  # noqa: F401  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        pytest.skip(f"timm imports only with torchvision, whose wheel wants a GPU's torch: {error}")
    run, file = stored(tmp_path, net, side), tmp_path / "x.safetensors"
    names: dict[str, nn.Module] = {}
    exec("\n".join(write_timm(run, file).lines(file)), names)
    images = torch.rand(3, 3, side, side)
    with torch.no_grad():
        found = names["model"].eval()(images)
    expected = load_encoder(run, layer="backbone").embed(images).embeddings
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_what_timm_has_not_is_refused(tmp_path: Path) -> None:
    run = stored(tmp_path, "resnet10_narrow", 8)
    with pytest.raises(ValueError, match="Export it with --to onnx or --to hub"):
        write_timm(run, tmp_path / "x.safetensors")
    with pytest.raises(ValueError, match=r"a file ending in \.safetensors"):
        write_timm(run, tmp_path / "x.pth")
    assert isinstance(load_encoder(run), Encoder)
    assert TimmModel("a", {"num_classes": 0}, False, 8).lines("b")[0] == "import timm"
