"""Names that stand for many files: folders of shards, patterns, datasets, URLs."""

import os
from collections.abc import Iterator
from pathlib import Path

import fsspec
import numpy as np
import pytest

from normscope.scoring import (
    Source,
    as_source,
    fit_reference,
    open_embeddings,
    score_file,
    write_kept,
)
from normscope.scoring.writers import WRITERS

from .conftest import KINDS, WITH_COLUMNS, embeddings

SAVED = Path(__file__).parent / "saved" / "sentences"  # datasets 5.2.0, save_to_disk


def norms_of(source: Source) -> np.ndarray:
    return np.concatenate([block.norms for block in source.blocks()])


def ids_of(source: Source) -> list:
    return [i for block in source.blocks() for i in block.ids.tolist()]


def lengths(z: np.ndarray) -> np.ndarray:
    return np.linalg.norm(z.astype(float), axis=1)


@pytest.fixture
def memory() -> Iterator[fsspec.AbstractFileSystem]:
    files = fsspec.filesystem("memory")
    yield files
    files.store.clear()
    files.pseudo_dirs[:] = [""]


def shards(write, kind: str, folder: Path, z: np.ndarray, **columns: np.ndarray) -> Path:
    """Three files whose natural order is not that of their letters."""
    folder.mkdir()
    for name, rows in (("2", slice(0, 30)), ("9", slice(30, 31)), ("10", slice(31, None))):
        path = write(z[rows], kind, name, **{k: v[rows] for k, v in columns.items()})
        path.rename(folder / path.name)
    return folder


@pytest.mark.parametrize("kind", KINDS)
def test_shards_of_a_folder_are_one_file_in_natural_order(tmp_path: Path, write, kind) -> None:
    z = embeddings(100, seed=0)
    folder = shards(write, kind, tmp_path / "shards", z)
    (folder / "README.md").write_text("not a shard")
    (folder / "_SUCCESS").write_text("")
    (folder / f".hidden.{kind.partition('-')[0]}").write_text("")
    source = open_embeddings(folder)
    assert (source.rows, source.d) == (100, 8)
    np.testing.assert_allclose(norms_of(source), lengths(z), rtol=1e-6)
    pattern = open_embeddings(str(folder / "[0-9]*.*"))
    np.testing.assert_allclose(norms_of(pattern), lengths(z), rtol=1e-6)
    files = sorted(folder.glob("[0-9]*"), key=lambda path: -int(path.name.partition(".")[0]))
    given = open_embeddings(files)
    np.testing.assert_allclose(norms_of(given), lengths(np.r_[z[31:], z[30:31], z[:30]]), rtol=1e-6)


@pytest.mark.parametrize("kind", WITH_COLUMNS)
def test_shards_keep_their_ids(tmp_path: Path, write, kind: str) -> None:
    ids = np.array([f"row {i}" for i in range(100)])
    folder = shards(write, kind, tmp_path / "shards", embeddings(100, seed=0), id=ids)
    assert ids_of(open_embeddings(folder)) == ids.tolist()


@pytest.mark.parametrize("kind", KINDS)
def test_urls_are_read_as_files_are(tmp_path: Path, write, memory, kind: str) -> None:
    z = embeddings(100, seed=0)
    folder = shards(write, kind, tmp_path / "shards", z)
    memory.put(str(folder), "/bucket/shards", recursive=True)
    suffix = kind.partition("-")[0]
    one = next(folder.glob("10.*")).name
    for url in ("memory://bucket/shards", f"memory://bucket/shards/*.{suffix}", f"file://{folder}"):
        np.testing.assert_allclose(norms_of(open_embeddings(url)), lengths(z), rtol=1e-6)
    alone = open_embeddings(f"memory://bucket/shards/{one}")
    np.testing.assert_allclose(norms_of(alone), lengths(z[31:]), rtol=1e-6)
    with pytest.raises(ValueError, match="memory://bucket/nothing must be a file that can be read"):
        open_embeddings("memory://bucket/nothing")
    with pytest.raises(ValueError, match=r"nowhere://z.npy must be a file that can be read"):
        open_embeddings("nowhere://z.npy")


