"""A run's network, loaded for new images: as the evaluation of the run has it."""

import json
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from torch import Tensor

import normscope as ns
from normscope import data
from normscope.engine import (
    RunFolder,
    RunResult,
    RunSpec,
    build,
    checkpoint,
    train,
    write_hub_folder,
)
from normscope.engine.evaluate import features_of
from normscope.engine.pixels import pixels
from normscope.nets import backbone


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    options = {"dimension": 16}
    spec = RunSpec(method="simsiam", epochs=1, cut=3.0, grad_scale=1.0, options=options)
    train(spec, folder=folder, device="cpu", quiet=True)
    return folder


def evaluated(run: Path) -> dict[str, Tensor]:
    """Every layer's output for the test images, as `evaluate` has them: from the checkpoint."""
    spec = RunFolder(run).spec()
    method = build(spec, side=8)
    checkpoint.load_weights_(checkpoint.load(RunFolder(run).checkpoint, spec), method)
    images = data.load("digits")
    return features_of(method, data.source(images.test, torch.device("cpu"), side=8))


def stored_before(run: Path, folder: Path) -> Path:
    """The run as it was stored before files had a config: spec.json, and a bare backbone."""
    folder.mkdir()
    (folder / "spec.json").write_bytes((run / "spec.json").read_bytes())
    weights = load_file(run / "encoder.safetensors")
    heads = ("projector.", "predictor.")
    bare = {name: w for name, w in weights.items() if not name.startswith(heads)}
    save_file(bare, folder / "encoder.safetensors")
    return folder


