"""Fetching datasets from their publishers: downloaded, verified, unpacked, and only then placed."""

from __future__ import annotations

import hashlib
import http.client
import re
import shutil
import stat
import tarfile
import tempfile
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import IO, Any

from normscope._checks import invalid
from normscope.data.catalog import Dataset, default_root, described, entry
from normscope.data.paths import path_errors
from normscope.data.publishers import Archive

Progress = Callable[[int, int], None]

MOST_BYTES = 2 << 30  # packed or not; the largest known archive unpacks to half a gigabyte
MOST_MEMBERS = 500_000
_CHUNK = 1 << 20
_PACKED = (".tar.gz", ".tgz", ".tar", ".zip")
_AGAIN = "Try again, or download it yourself and pass it with --from."


def fetch(
    name: str,
    root: Path | None = None,
    *,
    archive: Path | None = None,
    progress: Progress | None = None,
) -> list[str]:
    """Bring a dataset into the data folder, from its publisher or from a file at hand.

    An interrupted download resumes when `fetch` is called again. Files are placed only after their
    SHA-256 matches the record and they load; existing files are never overwritten.

    Args:
        name: a name in `DATASETS` or `HUMAN_LABELS`.
        root: the data folder; `default_root()` by default.
        archive: a local copy of the first published file; others are searched for beside it.
        progress: called with the bytes so far and the bytes in all (0 if unknown).

    Returns:
        What was verified, line by line.
    """
    root = default_root() if root is None else Path(root)
    return fetch_dataset(name, entry(name), root, archive=archive, progress=progress)


@path_errors()
def fetch_dataset(
    name: str,
    dataset: Dataset[Any],
    root: Path,
    *,
    archive: Path | None = None,
    progress: Progress | None = None,
) -> list[str]:
    """`fetch` for a dataset that need not be in the catalogue."""
    if not dataset.archives:
        raise invalid("name", "a dataset that can be downloaded", name, dataset.by_hand)
    place = root / dataset.place
    if place.exists():
        check = f"Run `normscope data check {name}` to verify it, or remove it to fetch it again."
        return [f"{place} is already there. {check}"]
    root.mkdir(parents=True, exist_ok=True)
    lines, files = [], []
    for i, one in enumerate(dataset.archives):
        if archive is None:
            files.append(downloaded(one, root, progress))
        else:
            files.append(Path(archive) if i == 0 else Path(archive).parent / one.file)
        lines.append(_verified(one, files[-1], keep=archive is not None))
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=root) as folder:
        staging = Path(folder)
        try:
            for one, file in zip(dataset.archives, files, strict=True):
                target = staging / one.into
                target.mkdir(exist_ok=True)
                if one.file.endswith(_PACKED):
                    unpack(file, target)
                else:
                    shutil.copyfile(file, target / one.file)
            lines += described(name, dataset.load(staging))
        except ValueError as error:
            if archive is None:  # a whole download of the wrong content is of no further use
                _remove(files)
            # the staging folder will be gone: name the place that the user knows
            raise ValueError(str(error).replace(str(staging), str(root))) from None
        (staging / dataset.place).rename(place)
    if archive is None:
        _remove(files)
    return [*lines, f"placed in {place}"]


