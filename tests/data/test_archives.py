"""fetch, from a real server on this machine: resumed, verified, unpacked safely, or not at all."""

import hashlib
import io
import os
import stat
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from normscope import data
from normscope.data import archives
from normscope.data.archives import fetch_dataset, unpack
from normscope.data.cifar import read_cifar
from normscope.data.publishers import Archive


class Publisher(ThreadingHTTPServer):
    """Serves `content` at any path; remembers the ranges asked for."""

    content = b""
    ranges = True
    breaks_after: int | None = None

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[str | None] = []

    def url(self, file: str) -> str:
        return f"http://127.0.0.1:{self.server_port}/{file}"


class Handler(BaseHTTPRequestHandler):
    server: Publisher  # pyright: ignore[reportIncompatibleVariableOverride]

    def do_GET(self) -> None:
        asked = self.headers["Range"]
        self.server.asked.append(asked)
        content = self.server.content
        start = 0
        if "missing" in self.path:
            self.send_error(404)
            return
        if asked and self.server.ranges:
            start = int(asked.removeprefix("bytes=").removesuffix("-"))
            if start >= len(content):
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{len(content)}")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        self.wfile.write(content[start : self.server.breaks_after])

    def log_message(self, format: str, *args: object) -> None:
        """Stay silent."""


@pytest.fixture
def publisher() -> Iterator[Publisher]:
    with Publisher() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def packed(tmp_path: Path, published, write_python) -> bytes:
    """A small CIFAR as its publisher packs it."""
    write_python(tmp_path / "packed", published)
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as tar:
        tar.add(tmp_path / "packed", arcname=".")
    return file.getvalue()


@pytest.fixture
def dataset(publisher: Publisher, published, packed: bytes) -> data.Dataset:
    publisher.content = packed
    return described(publisher.url("small.tar.gz"), packed, published)


def described(url: str, content: bytes | None, published, size: int | None = None) -> data.Dataset:
    digest = None if content is None else hashlib.sha256(content).hexdigest()
    return data.Dataset(
        title="small",
        load=lambda root: read_cifar(root, published),
        licence="none",
        side=32,
        n_classes=published.n_classes,
        place=published.python_folder,
        archives=(Archive(url, digest, size),),
    )


only_cifar10 = pytest.mark.parametrize("published", ["cifar10"], indirect=True)


def names(root: Path) -> list[str]:
    return sorted(os.listdir(root))


def test_fetch_places_a_verified_dataset_and_nothing_else(tmp_path, dataset, published) -> None:
    root, seen = tmp_path / "data", []
    lines = fetch_dataset("small", dataset, root, progress=lambda *now: seen.append(now))
    assert names(root) == [published.python_folder]
    assert lines[0] == "small.tar.gz: SHA-256 as recorded"
    assert lines[-1] == f"placed in {root / published.python_folder}"
    assert seen[-1][0] == seen[-1][1] > 0
    assert len(read_cifar(root, published).test) == published.test_count


@only_cifar10
def test_fetch_does_not_overwrite(tmp_path, dataset, publisher, published) -> None:
    kept = tmp_path / published.python_folder / "kept"
    kept.parent.mkdir()
    kept.touch()
    [line] = fetch_dataset("small", dataset, tmp_path)
    assert line.startswith(f"{kept.parent} is already there. Run `normscope data check small`")
    assert kept.exists()
    assert publisher.asked == []


@only_cifar10
@pytest.mark.parametrize("ranges", [True, False])
def test_fetch_goes_on_where_a_download_broke(tmp_path, dataset, publisher, ranges: bool) -> None:
    root = tmp_path / "data"
    publisher.breaks_after = 1000
    with pytest.raises(ValueError, match=r"small.tar.gz must be a (download|file).*again") as error:
        fetch_dataset("small", dataset, root)
    assert "\n" not in str(error.value)
    assert names(root) == ["small.tar.gz.partial"]
    assert (root / "small.tar.gz.partial").stat().st_size == 1000
    publisher.breaks_after, publisher.ranges = None, ranges
    fetch_dataset("small", dataset, root)
    assert publisher.asked == [None, "bytes=1000-"]
    assert names(root) == [dataset.place]


