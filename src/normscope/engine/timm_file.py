"""A run's backbone under timm's names, and the lines that load it there."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from normscope._checks import invalid
from normscope._files import whole_file
from normscope.engine.encoder import Encoder, load_encoder
from normscope.engine.run_folder import RunFolder, RunResult
from normscope.nets import ResNet, VisionTransformer

# our network -> timm's; a transformer's side and patch are arguments
_NAMES = {
    "resnet18": "resnet18",
    "resnet50": "resnet50",
    "vit_micro": "vit_tiny_patch16_224",
    "vit_tiny": "vit_tiny_patch16_224",
    "vit_tiny_fixed": "vit_tiny_patch16_224",
    "vit_small": "vit_small_patch16_224",
    "vit_small_fixed": "vit_small_patch16_224",
}
_ARGUMENTS = {"vit_micro": {"embed_dim": 48, "depth": 2, "num_heads": 3}}


@dataclass(frozen=True)
class TimmModel:
    """What to call in timm for a network.

    Attributes:
        name: of `timm.create_model`.
        arguments: of the same.
        small_stem: whether its first layers are then replaced by a 3x3 convolution, as networks
            for small images have it; timm has no argument for that.
        side: of its images, in pixels, in [0, 1] and not scaled further.
    """

    name: str
    arguments: dict[str, int]
    small_stem: bool
    side: int

    @classmethod
    def of(cls, encoder: Encoder) -> TimmModel:
        """The counterpart of an encoder's backbone."""
        net, side = encoder.config.spec["net"], encoder.config.side
        backbone: Any = encoder.network.get_submodule("backbone")
        if net not in _NAMES:
            advice = "Export it with --to onnx or --to hub."
            raise invalid("net", f"one that timm has, {', '.join(_NAMES)}", net, advice)
        arguments = {"num_classes": 0}
        if isinstance(backbone, VisionTransformer):
            patch = backbone.patch_embed.proj.kernel_size[0]
            arguments |= {"img_size": side, "patch_size": patch, **_ARGUMENTS.get(net, {})}
        small_stem = isinstance(backbone, ResNet) and backbone.conv1.kernel_size == (3, 3)
        return cls(_NAMES[net], arguments, small_stem, side)

    def lines(self, path: Path | str) -> list[str]:
        """Python that builds the model and loads the file."""
        arguments = ", ".join(f"{name}={value}" for name, value in self.arguments.items())
        stem = [
            "model.conv1 = torch.nn.Conv2d(3, 64, 3, padding=1, bias=False)",
            "model.maxpool = torch.nn.Identity()",
        ]
        return [
            *(["import torch"] if self.small_stem else []),
            "import timm",
            "from safetensors.torch import load_file",
            f"model = timm.create_model({self.name!r}, {arguments})",
            *(stem if self.small_stem else []),
            f"model.load_state_dict(load_file({str(path)!r}))",
        ]


def write_timm(run: Path | str | RunFolder | RunResult, path: Path | str) -> TimmModel:
    """Write a run's backbone as a state dict that timm's model takes as it is.

    Args:
        run: whatever `load_encoder` takes.
        path: ending in .safetensors; an older file is replaced. Its metadata has the model.

    Returns:
        The model; `.lines(path)` are the lines of Python that load the file.
    """
    from safetensors.torch import save

    path = Path(path)
    if path.suffix != ".safetensors" or not path.parent.is_dir():
        advice = "Name one in a folder that exists."
        raise invalid("path", "a file ending in .safetensors", str(path), advice)
    encoder = load_encoder(run, layer="backbone")
    model = TimmModel.of(encoder)
    weights = encoder.network.get_submodule("backbone").state_dict()
    weights = {name: weight.contiguous() for name, weight in weights.items()}
    about = {"format": "pt", "timm": json.dumps(vars(model))}
    with whole_file(path) as partial:
        partial.write_bytes(save(weights, metadata=about))
    return model
