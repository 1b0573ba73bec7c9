"""`normscope embed` as a user meets it: real files, a trained run, real processes."""

import os
import shlex
import signal
import subprocess
import sys
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


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere names are text")
@pytest.mark.parametrize("suffix", [".parquet", ".npz"])
def test_a_name_that_is_no_text_is_written_as_escapes(
    run: Path, tmp_path: Path, suffix: str
) -> None:
    name, out = os.fsdecode(os.fsencode(tmp_path) + b"/\xff.png"), tmp_path / f"out{suffix}"
    Image.new("RGB", (8, 8)).save(name)
    done = normscope("embed", run, name, "--out", out)
    assert done.returncode == 0, done.stderr
    ids = pq.read_table(out)["id"].to_pylist() if suffix == ".parquet" else np.load(out)["id"]
    assert list(ids) == [f"{tmp_path}/\\udcff.png"]


def test_refusals_come_before_any_work(run: Path, photos: Path, tmp_path: Path) -> None:
    there = tmp_path / "there.npz"
    there.write_bytes(b"mine")
    empty, folder = tmp_path / "empty", tmp_path / "folder.parquet"
    empty.mkdir()
    folder.mkdir()
    for words, message in [
        ((run, photos, "--out", there), "--force replaces it"),
        ((run, photos, "--out", folder, "--resume"), "which is a folder"),
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


def begun(out: Path, *words: object) -> subprocess.Popen[str]:
    """A process that embeds the digits, once some of the rows are on the disk."""
    command = [*FRESH, "embed", *map(str, words), "--out", str(out), "--device", "cpu"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    rows, end = Path(f"{out}.begun/rows.f32"), time.monotonic() + 120
    while not (rows.exists() and rows.stat().st_size) and time.monotonic() < end:
        time.sleep(0.005)
    return process


@pytest.mark.parametrize(("suffix", "number"), [(".parquet", 2), (".npz", 9)])
def test_what_was_stopped_or_killed_goes_on_to_the_same_file(
    run: Path, tmp_path: Path, suffix: str, number: int
) -> None:
    folder, whole, out = tmp_path / "images", tmp_path / f"whole{suffix}", tmp_path / f"out{suffix}"
    folder.mkdir()
    for i, pixels in enumerate(data.load("digits").test.images):
        Image.fromarray(pixels.transpose(1, 2, 0)).save(folder / f"{i:03}.png")
    (folder / "000.png").write_bytes(b"no image")
    words = [run, folder, "--batch", 1]
    assert normscope("embed", *words, "--out", whole, "--device", "cpu").returncode == 0
    process = begun(out, *words)
    process.send_signal(number)
    errors = process.communicate()[1]
    assert process.returncode == (130 if number == 2 else -9)
    kept = Path(f"{out}.begun")
    done = (kept / "rows.f32").stat().st_size // (4 * 65)
    assert 0 < done < 450
    assert not out.exists()
    if number == 2:
        assert errors.startswith(f"Stopped. Of 450 images, those done are kept in {kept}.")
        assert errors.rstrip().endswith("--resume")
    with (kept / "rows.f32").open("ab") as file:
        file.write(b"torn")  # as a crash may leave it
    refused = normscope("embed", *words, "--out", out, "--device", "cpu")
    assert refused.returncode == 2
    assert "--resume goes on with them" in refused.stderr
    other = normscope("embed", run, folder, "--batch", 2, "--out", out, "--resume")
    assert "begun by the same command, got 'another batch'" in other.stderr
    done = normscope("embed", *words, "--out", out, "--device", "cpu", "--resume")
    assert done.returncode == 0, done.stderr
    assert f"1 of 450 images could not be read. The first: {folder / '000.png'}" in done.stderr
    assert out.read_bytes() == whole.read_bytes()
    assert not kept.exists()
    again = normscope("embed", *words, "--out", out, "--resume")
    assert again.stdout == f"{out} is complete: there is nothing to go on with.\n"


def test_what_replaces_a_file_goes_on_and_the_old_file_is_not_called_complete(
    run: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.npz"
    out.write_bytes(b"old")
    words = [run, "digits", "--batch", 1, "--force"]
    process = begun(out, *words)
    process.send_signal(2)
    errors = process.communicate()[1]
    assert process.returncode == 130
    hint = shlex.split(errors.splitlines()[1])
    assert hint[0] == "normscope"
    assert hint[-1] == "--resume"
    assert out.read_bytes() == b"old"
    refused = normscope(*[word for word in hint[1:] if word != "--force"])
    assert refused.returncode == 2
    assert "--force replaces it" in refused.stderr
    done = normscope(*hint[1:])
    assert done.returncode == 0, done.stderr
    with np.load(out) as found:
        assert len(found["norm"]) == 1797


def test_two_commands_cannot_write_one_file(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.npz"
    words = [run, "digits", "--batch", 1]
    process = begun(out, *words)
    process.send_signal(signal.SIGSTOP)
    for more in ((), ("--resume",), ("--force",)):
        refused = normscope("embed", *words, "--out", out, "--device", "cpu", *more)
        assert refused.returncode == 2
        assert "out must be unused by other processes" in refused.stderr
    process.send_signal(signal.SIGCONT)
    process.communicate()
    assert process.returncode == 0
    with np.load(out) as found:
        assert len(found["norm"]) == 1797
