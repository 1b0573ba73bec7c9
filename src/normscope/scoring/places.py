"""Files and folders, here or behind a URL of fsspec."""

from __future__ import annotations

import os
import stat
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any

from normscope._checks import invalid

_LOOK = "Check its name and permissions."


class Place(ABC):
    """A file or a folder; as text it is its name."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Its last part."""

    @property
    def suffix(self) -> str:
        """What its name ends in, with the dot."""
        return PurePosixPath(self.name).suffix

    @abstractmethod
    def is_file(self) -> bool:
        """Whether it is a regular file; refuses what is there and is neither that nor a folder."""

    @abstractmethod
    def is_folder(self) -> bool:
        """Whether it is a folder."""

    @abstractmethod
    def children(self) -> list[Place]:
        """What a folder holds."""

    @abstractmethod
    def matching(self) -> list[Place]:
        """What its name stands for if `*`, `?` and `[` in it are wildcards."""

    @abstractmethod
    def child(self, name: str) -> Place:
        """A place inside a folder."""

    @abstractmethod
    def beside(self, name: str) -> Place:
        """A place in the same folder."""

    @abstractmethod
    def size(self) -> int:
        """Bytes of a file."""

    @abstractmethod
    def open(self) -> IO[bytes]:
        """A file's content, which can be read from any place."""


def place_of(given: str | os.PathLike[str]) -> Place:
    """A path on this machine, or a URL such as `s3://bucket/shards` that fsspec knows.

    >>> place_of("shards/a.npy").suffix
    '.npy'
    """
    text = os.fspath(given)
    return Remote.of(text) if is_url(text) else Local(Path(text))


def is_url(text: str) -> bool:
    """Whether fsspec has to open it.

    >>> is_url("s3://bucket/z.npy"), is_url("z.npy")
    (True, False)
    """
    return "://" in text or "::" in text


@dataclass(frozen=True)
class Local(Place):
    """A path on this machine."""

    path: Path

    def __str__(self) -> str:
        return str(self.path)

    @property
    def name(self) -> str:
        """Its last part."""
        return self.path.name

    def is_file(self) -> bool:
        """Whether it is a regular file; a device or a pipe would be read without end."""
        kind = self._kind()
        if kind and not stat.S_ISREG(kind) and not stat.S_ISDIR(kind):
            got = "a device, a pipe or a socket"
            raise invalid(str(self), "a regular file", got, "Copy its content to a file.")
        return stat.S_ISREG(kind)

    def is_folder(self) -> bool:
        """Whether it is a folder."""
        return stat.S_ISDIR(self._kind())

    def children(self) -> list[Place]:
        """What a folder holds."""
        try:
            return [Local(path) for path in self.path.iterdir()]
        except OSError as error:
            raise _unread(str(self), error) from None

    def matching(self) -> list[Place]:
        """What its name stands for if `*`, `?` and `[` in it are wildcards."""
        import glob

        return [Local(Path(found)) for found in glob.glob(str(self.path), recursive=True)]

    def child(self, name: str) -> Place:
        """A place inside a folder."""
        return Local(self.path / name)

    def beside(self, name: str) -> Place:
        """A place in the same folder."""
        return Local(self.path.with_name(name))

    def size(self) -> int:
        """Bytes of a file."""
        return self.path.stat().st_size

    def open(self) -> IO[bytes]:
        """A file's content, unbuffered: rows are read by the block."""
        self.is_file()
        try:
            return self.path.open("rb", buffering=0)  # pyright: ignore[reportReturnType]
        except OSError as error:
            raise _unread(str(self), error) from None

    def _kind(self) -> int:
        """Its mode; 0 if nothing is there."""
        try:
            return self.path.stat().st_mode
        except (FileNotFoundError, NotADirectoryError):
            return 0
        except (OSError, ValueError) as error:  # a name with a null character is a ValueError
            raise _unread(str(self), error) from None


@dataclass(frozen=True)
class Remote(Place):
    """A path in a file system of fsspec.

    Attributes:
        files: the file system.
        path: inside it.
        url: both, as messages show it.
    """

    files: Any
    path: str
    url: str

    @classmethod
    def of(cls, url: str) -> Remote:
        """Connect to the file system of a URL."""
        try:
            from fsspec.core import url_to_fs
        except ImportError:
            install = "Install it: pip install fsspec."
            raise invalid("fsspec", "installed to read URLs", None, install) from None
        try:
            files, path = url_to_fs(url)
        except Exception as error:  # each file system raises its own
            raise _unread(url, error) from None
        return cls(files, path, url)

    def __str__(self) -> str:
        return self.url

    @property
    def name(self) -> str:
        """Its last part."""
        return PurePosixPath(self.path).name

    def is_file(self) -> bool:
        """Whether it is a file."""
        return self._asked("isfile")

    def is_folder(self) -> bool:
        """Whether it is a folder."""
        return self._asked("isdir")

    def children(self) -> list[Place]:
        """What a folder holds."""
        return [self._at(path) for path in self._asked("ls", detail=False)]

    def matching(self) -> list[Place]:
        """What its name stands for if `*`, `?` and `[` in it are wildcards."""
        return [self._at(path) for path in self._asked("glob")]

    def child(self, name: str) -> Place:
        """A place inside a folder."""
        return self._at(f"{self.path.rstrip('/')}/{name}")

    def beside(self, name: str) -> Place:
        """A place in the same folder."""
        return self._at(str(PurePosixPath(self.path).with_name(name)))

    def size(self) -> int:
        """Bytes of a file."""
        return int(self._asked("size"))

    def open(self) -> IO[bytes]:
        """A file's content, fetched as it is read."""
        return self._asked("open", mode="rb")

    def _at(self, path: str) -> Remote:
        return Remote(self.files, path, self.files.unstrip_protocol(path))

    def _asked(self, question: str, **options: Any) -> Any:
        try:
            return getattr(self.files, question)(self.path, **options)
        except Exception as error:  # each file system raises its own
            raise _unread(self.url, error) from None


def _unread(name: str, error: Exception) -> ValueError:
    why = getattr(error, "strerror", None) or " ".join(str(error).split())[:120]
    return invalid(name, "a file that can be read", why or type(error).__name__, _LOOK)
