"""`normscope embed` as a user meets it: real files, a trained run, real processes."""

import subprocess
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from tests.command import FRESH, normscope  # pyright: ignore[reportMissingImports]

import normscope as ns
from normscope import data
from normscope.engine import RunSpec, train


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    train(RunSpec(epochs=1), folder=folder, device="cpu", quiet=True)
    return folder


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five images of several sizes, kinds and depths, and a file that is none."""
    folder = tmp_path_factory.mktemp("photos")
    (folder / "more").mkdir()
    rng = np.random.default_rng(0)
    for i, name in enumerate(["b.png", "a.jpg", "more/c.webp", "more/d.bmp"]):
        Image.fromarray(rng.integers(0, 256, (9 + i, 30, 3), np.uint8)).save(folder / name)
    Image.new("L", (8, 8), 100).save(folder / "more" / "e.PNG")
    (folder / "notes.txt").write_text("no image")
    return folder


@pytest.fixture(scope="module")
def digits(run: Path) -> Path:
    """The run's own images, embedded from its one file."""
    out = run / "digits.npz"
    done = normscope("embed", run / "encoder.safetensors", "digits", "--out", out)
    assert done.returncode == 0, done.stderr
    return out


def test_a_folder_becomes_a_file_that_score_takes(
    run: Path, photos: Path, digits: Path, tmp_path: Path
) -> None:
    out = tmp_path / "photos.parquet"
    done = normscope("embed", run, photos, "--out", out, "--batch", 2, "--device", "cpu")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("5 images, 64 numbers each from the projector, mean norm ")
    table = pq.read_table(out)
    assert table.schema.names == ["id", "embedding", "norm"]
    assert table.schema.field("embedding").type == pa.list_(pa.float32(), 64)
    ids = ["a.jpg", "b.png", "more/c.webp", "more/d.bmp", "more/e.PNG"]
    assert table["id"].to_pylist() == [str(photos / name) for name in ids]
    expected = ns.load_encoder(run).embed([Image.open(photos / name) for name in ids])
    np.testing.assert_allclose(
        table["embedding"].to_pylist(), expected.embeddings, rtol=1e-4, atol=1e-6
    )
    np.testing.assert_allclose(table["norm"], expected.norms, rtol=1e-5)
    done = normscope("score", out, "--reference", digits, "--out", tmp_path / "scores.csv")
    assert done.returncode == 0, done.stderr
    assert len((tmp_path / "scores.csv").read_text().splitlines()) == 6


def test_a_dataset_gives_its_rows_in_order(run: Path, digits: Path) -> None:
    images = data.load("digits")
    with np.load(digits) as found:
        assert found["id"][[0, 1346, 1347]].tolist() == ["train/0", "train/1346", "test/0"]
        rows = [*images.train.images, *images.test.images]
        expected = ns.load_encoder(run).embed(rows)
        np.testing.assert_allclose(found["embeddings"], expected.embeddings, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(found["norm"], expected.norms, rtol=1e-4)


@pytest.mark.parametrize("suffix", [".parquet", ".npz"])
def test_a_broken_image_gets_nan_and_is_named(run: Path, tmp_path: Path, suffix: str) -> None:
    folder, out = tmp_path / "images", tmp_path / f"out{suffix}"
    folder.mkdir()
    (folder / "a.png").write_bytes(b"no image")
    Image.new("RGB", (8, 8)).save(folder / "b.png")
    done = normscope("embed", run, folder, "--out", out)
    assert done.returncode == 0, done.stderr
    assert f"1 of 2 images could not be read. The first: {folder / 'a.png'}" in done.stderr
    norms = pq.read_table(out)["norm"].to_numpy() if suffix == ".parquet" else np.load(out)["norm"]
    assert np.isnan(norms).tolist() == [True, False]
    (folder / "b.png").unlink()
    done = normscope("embed", run, folder, "--out", tmp_path / f"none{suffix}")
    assert done.returncode == 2
    assert sorted(p.name for p in tmp_path.iterdir()) == ["images", out.name]


def test_refusals_come_before_any_work(run: Path, photos: Path, tmp_path: Path) -> None:
    there = tmp_path / "there.npz"
    there.write_bytes(b"mine")
    empty = tmp_path / "empty"
    empty.mkdir()
    for words, message in [
        ((run, photos, "--out", there), "--force replaces it"),
        ((run, photos, "--out", tmp_path / "x.csv"), "a file ending in .parquet or .npz"),
        ((run, photos, "--out", tmp_path / "no" / "x.npz"), "in a folder that exists"),
        ((run, empty, "--out", tmp_path / "x.npz"), "files or folders of images"),
        ((run, "photo.jpg", "--out", tmp_path / "x.npz"), "There is no such path."),
        ((run, "cifra10", "--out", tmp_path / "x.npz"), "Choose one of them."),
        ((run, photos, "--layer", "stem", "--out", tmp_path / "x.npz"), "layer must be one of"),
        ((empty, photos, "--out", tmp_path / "x.npz"), "a folder with encoder.safetensors"),
        ((run, photos, "--device", "tpu", "--out", tmp_path / "x.npz"), "--device must be"),
    ]:
        done = normscope("embed", *words)
        assert done.returncode == 2, done.stdout
        assert message in done.stderr
        assert "Traceback" not in done.stderr
    assert there.read_bytes() == b"mine"
    assert normscope("embed", run, photos, "--out", there, "--force").returncode == 0
    with np.load(there) as found:
        assert len(found["norm"]) == 5


def test_ctrl_c_leaves_no_file(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.parquet"
    # one image a pass takes minutes
    words = ["embed", str(run), "digits", "--batch", "1", "--out", str(out)]
    process = subprocess.Popen([*FRESH, *words], stderr=subprocess.PIPE, text=True)
    end = time.monotonic() + 120
    while not list(tmp_path.glob(".*.partial")) and time.monotonic() < end:
        time.sleep(0.01)
    process.send_signal(2)
    errors = process.communicate()[1]
    assert process.returncode == 130
    assert errors == "Stopped. No embeddings were written.\n"
    assert not list(tmp_path.iterdir())
