"""Paths that the system refuses: one line that names them, wherever they are given."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from normscope import data

LONG = "x" * 300


@contextmanager
def unprivileged() -> Iterator[None]:
    """Permissions do not hold for root, so root is nobody here."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that everybody may enter, unlike pytest's."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


def refusal(call, *args) -> str:
    with pytest.raises(ValueError, match=r" must be .*, got .*\. ") as error:
        call(*args)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("name", ["folder:", "npz:"])
def test_load_tells_a_path_that_is_too_long(tmp_path: Path, name: str) -> None:
    told = refusal(data.load, f"{name}{tmp_path / LONG}")
    assert str(tmp_path / LONG) in told
    assert "File name too long" in told


@pytest.mark.parametrize(
    "name",
    sorted(name for name, entry in (data.DATASETS | data.HUMAN_LABELS).items() if entry.place),
)
def test_every_dataset_tells_a_root_that_is_too_long_or_a_file(tmp_path: Path, name: str) -> None:
    file = tmp_path / "file"
    file.touch()
    for root in (tmp_path / LONG, file):
        assert str(root) in refusal(data.check, name, root)


@pytest.mark.parametrize("name", ["cifar10", "flowers102", "cifar10h"])
def test_fetch_tells_a_root_that_is_too_long_or_a_file(tmp_path: Path, name: str) -> None:
    file = tmp_path / "file"
    file.touch()
    for root in (tmp_path / LONG, file, file / "below"):
        assert str(root) in refusal(data.fetch, name, root)
    with pytest.raises(ValueError, match="File name too long"):
        data.fetch(name, tmp_path, archive=tmp_path / LONG)


@pytest.mark.parametrize("name", ["folder:~nobody_of_this_name", "npz:~nobody_of_this_name/x.npz"])
def test_load_tells_a_home_that_is_unknown(name: str) -> None:
    told = refusal(data.load, name)
    assert told.startswith("~nobody_of_this_name")


def test_default_root_tells_a_home_that_is_unknown(monkeypatch) -> None:
    monkeypatch.setenv("NORMSCOPE_DATA", "~nobody_of_this_name")
    assert refusal(data.default_root).startswith("~nobody_of_this_name must be a path below")


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
@pytest.mark.parametrize(
    "closed", ["", "train", "train/a", "train/a/0.png", "test/b"], ids=lambda name: name or "all"
)
def test_folder_tells_what_may_not_be_read(open_folder: Path, write_images, closed: str) -> None:
    own = write_images(open_folder / "own", each=1, sizes=[(32, 32)])
    data.load(f"folder:{own}")
    (own / closed).chmod(0)
    try:
        with unprivileged():
            told = refusal(data.load, f"folder:{own}")
    finally:
        (own / closed).chmod(0o755)
    assert "Permission denied" in told
    assert str(own / closed) in told


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_npz_and_fetch_tell_what_may_not_be_used(open_folder: Path) -> None:
    path = open_folder / "own.npz"
    np.savez(path, x=np.zeros(1))
    path.chmod(0)
    open_folder.chmod(0o555)
    try:
        with unprivileged():
            assert "Permission denied" in refusal(data.load, f"npz:{path}")
            assert "Permission denied" in refusal(data.fetch, "cifar10", open_folder / "new")
    finally:
        open_folder.chmod(0o755)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no FIFOs")
def test_npz_does_not_wait_at_a_fifo(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "own.npz")
    assert "no regular file" in refusal(data.load, f"npz:{tmp_path / 'own.npz'}")