def downloaded(archive: Archive, root: Path, progress: Progress | None = None) -> Path:
    """The complete `<root>/<file>.partial`, after resuming its download if part of it is there.

    At most the recorded size is downloaded, or 2 GiB where none is recorded.
    """
    partial = root / f"{archive.file}.partial"
    had = partial.stat().st_size if partial.exists() else 0
    if archive.size is not None and had == archive.size:
        return partial
    headers = {"User-Agent": "normscope"} | ({"Range": f"bytes={had}-"} if had else {})
    request = urllib.request.Request(archive.url, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            if had and response.status != 206:  # the server starts from the beginning
                had = 0
            total = _total(archive, had, response.headers.get("Content-Length"))
            most = total or MOST_BYTES
            with partial.open("ab" if had else "wb") as file:
                while had <= most and (chunk := response.read(_CHUNK)):
                    file.write(chunk)
                    had += len(chunk)
                    if progress is not None:
                        progress(had, total)
    except urllib.error.HTTPError as error:
        if error.code == 416 and error.headers.get("Content-Range") == f"bytes */{had}":
            return partial  # there is nothing after what is there
        if error.code == 416:
            partial.unlink()
        raise invalid(archive.url, "a file to download", f"status {error.code}", _AGAIN) from None
    except (OSError, http.client.HTTPException) as error:
        why = " ".join(str(error).split())
        raise invalid(archive.url, "a file to download", why, _AGAIN) from None
    if had > most:
        partial.unlink()  # it is another file
        raise _wrong_size(archive, total, "more")
    if had < total:
        advice = "The connection broke. Run the same command again to resume."
        raise invalid(archive.url, f"a download of {total:,} bytes", f"{had:,}", advice)
    return partial


def _total(archive: Archive, had: int, length: str | None) -> int:
    """How many bytes the whole file has, 0 if neither the record nor the server says it.

    Args:
        archive: what is downloaded.
        had: bytes before those that the server is about to send.
        length: how many these are, in the server's words.
    """
    if length is None:
        return archive.size or 0
    if not re.fullmatch("[0-9]{1,18}", length):
        got = f"Content-Length: {ascii(length[:80])[1:-1]}"
        raise invalid(archive.url, "a file to download", got, _AGAIN)
    total = had + int(length)
    if total != (archive.size or total) or total > MOST_BYTES:
        raise _wrong_size(archive, archive.size or 0, f"{total:,}")
    return total


def _wrong_size(archive: Archive, total: int, got: str) -> ValueError:
    most = f"{total:,}" if total else f"at most {MOST_BYTES:,}"
    return invalid(archive.url, f"a download of {most} bytes", got, _AGAIN)


def _verified(archive: Archive, file: Path, *, keep: bool) -> str:
    """A line that says how a file was verified; a wrong one is removed unless it is the user's."""
    if not file.is_file():
        advice = f"Download it from {archive.url}."
        raise invalid(str(file), "a file that can be read", "nothing", advice)
    if archive.sha256 is None:
        return f"{archive.file}: no SHA-256 is on record; verified by its layout only"
    digest = hashlib.sha256()
    with file.open("rb") as stream:
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
    if digest.hexdigest() != archive.sha256:
        if not keep:
            file.unlink()
        constraint = f"{archive.file} with SHA-256 {archive.sha256}"
        raise invalid(str(file), constraint, digest.hexdigest(), "Download it again.")
    return f"{archive.file}: SHA-256 as recorded"


def unpack(file: Path, target: Path) -> None:
    """Unpack a tar or zip into a folder, if all its members are plain files that stay inside.

    Members that are absolute, climb out, are links or devices, or take more than 2 GiB in all
    are refused before anything is written.
    """
    try:
        if zipfile.is_zipfile(file):
            with zipfile.ZipFile(file) as packed:
                _write(_checked(file, _zip_members(packed)), target)
        else:
            with tarfile.open(file) as packed:
                _write(_checked(file, _tar_members(packed)), target)
    except ValueError:
        raise
    except Exception as error:  # damaged archives raise errors of any kind, a full disk its own
        why = " ".join(str(error).split()) or "a damaged one"
        raise invalid(str(file), "a tar or zip archive to unpack", why, _AGAIN) from None


# name, size, "file", "folder" or "other", and a way to open it
_Member = tuple[str, int, str, Callable[[], "IO[bytes] | None"]]


def _tar_members(packed: tarfile.TarFile) -> Iterator[_Member]:
    for m in packed:
        kind = "file" if m.isfile() else "folder" if m.isdir() else "other"
        yield m.name, m.size, kind, lambda m=m: packed.extractfile(m)


def _zip_members(packed: zipfile.ZipFile) -> Iterator[_Member]:
    for m in packed.infolist():
        mode = m.external_attr >> 16  # of Unix, 0 where another system packed it
        plain = stat.S_IFMT(mode) in (0, stat.S_IFREG, stat.S_IFDIR)
        kind = "folder" if m.is_dir() else "file" if plain else "other"
        yield m.filename, m.file_size, kind, lambda m=m: packed.open(m)


def _checked(file: Path, members: Iterator[_Member]) -> list[_Member]:
    total, checked = 0, []
    for member in members:
        name, size, kind, _ = member
        shown = ascii(name[:80])[1:-1]
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or "\\" in name or ":" in name:
            constraint = "an archive whose members stay inside it"
            raise invalid(str(file), constraint, shown, "Do not trust this file.")
        if kind == "other":
            constraint = "an archive of files and folders alone"
            raise invalid(str(file), constraint, f"the link or device {shown}", "Do not trust it.")
        total += size
        checked.append(member)
        if total > MOST_BYTES or len(checked) > MOST_MEMBERS:
            constraint = f"an archive of at most {MOST_BYTES >> 30} GiB and {MOST_MEMBERS:,} files"
            raise invalid(str(file), constraint, "more", "Do not trust this file.")
    return checked


def _write(members: list[_Member], target: Path) -> None:
    for name, _, kind, open_member in members:
        path = target / name
        if kind == "folder":
            path.mkdir(parents=True, exist_ok=True)
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        source = open_member()
        assert source is not None  # a plain file has content
        with source, path.open("wb") as sink:
            shutil.copyfileobj(source, sink, _CHUNK)


def _remove(files: list[Path]) -> None:
    for file in files:
        file.unlink(missing_ok=True)
