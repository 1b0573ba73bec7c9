"""Folders of images, Tiny ImageNet, Flowers and parquet shards, from small files."""

import io
import os
import pickle
import sys
from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy.io import loadmat, savemat

from normscope import data
from normscope.data import flowers, folders, layouts, parquet
from normscope.data.images import fitted
from normscope.data.listed import listed


def test_folder_decodes_small_sets_to_arrays(tmp_path: Path, write_images) -> None:
    write_images(tmp_path, each=3, sizes=[(64, 64), (70, 90)])
    arrays = data.load(f"folder:{tmp_path}")
    assert arrays.classes == ("a", "b")
    assert arrays.side == 64
    assert arrays.train.images.shape == (6, 3, 64, 64)
    np.testing.assert_array_equal(arrays.train.labels, [0, 0, 0, 1, 1, 1])
    exact = np.asarray(Image.open(tmp_path / "train" / "b" / "0.png"))  # already 64 x 64
    np.testing.assert_array_equal(arrays.train.images[3], exact.transpose(2, 0, 1))
    assert arrays.checksum == data.load(f"folder:{tmp_path}").checksum


@pytest.mark.parametrize(
    ("size", "side"), [((20, 20), 32), ((63, 300), 32), ((128, 200), 128), ((250, 226), 224)]
)
def test_folder_side_is_the_largest_below_the_median_shorter_side(
    tmp_path: Path, write_images, size, side: int
) -> None:
    write_images(tmp_path, each=1, sizes=[size], test="val")
    assert data.load(f"folder:{tmp_path}").side == side


def test_folder_images_stay_in_files_when_told_a_side(tmp_path: Path, write_images) -> None:
    write_images(tmp_path, each=2, sizes=[(30, 50), (60, 40)])
    arrays = folders.read_folder(tmp_path, "own", side=32, lazy=True)
    images = pickle.loads(pickle.dumps(arrays.train.images))
    assert isinstance(images, data.LazyImages)
    assert len(images) == 4
    assert [images[i].shape for i in range(2)] == [(50, 30, 3), (40, 60, 3)]
    exact = np.asarray(Image.open(tmp_path / "train" / "b" / "1.png"))
    np.testing.assert_array_equal(images[3], exact)
    before = arrays.checksum
    Image.new("RGB", (9, 9)).save(tmp_path / "test" / "a" / "0.png")
    assert folders.read_folder(tmp_path, "own", side=32, lazy=True).checksum != before


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere names are text")
def test_names_that_are_no_text_are_read(tmp_path: Path, write_images) -> None:
    write_images(tmp_path, each=2, sizes=[(40, 40)])
    first = tmp_path / "train" / "a" / "0.png"
    first.rename(os.fsdecode(os.fsencode(first.parent) + b"/\xff.png"))
    images = folders.read_folder(tmp_path, "own", side=32, lazy=True).train.images
    assert [images[i].shape for i in range(4)] == [(40, 40, 3)] * 4


def test_many_names_fit_into_the_pipe_by_which_a_worker_starts(tmp_path: Path) -> None:
    names = [*(f"train/class {i % 7}/Bild Nr. {i}.jpg" for i in range(5000)), "train/a/ü 字.png"]
    (tmp_path / "train/a").mkdir(parents=True)
    Image.new("RGB", (9, 7)).save(tmp_path / names[-1])
    images = folders.ImageFiles(tmp_path, names)
    assert len(images) == 5001
    assert images[5000].shape == (7, 9, 3)
    with pytest.raises(
        ValueError, match=r"train/class 1/Bild Nr\. 4999\.jpg must be a whole image"
    ):
        images[4999]
    assert images[-1].shape == (7, 9, 3)
    with pytest.raises(IndexError):
        images[5001]
    sent = ForkingPickler.dumps(images)  # as it goes to a worker
    assert len(sent) < 2**16


