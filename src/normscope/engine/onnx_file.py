"""An encoder as an ONNX file, compared with the encoder before it gets its name."""

from __future__ import annotations

import copy
import json
import logging
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from normscope._checks import invalid
from normscope._files import whole_file
from normscope._sphere import safe_norm

if TYPE_CHECKING:
    from normscope.engine.encoder import Encoder

_CLOSE = 1e-5  # of the largest entry


class _WithNorms(nn.Module):
    """An encoder's embeddings, and their norms."""

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self.encoder = copy.deepcopy(encoder).cpu().float().eval()

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Images in [0, 1], (n, 3, side, side), to (n, d) and (n,)."""
        z = self.encoder(images)
        return z, safe_norm(z).squeeze(-1)


def write_onnx(encoder: Encoder, path: Path) -> None:
    """Write an ONNX file, with the encoder's config in its metadata."""
    if path.suffix != ".onnx" or not path.parent.is_dir():
        advice = "Name one in a folder that exists."
        raise invalid("path", "a file ending in .onnx", str(path), advice)
    try:
        import onnx
        import onnxruntime
        import onnxscript  # noqa: F401 (torch's exporter is built on it)
    except ImportError as error:
        install = "Install the extra: pip install 'normscope[onnx]'."
        raise invalid(f"{error.name}", "installed to write ONNX files", None, install) from None
    net, side = _WithNorms(encoder), encoder.config.side
    images = torch.rand(3, 3, side, side, generator=torch.Generator().manual_seed(0))
    exported = _exported(net, images)
    about = {**asdict(encoder.config), "layer": encoder.layer}
    onnx.helper.set_model_props(exported, {"normscope": json.dumps(about)})
    with whole_file(path) as partial:
        partial.write_bytes(exported.SerializeToString())
        session = onnxruntime.InferenceSession(str(partial), providers=["CPUExecutionProvider"])
        for n in (3, 1):  # not only the traced one
            _compare(session, net, images[:n])


def _exported(net: nn.Module, images: Tensor) -> Any:
    """The network as an ONNX model."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")  # the exporter warns about its own parts
            program = torch.onnx.export(
                net,
                (images,),
                dynamo=True,
                verbose=False,
                input_names=["images"],
                output_names=["embeddings", "norms"],
                dynamic_shapes={"images": {0: torch.export.Dim("n")}},
            )
    finally:
        logger.setLevel(level)
    assert program is not None  # with dynamo=True there is one
    return program.model_proto


@torch.no_grad()
def _compare(session: Any, net: nn.Module, images: Tensor) -> None:
    found = session.run(None, {"images": images.numpy()})
    for ours, theirs in zip(net(images), map(torch.from_numpy, found), strict=True):
        off = (ours - theirs).abs().max() / ours.abs().max().clamp_min(1e-30)
        if ours.shape != theirs.shape or not off <= _CLOSE:
            raise RuntimeError(
                f"onnxruntime must give what the encoder gives, got a difference of {off:.2g}. "
                "Update onnxruntime and torch."
            )