@only_cifar10
@pytest.mark.parametrize("size_known", [True, False])
def test_fetch_does_not_download_a_whole_file_again(
    tmp_path, publisher, packed, published, size_known: bool
) -> None:
    publisher.content = packed
    (tmp_path / "small.tar.gz.partial").write_bytes(packed)
    size = len(packed) if size_known else None
    dataset = described(publisher.url("small.tar.gz"), packed, published, size)
    seen: list[tuple[int, int]] = []
    fetch_dataset("small", dataset, tmp_path / "", progress=lambda *now: seen.append(now))
    assert seen == []
    assert publisher.asked == ([] if size_known else [f"bytes={len(packed)}-"])


@only_cifar10
def test_fetch_drops_a_partial_longer_than_the_file(tmp_path, dataset, publisher) -> None:
    root = tmp_path / "data"
    root.mkdir()
    (root / "small.tar.gz.partial").write_bytes(publisher.content + b"more")
    with pytest.raises(ValueError, match=r"got 'status 416'\. Try again"):
        fetch_dataset("small", dataset, root)
    fetch_dataset("small", dataset, root)
    assert names(root) == [dataset.place]


@only_cifar10
def test_fetch_removes_a_download_with_a_wrong_hash(tmp_path, dataset, publisher) -> None:
    root = tmp_path / "data"
    publisher.content += b"tail"
    with pytest.raises(ValueError, match=r"must be small.tar.gz with SHA-256.*Download it again"):
        fetch_dataset("small", dataset, root)
    assert names(root) == []


@only_cifar10
def test_fetch_leaves_nothing_of_a_download_that_does_not_load(
    tmp_path, publisher, published, packed
) -> None:
    root = tmp_path / "data"
    for content in (b"not an archive", packed[:-2000]):
        publisher.content = content
        dataset = described(publisher.url("small.tar.gz"), content, published)
        with pytest.raises(ValueError, match="must be"):
            fetch_dataset("small", dataset, root)
        assert names(root) == []


@only_cifar10
def test_fetch_says_when_there_is_no_hash_to_verify(tmp_path, publisher, published, packed) -> None:
    publisher.content = packed
    dataset = described(publisher.url("small.tar.gz"), None, published)
    lines = fetch_dataset("small", dataset, tmp_path / "data")
    assert lines[0] == "small.tar.gz: no SHA-256 is on record; verified by its layout only"


@only_cifar10
def test_fetch_names_a_server_that_does_not_answer(tmp_path, publisher, published) -> None:
    for url in (publisher.url("missing.tar.gz"), "http://127.0.0.1:9/small.tar.gz"):
        with pytest.raises(ValueError, match=r"must be a file to download, got.*--from") as error:
            fetch_dataset("small", described(url, b"", published), tmp_path / "data")
        assert "\n" not in str(error.value)


@only_cifar10
def test_fetch_takes_a_local_archive_by_the_same_checks(tmp_path, dataset, packed) -> None:
    local, root = tmp_path / "copy.tgz", tmp_path / "data"
    with pytest.raises(ValueError, match=r"copy.tgz must be a file that can be read"):
        fetch_dataset("small", dataset, root, archive=local)
    local.write_bytes(packed + b"tail")
    with pytest.raises(ValueError, match=r"copy.tgz must be small.tar.gz with SHA-256"):
        fetch_dataset("small", dataset, root, archive=local)
    assert local.exists()
    local.write_bytes(packed)
    fetch_dataset("small", dataset, root, archive=local)
    assert names(root) == [dataset.place]
    assert local.read_bytes() == packed


@only_cifar10
def test_fetch_names_the_data_folder_when_content_is_wrong(tmp_path, published, packed) -> None:
    larger = replace(published, test_count=31)
    local, root = tmp_path / "small.tar.gz", tmp_path / "data"
    local.write_bytes(packed)
    with pytest.raises(ValueError, match="test_batch must be a batch of 31 images") as error:
        fetch_dataset("small", described("x/small.tar.gz", packed, larger), root, archive=local)
    assert str(error.value).startswith(str(root / published.python_folder))
    assert names(root) == []


def test_fetch_joins_several_files_in_one_folder(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "first.tgz", "w:gz") as tar:
        tar.addfile(tarfile.TarInfo("jpg/empty.jpg"))
    (tmp_path / "ids.mat").write_bytes(b"ids")
    dataset = data.Dataset(
        title="two files",
        load=lambda root: {"ids": np.zeros(len(names(root / "both")))},
        licence="none",
        side=1,
        n_classes=1,
        place="both",
        archives=(
            Archive("x/first.tgz", None, None, "both"),
            Archive("x/ids.mat", hashlib.sha256(b"ids").hexdigest(), None, "both"),
        ),
    )
    lines = fetch_dataset("two", dataset, tmp_path / "data", archive=tmp_path / "first.tgz")
    assert names(tmp_path / "data" / "both") == ["ids.mat", "jpg"]
    assert lines[2] == "ids: 2"