def test_folder_names_what_is_missing_or_broken(tmp_path: Path, write_images) -> None:
    with pytest.raises(ValueError, match=r"nowhere must be a folder of images, got 'no fol"):
        data.load(f"folder:{tmp_path / 'nowhere'}")
    write_images(tmp_path, each=1, sizes=[(32, 32)])
    broken = tmp_path / "test" / "b" / "0.png"
    whole = broken.read_bytes()
    for content in (b"", b"garbage", whole[: len(whole) // 2]):
        broken.write_bytes(content)
        with pytest.raises(ValueError, match=r"b/0.png must be a whole image, got 'one that"):
            data.load(f"folder:{tmp_path}")
    broken.unlink()
    with pytest.raises(ValueError, match=r"test/b must be a folder of images, got 'none'"):
        data.load(f"folder:{tmp_path}")
    broken.parent.rmdir()
    with pytest.raises(ValueError, match=r"test must be of the same classes as train, got 'b in"):
        data.load(f"folder:{tmp_path}")


def test_fitted_takes_the_centre_of_the_shorter_side() -> None:
    pixels = np.zeros((8, 20, 3), np.uint8)
    pixels[:, 6:14] = 255
    assert np.asarray(fitted(Image.fromarray(pixels), 8)).min() == 255
    assert fitted(Image.new("RGB", (33, 100)), 16).size == (16, 16)


def write_tiny(root: Path) -> Path:
    folder = root / "tiny-imagenet-200"
    rng = np.random.default_rng(0)

    def save(path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (64, 64), np.uint8)).save(path, "JPEG")  # grey

    lines = []
    for one in ("n02", "n01"):
        for i in range(3):
            save(folder / "train" / one / "images" / f"{one}_{i}.JPEG")
        save(folder / "val" / "images" / f"val_{one}.JPEG")
        lines.append(f"val_{one}.JPEG\t{one}\t0\t32\t44\t62\n")
    (folder / "val" / "val_annotations.txt").write_text("".join(lines))
    return folder


def test_tiny_imagenet_reads_its_published_layout(tmp_path: Path) -> None:
    published = folders.TinyPublished(n_classes=2, train_each=3, val_each=1)
    folder = write_tiny(tmp_path)
    arrays = folders.read_tiny_imagenet(tmp_path, published)
    assert arrays.classes == ("n01", "n02")
    assert arrays.train.images.shape == (6, 3, 64, 64)
    np.testing.assert_array_equal(arrays.test.labels, [1, 0])
    exact = np.asarray(Image.open(folder / "val" / "images" / "val_n02.JPEG"))
    np.testing.assert_array_equal(np.asarray(arrays.test.images)[0, 1], exact)
    with pytest.raises(ValueError, match=r"train must be of all 200 classes.*fetch tiny-imagenet"):
        folders.read_tiny_imagenet(tmp_path)
    (folder / "train" / "n01" / "images" / "n01_0.JPEG").unlink()
    with pytest.raises(ValueError, match="train must be a folder of 3 images of each class"):
        folders.read_tiny_imagenet(tmp_path, published)
    (folder / "val" / "val_annotations.txt").write_text("../../secret\tn01\n")
    with pytest.raises(ValueError, match=r"val_annotations.txt must be lines of a file and its"):
        folders.read_tiny_imagenet(tmp_path, published)


def write_flowers(root: Path, sizes: list[tuple[int, int]]) -> Path:
    folder = root / "flowers-102"
    (folder / "jpg").mkdir(parents=True)
    rng = np.random.default_rng(0)
    for i, (width, height) in enumerate(sizes, start=1):
        pixels = rng.integers(0, 256, (height, width, 3), np.uint8)
        Image.fromarray(pixels).save(folder / "jpg" / f"image_{i:05d}.jpg")
    savemat(folder / "imagelabels.mat", {"labels": np.array([[1, 2, 2, 1, 2]], np.uint8)})
    savemat(folder / "setid.mat", {"trnid": [[1]], "valid": [[3, 4]], "tstid": [[5, 2, 1]]})
    return folder


def test_flowers_trains_on_the_test_images_at_128_pixels(tmp_path: Path) -> None:
    published = flowers.Published(test=3, val=2, n_classes=2)
    folder = write_flowers(tmp_path, [(128, 128), (150, 200), (128, 128), (90, 60), (200, 140)])
    arrays = flowers.read_flowers(tmp_path, published)
    np.testing.assert_array_equal(arrays.train.labels, [1, 1, 0])
    np.testing.assert_array_equal(arrays.test.labels, [1, 0])
    images = np.asarray(arrays.train.images)
    assert images.shape == (3, 3, 128, 128)
    exact = np.asarray(Image.open(folder / "jpg" / "image_00001.jpg"))
    np.testing.assert_array_equal(images[2], exact.transpose(2, 0, 1))
    whole = Image.open(folder / "jpg" / "image_00005.jpg")
    stretched = np.asarray(whole.resize((128, 128), Image.Resampling.BICUBIC))
    np.testing.assert_array_equal(images[0], stretched.transpose(2, 0, 1))


def test_flowers_numbered_from_zero_are_the_same(tmp_path) -> None:
    published = flowers.Published(test=3, val=2, n_classes=2)
    folder = write_flowers(tmp_path, [(128, 128)] * 5)
    from_one = flowers.read_flowers(tmp_path, published)
    for file in ("imagelabels.mat", "setid.mat"):
        whole = loadmat(str(folder / file))
        savemat(folder / file, {k: v - 1 for k, v in whole.items() if not k.startswith("__")})
    assert flowers.read_flowers(tmp_path, published).checksum == from_one.checksum


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("setid.mat", {"valid": [[3, 4]], "tstid": [[0, 2, 1]]}, "3 different tstid from 1 to 5"),
        ("setid.mat", {"valid": [[3, 4]], "tstid": [[2, 2, 1]]}, "3 different tstid from 1 to 5"),
        ("setid.mat", {"valid": [[3, 4]]}, "a MATLAB file with integers tstid"),
        ("imagelabels.mat", {"labels": [[0, 1, 1, 0, 1]]}, "3 different tstid from 1 to 5"),
        ("imagelabels.mat", b"garbage", "a whole MATLAB file, got 'a damaged one'"),
        ("setid.mat", None, "a file that can be read, got 'nothing'"),
        ("jpg/image_00002.jpg", b"garbage", "a whole image, got 'one that cannot be decoded'"),
        ("jpg/image_00002.jpg", None, "a whole image, got 'nothing'"),
    ],
)
def test_flowers_refuses_what_is_not_as_published(tmp_path, file, content, message: str) -> None:
    folder = write_flowers(tmp_path, [(128, 128)] * 5)
    (folder / file).unlink()
    if isinstance(content, bytes):
        (folder / file).write_bytes(content)
    elif content is not None:
        savemat(folder / file, content)
    with pytest.raises(ValueError, match=message) as error:
        flowers.read_flowers(tmp_path, flowers.Published(test=3, val=2, n_classes=2))
    assert "normscope data fetch flowers102" in str(error.value)
    assert "\n" not in str(error.value)


