"""`normscope export` as a user meets it: what it writes gives what the run's encoder gives."""

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from safetensors.torch import load_file
from tests.command import normscope  # pyright: ignore[reportMissingImports]

import normscope as ns
from normscope import data
from normscope.engine import RunSpec, train


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    train(RunSpec(net="vit_micro", epochs=1), folder=folder, device="cpu", quiet=True)
    return folder


def test_onnx_gives_the_layer_that_is_asked_for(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "run.onnx"
    done = normscope("export", run, "--to", "onnx", "--layer", "backbone", "--out", out)
    assert done.returncode == 0, done.stderr
    images = data.load("digits").test.images[:5]
    session = onnxruntime.InferenceSession(str(out), providers=["CPUExecutionProvider"])
    z, norms = session.run(None, {"images": images.astype(np.float32) / 255})
    expected = ns.load_encoder(run, layer="backbone").embed(images)
    np.testing.assert_allclose(z, expected.embeddings, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(norms, expected.norms, rtol=1e-5, atol=1e-5)


def test_hub_comes_back_by_load_encoder(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "hub"
    done = normscope("export", run, "--to", "hub", "--out", out)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"README.md, config.json, model.safetensors: {out}")
    images = data.load("digits").test.images[:5]
    found, expected = (ns.load_encoder(place).embed(images) for place in (out, run))
    np.testing.assert_allclose(found.embeddings, expected.embeddings, rtol=1e-5, atol=1e-5)


def test_force_replaces_an_earlier_hub_folder_and_no_other(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "hub"
    words = ("export", run, "--to", "hub", "--out", out)
    assert normscope(*words).returncode == 0
    size = (out / "model.safetensors").stat().st_size
    (out / "model.safetensors").write_bytes(b"old")
    (out / ".gitattributes").touch()
    refused = normscope(*words)
    assert refused.returncode == 2
    assert "--force" in refused.stderr
    done = normscope(*words, "--force")
    assert done.returncode == 0, done.stderr
    assert (out / "model.safetensors").stat().st_size == size
    (out / "notes.txt").touch()
    assert normscope(*words, "--force").returncode == 2
    assert len(list(out.iterdir())) == 5


def test_timm_is_the_backbone_alone_and_says_how_to_load_it(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "run.safetensors"
    done = normscope("export", run, "--to", "timm", "--out", out)
    assert done.returncode == 0, done.stderr
    assert "timm.create_model('vit_tiny_patch16_224', num_classes=0, img_size=8" in done.stdout
    weights = ns.load_encoder(run).network.get_submodule("backbone").state_dict()
    assert load_file(out).keys() == weights.keys()


def test_refusals_come_before_any_work(run: Path, tmp_path: Path) -> None:
    there = tmp_path / "there.onnx"
    there.write_bytes(b"mine")
    for words, message in [
        (("--to", "onnx", "--out", there), "--force replaces a file"),
        (("--to", "onnx", "--out", tmp_path), "--out must be a new file"),
        (("--to", "onnx", "--out", tmp_path / "x.pt"), "a file ending in .onnx"),
        (("--to", "hub", "--out", tmp_path), "folder must be new or empty"),
        (("--to", "timm", "--out", tmp_path / "x.safetensors", "--layer", "a"), "be left out"),
        (("--to", "hub", "--out", "/dev/null/x"), "--out must be writable, got '/dev/null/x'"),
    ]:
        done = normscope("export", run, *words)
        assert done.returncode == 2, done.stdout
        assert message in done.stderr
    assert there.read_bytes() == b"mine"