def test_a_dataset_of_hugging_face_is_read_from_disk() -> None:
    random = np.random.default_rng(0)
    z = random.standard_normal((40, 4)) * random.uniform(0.5, 3, (40, 1))
    for split, rows in (("train", slice(28)), ("test", slice(28, 40))):
        for source in (
            open_embeddings(SAVED, split=split, id="name", text="sentence"),
            open_embeddings(SAVED / split, id="name", text="sentence"),
        ):
            np.testing.assert_allclose(norms_of(source), lengths(z[rows]), rtol=1e-6)
            assert ids_of(source) == [f"row {i}" for i in range(40)[rows]]
            texts = [text for block in source.blocks() for text in block.texts.tolist()]
            assert texts == [f"This is sentence {i}." for i in range(40)[rows]]


@pytest.mark.parametrize(
    "state",
    [
        '{"_data_files": [{"filename": "../train/data-00000-of-00002.arrow"}]}',
        '{"_data_files": []}',
        '{"_data_files": [{"filename": 3}]}',
        "[]",
        "{",
        '{"_data_files": [{"filename": "a.arrow"}], "_indices_data_files": [1]}',
    ],
)
def test_a_dataset_whose_list_of_files_is_wrong_is_refused(tmp_path: Path, state: str) -> None:
    (tmp_path / "state.json").write_text(state)
    with pytest.raises(ValueError, match=r"must be a dataset('s list| whose rows)"):
        open_embeddings(tmp_path)


def test_shards_that_differ_are_refused(tmp_path: Path, write) -> None:
    z = embeddings(50, seed=0)
    first = write(z, "npz", "first", id=np.arange(50))
    for other in (
        write(z[:, :5], "npz", "narrow", id=np.arange(50)),
        write(z.astype(np.float16), "npz", "half", id=np.arange(50)),
        write(z, "npz", "plain"),
        write(z, "npz", "strings", id=np.array(["a"] * 50)),
    ):
        with pytest.raises(ValueError, match="must be rows of 8 entries of float32, id: integers"):
            open_embeddings([first, other])
    write(z, "npy", "array")
    with pytest.raises(ValueError, match=r"shards of one format, got '\.npy, \.npz'"):
        open_embeddings(tmp_path)
    with pytest.raises(ValueError, match="must be a pattern that fits a file"):
        open_embeddings(str(tmp_path / "*.parquet"))
    with pytest.raises(ValueError, match="files must be at least one"):
        open_embeddings([])


def test_what_is_no_regular_file_is_refused_unread(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.npy")
    (tmp_path / "zero.safetensors").symlink_to("/dev/zero")
    (tmp_path / "loop.npy").symlink_to(tmp_path / "loop.npy")
    for name in ("pipe.npy", "zero.safetensors"):
        with pytest.raises(ValueError, match=f"{name} must be a regular file"):
            open_embeddings(tmp_path / name)
    with pytest.raises(ValueError, match=r"loop.npy must be a file that can be read"):
        open_embeddings(tmp_path / "loop.npy")
    with pytest.raises(ValueError, match="must be a file that can be read"):
        open_embeddings("null\0.npy")


@pytest.mark.parametrize("suffix", list(WRITERS))
def test_ids_of_shards_are_one_kind_of_integers(tmp_path: Path, write, suffix: str) -> None:
    rows, few = 70_000, 30  # more than are written at once
    z, large = np.ones((rows + few, 2), np.float32), 2**60 + 1
    z[::2] = 2
    shards = [
        write(z[:rows], "npz", "s0", id=np.arange(rows, dtype=np.int32)),
        write(z[rows:], "npz", "s1", id=np.arange(large, large + few, dtype=np.int64)),
    ]
    fitted = fit_reference(as_source(np.array([[1, 0], [2, 0]] * 50, np.float32)))
    source = open_embeddings(shards)
    score_file(source, fitted, tmp_path / f"scores{suffix}")
    write_kept(source, np.ones(source.rows, bool), tmp_path / f"kept{suffix}")
    found = np.concatenate([b.ids for b in open_embeddings(tmp_path / f"kept{suffix}").blocks()])
    np.testing.assert_array_equal(found, [*range(rows), *range(large, large + few)])
    if suffix == ".npz":
        np.testing.assert_array_equal(np.load(tmp_path / "scores.npz")["id"], found)
    write(z[rows:], "npz", "s1", id=np.arange(large, large + few, dtype=np.uint64))
    with pytest.raises(ValueError, match=r"must be rows of .* integers, got .* unsigned integers"):
        open_embeddings(shards)