def png(value: int, size: tuple[int, int]) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", size, (value, 0, 0)).save(file, "PNG")
    return file.getvalue()


@pytest.fixture(params=["struct", "bytes"])
def write_shards(request: pytest.FixtureRequest) -> Callable[[Path], Path]:
    """Three shards of row groups of two; the red of an image counts its row in its split."""
    pyarrow = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")

    def write(root: Path) -> Path:
        folder = root / "imagenet100"
        folder.mkdir(parents=True)
        for name, start in (("train-0", 0), ("train-1", 5), ("validation-0", 0)):
            images = [png(start + i, (10 + i, 20)) for i in range(5)]
            if request.param == "struct":
                images = [{"bytes": image, "path": None} for image in images]
            labels = [(start + i) % 3 for i in range(5)]
            table = pyarrow.table({"image": images, "label": labels})
            pq.write_table(table, folder / f"{name}.parquet", row_group_size=2)
        return folder

    return write


def test_parquet_reads_any_row_of_any_shard(tmp_path: Path, write_shards) -> None:
    write_shards(tmp_path)
    arrays = data.load("imagenet100", tmp_path)
    assert (len(arrays.train), len(arrays.test), arrays.side) == (10, 5, 128)
    np.testing.assert_array_equal(arrays.train.labels, np.arange(10) % 3)
    images = arrays.train.images
    assert images[7].shape == (20, 12, 3)
    for i in (9, 0, 4, 5, 3):
        assert images[i][0, 0].tolist() == [i, 0, 0]
    copy = pickle.loads(pickle.dumps(images))
    assert copy[6][0, 0, 0] == 6


