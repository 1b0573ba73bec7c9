"""CIFAR from its published layouts, and the imbalanced sets cut from it."""

from pathlib import Path

import numpy as np
import pytest

from normscope.data import imbalance
from normscope.data.cifar import CIFAR10, CIFAR100, read_cifar


def test_cifar_holds_the_written_pixels_in_file_order(
    tmp_path, published, write_python, batches
) -> None:
    write_python(tmp_path, published)
    arrays = read_cifar(tmp_path, published)
    written = batches(published)
    pixels = np.concatenate([written[file][0] for file in published.train])
    labels = np.concatenate([written[file][1] for file in published.train])
    assert isinstance(arrays.train.images, np.ndarray)
    assert arrays.train.images.shape == (len(labels), 3, 32, 32)
    np.testing.assert_array_equal(arrays.train.images.reshape(-1, 3072), pixels)
    np.testing.assert_array_equal(arrays.train.labels, labels)
    np.testing.assert_array_equal(arrays.test.labels, written[published.test][1])
    assert arrays.train.labels.dtype == np.int64
    assert arrays.classes[3] == "class_3"
    assert arrays.side == 32


def test_cifar_layouts_give_equal_arrays(
    tmp_path, published, write_python, write_binary, python2_pickle, python3_pickle
) -> None:
    write_python(tmp_path / "2", published, python2_pickle)
    write_python(tmp_path / "3", published, python3_pickle)
    write_binary(tmp_path / "binary", published)
    first, *others = [read_cifar(tmp_path / name, published) for name in ("2", "3", "binary")]
    for other in others:
        assert other.checksum == first.checksum
        assert other.classes == first.classes
        for a, b in ((first.train, other.train), (first.test, other.test)):
            np.testing.assert_array_equal(a.images, b.images)
            np.testing.assert_array_equal(a.labels, b.labels)


def damage(kind: str, path: Path, names: Path, content: dict, dumps) -> None:
    """Break the test file, or remove the names; `dumps` writes content in the layout at hand."""
    key = next(key for key in content if key != "data")
    labels = content[key]
    if kind == "truncated":
        path.write_bytes(path.read_bytes()[:-100])
    elif kind == "garbage":
        path.write_bytes(b"\x00\xff not a batch")
    elif kind == "missing":
        path.unlink()
    elif kind == "no names":
        names.unlink()
    elif kind == "label too large":
        path.write_bytes(dumps({**content, key: [200, *labels[1:]]}))
    elif kind == "one class missing":
        path.write_bytes(dumps({**content, key: [label or 1 for label in labels]}))


@pytest.mark.parametrize("layout", ["python", "binary"])
@pytest.mark.parametrize(
    "kind",
    ["truncated", "garbage", "missing", "no names", "label too large", "one class missing"],
)
def test_cifar_refuses_damaged_files_in_one_line_that_helps(
    tmp_path, published, write_python, write_binary, batches, python2_pickle, layout, kind
) -> None:
    data, labels = batches(published)[published.test]

    def records(content: dict) -> bytes:
        fine = np.array(content[published.label_key], np.uint8)[:, None]
        return np.hstack([fine] * published.label_bytes + [data]).tobytes()

    python = layout == "python"
    folder = (write_python if python else write_binary)(tmp_path, published)
    read_cifar(tmp_path, published)
    path = folder / (published.test if python else f"{published.test}.bin")
    names = folder / (published.meta if python else published.names)
    content = {"data": data, published.label_key: labels}
    damage(kind, path, names, content, python2_pickle if python else records)
    with pytest.raises(ValueError, match=f"normscope data fetch {published.name}") as error:
        read_cifar(tmp_path, published)
    message = str(error.value)
    named = {"no names": names, "one class missing": folder}.get(kind, path)
    assert message.startswith(str(named))
    assert "\n" not in message


@pytest.mark.parametrize("published", ["cifar10"], indirect=True)
@pytest.mark.parametrize(
    ("change", "constraint"),
    [
        ({"data": [1, 2]}, "a batch with data, uint8"),
        ({"data": np.zeros((30, 3071), np.uint8)}, "a batch with data, uint8"),
        ({"data": np.zeros((29, 3072), np.uint8)}, "a batch of 30 images, got '29 images"),
        ({"labels": ["0"] * 30}, "a batch with a list of integer labels"),
        ({"labels": [-1] + [1] * 29}, "labelled from 0 to 9, got '-1 to 1'"),
    ],
)
def test_cifar_refuses_content_that_is_not_as_published(
    tmp_path, published, write_python, batches, python2_pickle, change, constraint
) -> None:
    folder = write_python(tmp_path, published)
    data, labels = batches(published)["test_batch"]
    content = {"data": data, "labels": labels, **change}
    (folder / "test_batch").write_bytes(python2_pickle(content))
    with pytest.raises(ValueError, match=f"test_batch must be {constraint}"):
        read_cifar(tmp_path, published)


def test_cifar_says_what_to_do_where_there_is_none(tmp_path, published) -> None:
    with pytest.raises(ValueError, match=r"root must be a folder that holds cifar-10.* Run: norm"):
        read_cifar(tmp_path, published)


def test_exponential_counts_are_the_papers() -> None:
    text10 = imbalance.exponential_counts(10, largest=5000, base=1.5, rounding="nearest")
    assert text10 == [5000, 3333, 2222, 1481, 988, 658, 439, 293, 195, 130]
    code10 = imbalance.exponential_counts(10, largest=5000, base=1.5, rounding="floor")
    code100 = imbalance.exponential_counts(100, largest=500, base=1.03365, rounding="floor")
    assert (sum(code10), sum(code100)) == (14_736, 14_750)
    with pytest.raises(ValueError, match="rounding must be 'nearest' or 'floor', got 'up'"):
        imbalance.exponential_counts(10, largest=1, base=2, rounding="up")


def test_unbalanced_keeps_the_first_images_of_each_class_and_the_whole_test_set(
    tmp_path, published, write_python
) -> None:
    write_python(tmp_path, published)
    whole = read_cifar(tmp_path, published)
    counts = [2, 1] + [1] * (published.n_classes - 2)
    part = imbalance.unbalanced(whole, counts, "some")
    labels = whole.train.labels.tolist()
    rows = sorted([i for c in range(2, published.n_classes) for i in [labels.index(c)]])
    rows = sorted([0, published.n_classes, 1, *rows])
    np.testing.assert_array_equal(part.train.images, np.asarray(whole.train.images)[rows])
    assert np.bincount(part.train.labels).tolist() == counts
    assert part.test is whole.test
    assert part.name == "some"
    assert part.checksum != whole.checksum
    with pytest.raises(ValueError, match="counts must be at most the images of each class"):
        imbalance.unbalanced(whole, [10**6], "some")


def test_published_counts_are_those_of_the_publisher() -> None:
    for one in (CIFAR10, CIFAR100):
        assert len(one.train) * one.train_count == 50_000
        assert one.test_count == 10_000
