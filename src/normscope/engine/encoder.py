"""A trained run's network, ready for new images: `load_encoder`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from normscope._checks import invalid
from normscope._sphere import safe_norm
from normscope.engine.compose import constructed
from normscope.engine.encoder_file import EncoderConfig, read_encoder
from normscope.engine.pixels import each_image, pixels
from normscope.engine.run_folder import RunFolder, RunResult
from normscope.engine.spec import RunSpec
from normscope.engine.tuning import tuned
from normscope.methods.base import Method, wide


@dataclass(frozen=True)
class Embedded:
    """Embeddings of n images, on the CPU.

    Attributes:
        embeddings: raw, float32, (n, d).
        norms: of these, (n,).
    """

    embeddings: Tensor
    norms: Tensor


class Encoder(nn.Module):
    """A trained network up to one of its layers, and what it knows about its images.

    Attributes:
        config: side and scaling of its images, its layers' widths, and the run's spec.
        layer: whose output it gives.
        d: that layer's width.
    """

    def __init__(self, config: EncoderConfig, parts: dict[str, nn.Module], layer: str) -> None:
        super().__init__()
        self.config, self.layer, self.d = config, layer, config.layers[layer]
        self.network = nn.Sequential()
        for name, part in parts.items():
            self.network.add_module(name, part)
        self.mean: Tensor
        self.std: Tensor
        for name, values in (("mean", config.mean), ("std", config.std)):
            self.register_buffer(name, torch.tensor(values).view(3, 1, 1), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Images in [0, 1], (n, 3, side, side), to raw embeddings, (n, d)."""
        return wide(self.network((x - self.mean) / self.std))

    @torch.no_grad()
    def embed(self, images: Any, *, batch: int = 256) -> Embedded:
        """Raw embeddings and norms, in evaluation mode, on the module's device.

        Args:
            images: PIL images of any size and mode; or arrays or tensors, uint8 or floating in
                [0, 1], channels first or last; one, a batch, or an iterable. Those of another size
                have their shorter side brought to `config.side`, bicubic, then the centre square.
            batch: images per forward pass.
        """
        if not isinstance(batch, int) or batch < 1:
            raise invalid("batch", "a whole number from 1 up", batch, "Usual: 256.")
        was_training = self.training
        self.eval()
        try:
            with tuned(self.mean.device, "32"):
                parts = [self(x.to(self.mean)).float().cpu() for x in self._batches(images, batch)]
        finally:
            self.train(was_training)
        z = torch.cat(parts) if parts else torch.empty(0, self.d)
        return Embedded(z, safe_norm(z).squeeze(-1))

    def export_onnx(self, path: Path | str) -> None:
        """Write the encoder, scaling included, as an ONNX file; needs the extra `onnx`.

        Its input is `images` in [0, 1], (n, 3, side, side), with any n; its outputs `embeddings`
        and `norms`. Resizing is left to you. The file appears once onnxruntime gives what this
        module gives, to within 1e-5 of the largest entry.

        Args:
            path: ending in .onnx; an older file is replaced.
        """
        from normscope.engine.onnx_file import write_onnx  # slow to import

        write_onnx(self, Path(path))

    def _batches(self, images: Any, batch: int) -> Iterator[Tensor]:
        every = (pixels(image, side=self.config.side) for image in each_image(images))
        while some := list(islice(every, batch)):
            yield torch.stack(some)


def load_encoder(
    source: Path | str | RunFolder | RunResult, *, layer: str | None = None
) -> Encoder:
    """A trained run's network, on the CPU, in evaluation mode.

    Args:
        source: a finished run, its folder, or its encoder.safetensors, which needs no other file.
            Runs stored before files had a config need spec.json beside it.
        layer: `"backbone"`, `"projector"`, or `"predictor"` where the method has one. By default
            the last one, where the loss acts: the norms of the paper are those of that layer.
            A backbone's norms say little: no cosine was ever taken of them. Old files hold the
            backbone alone, which is then the default.

    >>> import tempfile
    >>> from normscope.engine import train
    >>> run = train(RunSpec(epochs=1), folder=tempfile.mkdtemp(), device="cpu", quiet=True)
    >>> encoder = load_encoder(run)
    >>> encoder.layer, encoder.config.side, encoder.config.layers
    ('projector', 8, {'backbone': 128, 'projector': 64})
    >>> encoder.embed(torch.zeros(5, 3, 8, 8)).embeddings.shape
    torch.Size([5, 64])
    """
    if isinstance(source, RunResult):
        source = source.folder
    path = source.path if isinstance(source, RunFolder) else Path(source)
    config, weights = read_encoder(path)
    names = list(config.layers)
    layer = list(weights)[-1] if layer is None and weights else layer
    if layer not in names:
        raise invalid("layer", f"one of {', '.join(names)}", layer, "Leave it out for the last.")
    names = names[: names.index(layer) + 1]
    method = _without_memory(config, path)
    for name in names:
        if name not in weights:
            held = ", ".join(weights) or "no layer"
            advice = "It was stored before heads were: train again, or take the backbone."
            raise invalid("layer", f"in {path}, which holds {held}", layer, advice)
        _load(getattr(method, name), weights[name], f"{name} of {path}")
    return Encoder(config, {name: getattr(method, name) for name in names}, layer).eval()


def _without_memory(config: EncoderConfig, path: Path) -> Method:
    """The config's network, which has no weights yet: a wrong config can name any sizes."""
    spec, side = RunSpec.from_dict(config.spec), config.side
    wanted = f"the config of {path}", "that of a network"
    try:
        with torch.device("meta"), torch.no_grad():
            method = constructed(spec, side=side).eval()
            outputs = method.layers(torch.empty(1, 3, side, side))
    except (RuntimeError, TypeError, OverflowError) as error:  # sizes beyond any tensor's
        got = " ".join(str(error).split())[:120]
        raise invalid(*wanted, got, "Copy it again.") from None
    widths = {name: z.shape[1] for name, z in outputs.items()}
    if widths != config.layers:
        raise invalid(*wanted, f"{config.layers}, which are {widths}", "Copy it again.")
    return method


def _load(part: nn.Module, weights: dict[str, Tensor], name: str) -> None:
    wanted = {name: weight.dtype for name, weight in part.state_dict().items()}
    # copies, for what was read may be mapped from the file
    weights = {n: w.to(wanted.get(n, w.dtype), copy=True) for n, w in weights.items()}
    try:
        part.load_state_dict(weights, assign=True)
    except RuntimeError as error:
        got = " ".join(str(error).split())[:200]
        raise invalid(name, "weights of the config's network", got, "Copy it again.") from None