@pytest.mark.parametrize("name", ["digits", "imagenet100"])
def test_fetch_explains_what_cannot_be_downloaded(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match=r"nothing to fetch|place your copy"):
        data.fetch(name, tmp_path)


def test_fetch_knows_labels_and_names_what_it_knows(tmp_path: Path) -> None:
    (tmp_path / "labels.pt").write_bytes(b"wrong")
    with pytest.raises(ValueError, match=r"must be CIFAR-10_human.pt with SHA-256 873e69c3"):
        data.fetch("cifar10n", tmp_path, archive=tmp_path / "labels.pt")
    with pytest.raises(ValueError, match=r"name must be one of digits.*cifar10h, got 'svhn'"):
        data.fetch("svhn", tmp_path)


def member(name: str, kind: bytes = tarfile.REGTYPE, size: int = 0) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.size, info.linkname = kind, size, "/etc/passwd"
    return info


@pytest.mark.parametrize(
    ("evil", "message"),
    [
        (member("../x"), r"stay inside it, got '\.\./x'"),
        (member("a/../../x"), "stay inside it"),
        (member("/tmp/x"), "stay inside it"),
        (member("C:/x"), "stay inside it"),
        (member("..\\x"), "stay inside it"),
        (member("x", tarfile.SYMTYPE), "files and folders alone, got 'the link or device x'"),
        (member("x", tarfile.LNKTYPE), "files and folders alone"),
        (member("x", tarfile.FIFOTYPE), "files and folders alone"),
        (member("x", tarfile.CHRTYPE), "files and folders alone"),
        (member("x", size=3 << 30), "an archive of at most 2 GiB"),
    ],
)
def test_unpack_refuses_an_evil_tar_before_writing(tmp_path: Path, evil, message: str) -> None:
    target = tmp_path / "target"
    target.mkdir()
    with tarfile.open(tmp_path / "evil.tar", "w") as tar:
        tar.addfile(member("good", size=4), io.BytesIO(b"good"))
        tar.fileobj.write(evil.tobuf())
        tar.fileobj.write(bytes(1024))
    with pytest.raises(ValueError, match=message):
        unpack(tmp_path / "evil.tar", target)
    assert names(target) == []
    assert names(tmp_path) == ["evil.tar", "target"]


@pytest.mark.parametrize(
    ("name", "mode", "message"),
    [
        ("../x", 0, "stay inside it"),
        ("/x", 0, "stay inside it"),
        ("x", stat.S_IFLNK | 0o777, "files and folders alone"),
        ("x", stat.S_IFIFO, "files and folders alone"),
    ],
)
def test_unpack_refuses_an_evil_zip_before_writing(tmp_path, name, mode, message: str) -> None:
    target = tmp_path / "target"
    target.mkdir()
    with zipfile.ZipFile(tmp_path / "evil.zip", "w") as file:
        file.writestr("good", "good")
        info = zipfile.ZipInfo(name)
        info.external_attr = mode << 16
        file.writestr(info, "/etc/passwd")
    with pytest.raises(ValueError, match=message):
        unpack(tmp_path / "evil.zip", target)
    assert names(target) == []


def test_unpack_refuses_a_zip_of_too_many_members(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(archives, "MOST_MEMBERS", 2)
    with zipfile.ZipFile(tmp_path / "many.zip", "w") as file:
        for i in range(3):
            file.writestr(str(i), "")
    with pytest.raises(ValueError, match="and 2 files, got 'more'"):
        unpack(tmp_path / "many.zip", tmp_path / "target")
    assert not (tmp_path / "target").exists()


def test_unpack_writes_what_zip_and_tar_hold(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("folder/", "")
        file.writestr("folder/x", "content")
    with tarfile.open(tmp_path / "a.tgz", "w:gz") as tar:
        tar.addfile(member("folder", tarfile.DIRTYPE))
        tar.addfile(member("./folder/x", size=7), io.BytesIO(b"content"))
    for name in ("a.zip", "a.tgz"):
        unpack(tmp_path / name, tmp_path / f"from {name}")
        assert (tmp_path / f"from {name}" / "folder" / "x").read_bytes() == b"content"