def test_parquet_refuses_what_is_not_shards_of_images(tmp_path: Path, write_shards) -> None:
    folder = write_shards(tmp_path)
    (folder / "train-1.parquet").write_bytes(b"garbage")
    with pytest.raises(ValueError, match=r"train-1.parquet must be a whole parquet file"):
        data.load("imagenet100", tmp_path)
    (folder / "train-1.parquet").unlink()
    (folder / "validation-0.parquet").unlink()
    with pytest.raises(ValueError, match=r"must be a folder of validation-\*.parquet, got 'none'"):
        data.load("imagenet100", tmp_path)


def test_parquet_tells_damage_among_the_pages(tmp_path: Path, write_shards) -> None:
    folder = write_shards(tmp_path)
    arrays = data.load("imagenet100", tmp_path)
    path = folder / "train-0.parquet"
    whole = path.read_bytes()
    path.write_bytes(whole[:4] + b"\xff" * (len(whole) // 3) + whole[4 + len(whole) // 3 :])
    with pytest.raises(ValueError, match=r"train-0.parquet must be a whole parquet") as error:
        arrays.train.images[0]
    assert "\n" not in str(error.value)
    path.unlink()
    with pytest.raises(ValueError, match=r"train-0.parquet must be a whole parquet file, got 'not"):
        pickle.loads(pickle.dumps(arrays.train.images))[0]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"image": [b"x"], "class": [0]}, "a shard with columns image and label"),
        ({"image": [b"x"], "label": ["cat"]}, "a shard with integer labels"),
        ({"image": [b"x", b"y"], "label": [0, None]}, "a shard with integer labels"),
        ({"image": [b"x", b"y"], "label": [0, 10**12]}, "labelled below 2, the number of its"),
        ({"image": [b"x"], "label": [-1]}, "labelled from 0 to 0, got '-1 to -1'"),
    ],
)
def test_parquet_refuses_other_columns(tmp_path: Path, columns, message: str) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    for name in ("train-0", "validation-0"):
        pq.write_table(pyarrow.table(columns), tmp_path / f"{name}.parquet")
    with pytest.raises(ValueError, match=message):
        parquet.read_parquet(tmp_path, "own", side=32)


def test_imagenet100_reads_folders_lazily(tmp_path: Path, write_images) -> None:
    write_images(tmp_path / "imagenet100", each=1, sizes=[(40, 30)], test="val")
    arrays = data.load("imagenet100", tmp_path)
    assert arrays.side == 128
    assert arrays.test.images[1].shape == (30, 40, 3)


@pytest.fixture
def tangled(tmp_path: Path) -> Path:
    """Two images, and all that a search must not run into."""
    folder = tmp_path / "photos"
    (folder / "more.jpg").mkdir(parents=True)  # a folder, whatever its name
    (tmp_path / "elsewhere").mkdir()
    (folder / ".thumbnails").mkdir()
    for name in ("a.png", "more.jpg/b.png", ".c.png", ".thumbnails/d.png", "../elsewhere/e.png"):
        Image.new("RGB", (32, 32)).save(folder / name)
    (folder / "round").symlink_to(folder, target_is_directory=True)
    (folder / "more.jpg" / "up").symlink_to("..", target_is_directory=True)
    (folder / "out").symlink_to(tmp_path / "elsewhere", target_is_directory=True)
    return folder


def test_training_and_embedding_find_the_same_images_without_links_and_hidden_names(
    tangled: Path,
) -> None:
    found = [str(tangled / name) for name in ("a.png", "more.jpg/b.png")]
    assert [one.id for one in listed([str(tangled)])] == found
    names = layouts.listing(tangled)
    assert sorted(str(tangled / name) for name in names.train + names.test) == found


@pytest.mark.parametrize("split", [True, False])
def test_a_class_may_be_a_link_and_is_not_a_hidden_folder(
    tmp_path: Path, write_images, split: bool
) -> None:
    write_images(tmp_path / "there", each=2, sizes=[(32, 32)])
    for kind in ("train", "test") if split else ("",):
        place = tmp_path / "here" / kind
        (place / ".ipynb_checkpoints").mkdir(parents=True)
        for name in ("a", "b"):
            place.joinpath(name).symlink_to(tmp_path / "there" / "train" / name)
    found = layouts.listing(tmp_path / "here")
    assert found.classes == ("a", "b")
    assert len(found.train) == (4 if split else 2)
