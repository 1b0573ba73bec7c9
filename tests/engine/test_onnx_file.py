"""Encoders as ONNX files: onnxruntime gives what the module gives."""

import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

from normscope.engine import Encoder, RunSpec, build, onnx_file
from normscope.engine.encoder_file import EncoderConfig


def encoder_of(net: str, side: int, **options: object) -> Encoder:
    """An encoder whose batch norms have seen images, of a fresh network."""
    spec = RunSpec(method="simsiam", net=net, options={"dimension": 16}, **options)
    method = build(spec, side=side)
    with torch.no_grad():
        method.layers(torch.rand(16, 3, side, side))
    parts = {name: getattr(method, name) for name in ("backbone", "projector", "predictor")}
    return Encoder(EncoderConfig.of(spec, side=side), parts, "predictor").eval()


@pytest.mark.parametrize(("net", "side"), [("resnet10_narrow", 8), ("vit_micro", 32)])
def test_onnxruntime_gives_the_same_embeddings_and_norms(
    tmp_path: Path, net: str, side: int
) -> None:
    encoder, path = encoder_of(net, side), tmp_path / "encoder.onnx"
    encoder.export_onnx(path)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    images = torch.rand(7, 3, side, side)
    z, norms = session.run(["embeddings", "norms"], {"images": images.numpy()})
    expected = encoder.embed(images)
    np.testing.assert_allclose(z, expected.embeddings, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(norms, expected.norms, rtol=1e-5, atol=1e-5)
    (about,) = onnx.load(path).metadata_props
    assert json.loads(about.value)["layer"] == "predictor"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_differs_is_not_left(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(onnx_file, "_CLOSE", -1.0)
    with pytest.raises(RuntimeError, match="onnxruntime must give what the encoder gives"):
        encoder_of("resnet10_narrow", 8).export_onnx(tmp_path / "encoder.onnx")
    assert not list(tmp_path.iterdir())


def test_a_place_that_cannot_be_is_refused(tmp_path: Path) -> None:
    encoder = encoder_of("resnet10_narrow", 8)
    for path in (tmp_path / "encoder.pt", tmp_path / "no" / "encoder.onnx"):
        with pytest.raises(ValueError, match=r"path must be a file ending in .onnx"):
            encoder.export_onnx(path)