def test_embeddings_are_those_of_the_runs_evaluation(run: Path) -> None:
    images = data.load("digits").test.images
    for layer, z in evaluated(run).items():
        found = ns.load_encoder(run, layer=layer).embed(images, batch=100)
        torch.testing.assert_close(found.embeddings, z, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(found.norms, z.norm(dim=1), rtol=1e-4, atol=1e-5)


def test_the_default_layer_is_where_the_loss_acts(run: Path) -> None:
    encoder = ns.load_encoder(run)
    assert list(encoder.config.layers) == list(evaluated(run))
    assert encoder.layer == "predictor"
    assert not encoder.training


def test_a_file_alone_is_enough(run: Path, tmp_path: Path) -> None:
    alone = tmp_path / "any name.safetensors"
    alone.write_bytes((run / "encoder.safetensors").read_bytes())
    image = data.load("digits").test.images[0]
    found = ns.load_encoder(alone).embed(image)
    assert torch.equal(found.embeddings, ns.load_encoder(RunFolder(run)).embed(image).embeddings)


def test_config_beside_the_file_says_what_its_metadata_says(run: Path, tmp_path: Path) -> None:
    for name in ("encoder.safetensors", "config.json"):
        (tmp_path / name).write_bytes((run / name).read_bytes())
    weights = load_file(run / "encoder.safetensors")
    save_file(weights, tmp_path / "encoder.safetensors")  # without metadata
    assert ns.load_encoder(tmp_path).config == ns.load_encoder(run).config


def test_a_run_stored_before_gives_its_backbone(run: Path, tmp_path: Path) -> None:
    old = ns.load_encoder(stored_before(run, tmp_path / "old"))
    assert old.layer == "backbone"
    image = data.load("digits").test.images[:2]
    expected = ns.load_encoder(run, layer="backbone").embed(image)
    assert torch.equal(old.embed(image).embeddings, expected.embeddings)
    with pytest.raises(ValueError, match="which holds backbone, got 'projector'"):
        ns.load_encoder(tmp_path / "old", layer="projector")


def test_the_backbone_keeps_its_own_names(run: Path) -> None:
    net = backbone("resnet10_narrow", side=8)
    missing = net.load_state_dict(load_file(run / "encoder.safetensors"), strict=False)
    assert not missing.missing_keys


def test_one_image_is_the_same_in_every_form(run: Path) -> None:
    encoder = ns.load_encoder(run)
    chw = data.load("digits").test.images[3]
    hwc = np.ascontiguousarray(chw.transpose(1, 2, 0))
    expected = encoder.embed(chw).embeddings
    assert expected.shape == (1, encoder.d)
    forms = [
        *(hwc, hwc[None], chw[None], [hwc], iter([chw])),
        *(torch.from_numpy(chw), torch.from_numpy(hwc), torch.from_numpy(chw) / 255),
        *(chw.astype(np.float32) / 255, chw.astype(np.float64) / 255),
        *(Image.fromarray(hwc), [Image.fromarray(hwc).convert("L")]),
    ]
    for form in forms:
        torch.testing.assert_close(encoder.embed(form).embeddings, expected)


def test_other_sizes_are_resized_as_a_folders_images_are(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    image = Image.fromarray(rng.integers(0, 256, (40, 70, 3), np.uint8))
    for kind in ("train", "test"):
        (tmp_path / kind / "a").mkdir(parents=True)
        image.save(tmp_path / kind / "a" / "0.png")
    expected = data.load(f"folder:{tmp_path}").test.images[0]
    for form in (image, np.asarray(image), torch.from_numpy(np.array(image)) / 255):
        assert np.array_equal((pixels(form, side=32) * 255).round(), expected)


def test_embedding_changes_neither_mode_nor_statistics(run: Path) -> None:
    encoder = ns.load_encoder(run).train()
    before = {name: w.clone() for name, w in encoder.state_dict().items()}
    encoder.embed(data.load("digits").test.images[:4])
    assert encoder.training
    assert all(torch.equal(w, before[name]) for name, w in encoder.state_dict().items())


def test_loading_leaves_torchs_random_state(run: Path) -> None:
    before = torch.get_rng_state()
    ns.load_encoder(run)
    assert torch.equal(torch.get_rng_state(), before)


def test_no_images_give_no_rows(run: Path) -> None:
    encoder = ns.load_encoder(run)
    found = encoder.embed([])
    assert found.embeddings.shape == (0, encoder.d)
    assert found.norms.shape == (0,)


@pytest.mark.parametrize(
    ("images", "message"),
    [
        ("photo.jpg", "Open files with PIL.Image.open"),
        (np.zeros((8, 8), np.uint8), r"shape \(8, 8\)"),
        (np.zeros((4, 8, 8), np.uint8), r"shape \(4, 8, 8\)"),
        (np.full((8, 8, 3), 255.0), "from 255 to 255'. Pass 8-bit images"),
        (torch.full((3, 8, 8), torch.nan), "in \\[0, 1\\]"),
        (torch.zeros(3, 8, 8, dtype=torch.int64), "uint8 or floating"),
        (np.zeros((0, 8, 3), np.uint8), "at least one pixel"),
        ([None], "must be a PIL image"),
        (Image.new("F", (8, 8)), "Pillow's mode F"),
    ],
)
def test_what_is_no_image_is_refused(run: Path, images: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ns.load_encoder(run).embed(images)


def test_what_is_no_encoder_is_refused(run: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"a folder with encoder.safetensors, got 'none'"):
        ns.load_encoder(tmp_path)
    with pytest.raises(ValueError, match="got 'nothing'"):
        ns.load_encoder(tmp_path / "nothing.safetensors")
    file = tmp_path / "encoder.safetensors"
    file.write_bytes(pickle.dumps({"weights": 1}))
    with pytest.raises(ValueError, match=r"a whole .safetensors file"):
        ns.load_encoder(file)
    weights = load_file(run / "encoder.safetensors")
    save_file(weights, file)
    with pytest.raises(ValueError, match="the folder of a run"):  # nothing says what it is
        ns.load_encoder(file)
    save_file(weights, file, metadata={"normscope": '{"side": 8}'})
    with pytest.raises(ValueError, match="config has no mean"):
        ns.load_encoder(file)
    about = json.loads((run / "config.json").read_text())
    about["spec"]["net"] = "vit_micro"
    save_file(weights, file, metadata={"normscope": json.dumps(about)})
    with pytest.raises(ValueError, match="must be that of a network"):
        ns.load_encoder(file)
    about = {"normscope": (run / "config.json").read_text()}
    save_file({**weights, "extra": torch.zeros(1)}, file, metadata=about)
    with pytest.raises(ValueError, match="weights of the config's network"):
        ns.load_encoder(file)
    with pytest.raises(ValueError, match="layer must be one of backbone, projector"):
        ns.load_encoder(run, layer="stem")


@pytest.mark.parametrize(
    "changes",
    [
        {"layers": {"backbone": 128, "projector": 16, "predictor": 7}},
        {"layers": {"backbone": 128, "forward": 16}},
        {"options": {"dimension": 10**12}},
        {"options": {"dimension": 10**18}},
        {"side": 10**20},
    ],
)
def test_a_config_of_other_sizes_is_refused_before_it_takes_memory(
    run: Path, tmp_path: Path, changes: dict
) -> None:
    about = json.loads((run / "config.json").read_text())
    about["spec"]["options"] |= changes.pop("options", {})
    metadata = {"normscope": json.dumps(about | changes)}
    save_file(load_file(run / "encoder.safetensors"), tmp_path / "x.safetensors", metadata=metadata)
    with pytest.raises(ValueError, match="must be that of a network"):
        ns.load_encoder(tmp_path / "x.safetensors")


def test_a_config_beside_the_weights_that_is_no_file_is_refused(run: Path, tmp_path: Path) -> None:
    save_file(load_file(run / "encoder.safetensors"), tmp_path / "encoder.safetensors")
    config = tmp_path / "config.json"
    os.mkfifo(config)
    with pytest.raises(ValueError, match="no regular file"):
        ns.load_encoder(tmp_path)
    config.unlink()
    config.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match="as train wrote it"):
        ns.load_encoder(tmp_path)


def test_a_hub_folder_says_what_the_run_was_and_gives_the_same(run: Path, tmp_path: Path) -> None:
    hub = write_hub_folder(run, tmp_path / "hub")
    assert {p.name for p in hub.iterdir()} == {"README.md", "config.json", "model.safetensors"}
    images = data.load("digits").test.images[:9]
    expected = ns.load_encoder(run).embed(images)
    found = ns.load_encoder(hub).embed(images)
    assert torch.equal(found.embeddings, expected.embeddings)
    card, result = (hub / "README.md").read_text(), RunResult.load(run)
    assert f"| kNN accuracy of the backbone on the test images | {result.knn:.1%} |" in card
    assert f"| mean norm of the predictor on the test images | {result.norm:.4g} |" in card
    with pytest.raises(ValueError, match="folder must be new or empty"):
        write_hub_folder(run, hub)


def test_a_hub_folder_does_not_tell_where_the_images_lie(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for kind in ("train", "test"):
        (tmp_path / "photos" / kind / "a").mkdir(parents=True)
        for i in range(4):
            image = Image.fromarray(rng.integers(0, 256, (8, 8, 3), np.uint8))
            image.save(tmp_path / "photos" / kind / "a" / f"{i}.png")
    spec = RunSpec(
        data=f"folder:{tmp_path}/photos", net="resnet10_narrow", epochs=1, batch=4, knn_k=1
    )
    train(spec, folder=tmp_path / "run", device="cpu", quiet=True)
    hub = write_hub_folder(tmp_path / "run", tmp_path / "hub")
    for path in hub.iterdir():
        assert str(tmp_path).encode() not in path.read_bytes(), path.name
    assert ns.load_encoder(hub).config.spec["data"] == "folder:photos"
