"""Pickles: plain content comes through, and nothing that one asks for is run."""

import os
import pickle
from pathlib import Path

import numpy as np
import pytest

from normscope.data import pickles


class Evil:
    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self):
        return os.mkdir, (str(self.mark),)


@pytest.mark.parametrize("protocol", [2, 3, 4])
@pytest.mark.parametrize("dtype", [np.uint8, np.int64, np.float32, np.bool_])
def test_load_gives_back_arrays_and_containers(tmp_path: Path, protocol: int, dtype) -> None:
    path = tmp_path / "plain"
    array = np.arange(6).reshape(2, 3).astype(dtype)
    path.write_bytes(pickle.dumps({"a": array, b"b": [1, "x", 2.5]}, protocol=protocol))
    content = pickles.load(path, "Fetch it.")
    assert isinstance(content, dict)
    assert content["a"].dtype == dtype
    np.testing.assert_array_equal(content["a"], array)
    assert content[b"b"] == [1, "x", 2.5]


@pytest.mark.parametrize("protocol", [2, 3, 4])
@pytest.mark.parametrize("order", ["C", "F"])
def test_load_heeds_the_byte_order(tmp_path: Path, protocol: int, order) -> None:
    path = tmp_path / "plain"
    array = np.array([[1, 2, 300], [-4, 5, 6]], dtype=">i4", order=order)
    path.write_bytes(pickle.dumps([array, array.astype("<i4")], protocol=protocol))
    content = pickles.load(path, "Fetch it.")
    assert isinstance(content, list)
    for found in content:
        assert found.dtype.isnative
        np.testing.assert_array_equal(found, array)


@pytest.mark.parametrize("protocol", [0, 1, 2, 4])
def test_load_refuses_a_pickle_that_asks_for_anything_else(tmp_path: Path, protocol: int) -> None:
    mark, path = tmp_path / "mark", tmp_path / "evil"
    path.write_bytes(pickle.dumps({"data": Evil(mark)}, protocol=protocol))
    with pytest.raises(
        ValueError, match=r"evil must be a pickle of numbers.*posix.mkdir'"
    ) as error:
        pickles.load(path, "Fetch it.")
    assert str(error.value).endswith("Fetch it.")
    assert "\n" not in str(error.value)
    assert not mark.exists()


@pytest.mark.parametrize(
    "content",
    [
        b"cbuiltins\neval\n(U\x011tR.",
        b"cnumpy\nload\n(U\x01xtR.",
        b"\x80\x04\x8c\x05numpy\x8c\x10dtype.__new__.xx\x93.",
        b"cnumpy\nbad\xc3\xa9\nname\n.",
        b"cnumpy\ndtype\n(U\x01OtR.",
        b"c_codecs\nencode\n(U\x01aU\x03hextR.",
        b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(J\xff\xff\xff\x7ftU\x01btR.",
        b"cnumpy\nndarray\n(I9\ntR.",
        pickle.dumps(np.array([{}], dtype=object), protocol=2),
        b"",
        b"garbage",
        pickle.dumps(list(range(100)))[:-9],
    ],
)
def test_load_refuses_what_is_not_plain_in_one_line(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bad"
    path.write_bytes(content)
    with pytest.raises(
        ValueError, match=r"bad must be a (whole pickle|pickle of numbers)"
    ) as error:
        pickles.load(path, "Fetch it.")
    assert "\n" not in str(error.value)


def test_load_names_a_file_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="gone must be a file that can be read, got 'nothing'"):
        pickles.load(tmp_path / "gone", "Fetch it.")
