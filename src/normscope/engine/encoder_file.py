"""A trained network in a file that says what it is: weights, and a config as their metadata."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from normscope import data
from normscope._checks import invalid
from normscope._environment import versions
from normscope._files import whole_file
from normscope._typed import typed
from normscope.data.paths import check_file
from normscope.engine.compose import constructed
from normscope.engine.run_folder import RunFolder
from normscope.engine.spec import RunSpec
from normscope.methods import Method

_NAMES = ("encoder.safetensors", "model.safetensors")  # the second is a hub's
_TRAIN = "`normscope train` writes one into the run's folder."


@dataclass(frozen=True)
class EncoderConfig:
    """What a stored network is, and which images it wants.

    Attributes:
        side: of its images, in pixels; others are resized.
        mean: of each channel, subtracted from pixels in [0, 1]; runs here take them as they are.
        std: of each channel, by which the difference is divided.
        layers: width of each layer that can be had, in order; the loss acts on the last.
        spec: of the run that trained it.
        spec_hash: what names that run.
        version: of normscope.
    """

    side: int
    mean: list[float]
    std: list[float]
    layers: dict[str, int]
    spec: dict[str, Any]
    spec_hash: str
    version: str

    @classmethod
    def of(cls, spec: RunSpec, *, side: int) -> EncoderConfig:
        """The config of a run, for images of that side."""
        method = constructed(spec, side=side).eval()
        with torch.no_grad():
            outputs = method.layers(torch.zeros(1, 3, side, side))
        return cls(
            side=side,
            mean=[0.0] * 3,
            std=[1.0] * 3,
            layers={name: out.shape[1] for name, out in outputs.items()},
            spec=spec.to_dict(),
            spec_hash=spec.hash,
            version=versions()["normscope"],
        )


Parts = dict[str, dict[str, Tensor]]  # of each layer, its weights


def write_encoder(folder: Path, method: Method, config: EncoderConfig) -> None:
    """Write encoder.safetensors and config.json."""
    layers: dict[str, nn.Module] = {name: getattr(method, name) for name in config.layers}
    parts = {name: layer.state_dict() for name, layer in layers.items()}
    with whole_file(folder / "config.json") as partial:
        partial.write_text(json.dumps(asdict(config), indent=1) + "\n")
    with whole_file(folder / _NAMES[0]) as partial:
        partial.write_bytes(saved(parts, config))


def saved(parts: Parts, config: EncoderConfig) -> bytes:
    """The bytes of a .safetensors file.

    The backbone's weights have their own names, so that it can be loaded alone; those of the heads
    begin with the head's name.
    """
    from safetensors.torch import save

    weights = {
        name if layer == "backbone" else f"{layer}.{name}": weight.cpu().contiguous()
        for layer, part in parts.items()
        for name, weight in part.items()
    }
    return save(weights, metadata={"format": "pt", "normscope": json.dumps(asdict(config))})


def read_encoder(path: Path) -> tuple[EncoderConfig, Parts]:
    """A file's config, and the weights of each layer that it holds; no code in it is run.

    Args:
        path: the file, or a folder that holds it. Without metadata, config.json beside it is read,
            or the spec.json of a run.
    """
    from safetensors import SafetensorError, safe_open

    path = _file(path)
    check_file(path, "a whole .safetensors file", _TRAIN)
    try:
        with safe_open(path, "pt") as stored:
            metadata = stored.metadata() or {}
            weights = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
    except (OSError, SafetensorError):
        raise invalid(str(path), "a whole .safetensors file", "a damaged one", _TRAIN) from None
    beside = path.with_name("config.json")
    if "normscope" in metadata:
        config = _parsed(metadata["normscope"], str(path))
    elif beside.exists():
        check_file(beside, "a config", _TRAIN)
        config = _parsed(beside.read_bytes(), str(beside))
    else:
        config = _of_run(RunFolder(path.parent))
    heads = list(config.layers)[1:]
    parts: Parts = {}
    for name, weight in weights.items():
        head, _, rest = name.partition(".")
        inside = (head, rest) if head in heads else ("backbone", name)
        parts.setdefault(inside[0], {})[inside[1]] = weight
    return config, {name: parts[name] for name in config.layers if name in parts}


def _file(path: Path) -> Path:
    if not path.is_dir():
        return path
    found = [path / name for name in _NAMES if (path / name).exists()]
    if not found:
        advice = "A run has it once it is finished."
        raise invalid(str(path), f"a folder with {_NAMES[0]}", "none", advice)
    return found[0]


def _parsed(text: str | bytes, name: str) -> EncoderConfig:
    try:
        config: EncoderConfig = typed(EncoderConfig, json.loads(text), "config")
        sizes = (config.side, *config.layers.values())
        whole = min(sizes) > 0 and len(config.mean) == len(config.std) == 3
        if not whole or next(iter(config.layers)) != "backbone" or min(config.std) <= 0:
            raise ValueError("its numbers do not fit")
    except (ValueError, StopIteration, RecursionError) as error:
        got = " ".join(str(error).split())[:120]
        raise invalid(f"the config of {name}", "as train wrote it", got, _TRAIN) from None
    return config


def _of_run(run: RunFolder) -> EncoderConfig:
    """The config of a run that was trained before there were any."""
    spec = run.spec()
    known = data.DATASETS.get(spec.data)
    return EncoderConfig.of(
        spec, side=known.side if known else data.load(spec.data, side=spec.side).side
    )
