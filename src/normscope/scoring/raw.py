"""Embeddings that lie in a file as plain numbers: .npy, members of .npz, and .safetensors.

They are read into one buffer, again and again: pages of a mapped file would count as memory.
"""

from __future__ import annotations

import json
import lzma
import math
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np

from normscope._checks import invalid
from normscope.scoring.blocks import Block, Source, block_rows, check_shape, norms_and_status

_FLOATS = {"F16": "<f2", "BF16": "<u2", "F32": "<f4", "F64": "<f8"}  # of safetensors
_AGAIN = "Write it again."
# what zip files raise that are damaged, encrypted, or packed in a way that Python does not know
_ZIP = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, RuntimeError, NotImplementedError)
_BROKEN = (OSError, EOFError, ValueError, KeyError, TypeError, *_ZIP)


@dataclass
class RawSource(Source):
    """Rows one after the other in a stream.

    Attributes:
        opened: gives the stream, at the first row.
        numbers: how one entry lies there; two bytes as an integer if it is a bfloat16.
        ids: one a row, or None.
        covariates: name -> one a row, float64.
    """

    opened: Callable[[], AbstractContextManager[IO[bytes]]]
    numbers: np.dtype
    ids: np.ndarray | None = None
    covariates: dict[str, np.ndarray] = field(default_factory=dict)

    def blocks(self) -> Iterator[Block]:
        """The rows in order, read into one buffer."""
        n = block_rows(self.d * self.numbers.itemsize)
        buffer = np.empty((min(n, self.rows), self.d), self.numbers)
        with self.opened() as stream:
            for start in range(0, self.rows, n):
                rows = slice(start, min(start + n, self.rows))
                block = buffer[: rows.stop - start]
                self._fill(stream, block.reshape(-1).view(np.uint8))
                z = _widened(block)
                norms, status = norms_and_status(z)
                ids = None if self.ids is None else self.ids[rows]
                given = {name: column[rows] for name, column in self.covariates.items()}
                yield Block(norms, status, z, ids, given)

    def _fill(self, stream: IO[bytes], view: np.ndarray) -> None:
        try:
            while len(view) and (got := stream.readinto(view)):  # pyright: ignore[reportAttributeAccessIssue]
                view = view[got:]
        except _BROKEN as error:
            raise _damaged(self.path, error) from None
        if len(view):
            raise invalid(str(self.path), "a whole file", "one that ends too soon", _AGAIN)


def open_npy(path: Path, **_: Any) -> RawSource:
    """A .npy file."""
    with path.open("rb") as stream:
        shape, numbers = _header(path, stream)
        start = stream.tell()
    return _plain(path, start, shape, numbers, str(numbers))


def open_safetensors(path: Path, **_: Any) -> RawSource:
    """The tensor `embeddings` of a .safetensors file, or its only floating one of two dimensions.

    The file starts with the length of its header in eight bytes, then the header as JSON.
    """
    with path.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        try:
            content: dict[str, Any] = json.loads(stream.read(min(length, 1 << 27)))
            content.pop("__metadata__", None)
            found = {name: _tensor(entry) for name, entry in content.items()}
        except (*_BROKEN, AttributeError, RecursionError) as error:
            raise _damaged(path, error) from None
    fitting = [name for name, (kind, shape, _) in found.items() if _fits(_FLOATS, kind, shape)]
    name = chosen(path, list(found), fitting, ("embeddings",))
    kind, shape, (start, end) = found[name]
    if kind not in _FLOATS:
        raise _not_floating(path, kind)
    if end - start != math.prod(shape) * np.dtype(_FLOATS[kind]).itemsize:
        raise _damaged(path, ValueError(f"{name} has other offsets than its shape takes"))
    return _plain(path, 8 + length + start, shape, np.dtype(_FLOATS[kind]), kind)


def _tensor(entry: dict[str, Any]) -> tuple[str, tuple[int, ...], tuple[int, int]]:
    """Kind, shape, and where a tensor begins and ends behind the header."""
    start, end = entry["data_offsets"]
    whole = [start, end, *entry["shape"]]
    if not isinstance(entry["dtype"], str) or not all(type(n) is int and n >= 0 for n in whole):
        raise ValueError("its header has no sizes")
    return entry["dtype"], tuple(entry["shape"]), (start, end)


def open_npz(path: Path, *, split: str, covariates: Sequence[str] = ()) -> RawSource:
    """A member of a .npz file, stored or deflated; `id` and covariates are members as well.

    Args:
        path: of the file.
        split: the run's split whose embeddings are meant, if a run left the file.
        covariates: names of members with one number a row.
    """
    try:
        with zipfile.ZipFile(path) as packed:
            headers = {}
            for member in (name for name in packed.namelist() if name.endswith(".npy")):
                with packed.open(member) as stream:
                    headers[member.removesuffix(".npy")] = _header(path, stream, any_kind=True)
    except _BROKEN as error:
        raise _damaged(path, error) from None
    fitting = [name for name, (shape, kind) in headers.items() if _fits("f", kind.kind, shape)]
    name = chosen(path, list(headers), fitting, ("embeddings", f"{split}_embeddings"))
    shape, numbers = headers[name]
    rows, d = check_shape(path, shape)
    _check_floating(path, numbers)

    @contextmanager
    def opened() -> Iterator[IO[bytes]]:
        with zipfile.ZipFile(path) as packed, packed.open(f"{name}.npy") as stream:
            _header(path, stream)
            yield stream

    with opened():  # its order of entries is checked before anything is written
        pass
    ids = _column(path, "id", rows, "iuU") if "id" in headers else None
    given = {c: _column(path, c, rows, "fiub").astype(np.float64) for c in covariates}
    return RawSource(path, rows, d, str(numbers), opened, numbers, ids, given)


def chosen(path: Path, names: list[str], fitting: list[str], wanted: Sequence[str]) -> str:
    """The name among `wanted`, or else the only fitting one."""
    for name in wanted:
        if name in names:
            return name
    if len(fitting) == 1:
        return fitting[0]
    constraint = f"a file with {wanted[0]}, or one floating array (n, d)"
    shown = ", ".join(sorted(names)[:8]) or "nothing"
    raise invalid(str(path), constraint, shown, "Give the right array that name.")


def _plain(
    path: Path, start: int, shape: tuple[int, ...], numbers: np.dtype, shown: str
) -> RawSource:
    rows, d = check_shape(path, shape)
    whole, there = start + rows * d * numbers.itemsize, path.stat().st_size
    if there < whole:
        raise invalid(str(path), f"a whole file of {whole:,} bytes", f"{there:,} bytes", _AGAIN)

    @contextmanager
    def opened() -> Iterator[IO[bytes]]:
        with path.open("rb", buffering=0) as stream:
            stream.seek(start)
            yield stream  # pyright: ignore[reportReturnType]

    return RawSource(path, rows, d, shown, opened, numbers)


def _header(
    path: Path, stream: IO[bytes], *, any_kind: bool = False
) -> tuple[tuple[int, ...], np.dtype]:
    """Shape and number format at the head of an array; the stream is at its first entry then."""
    try:
        version = np.lib.format.read_magic(stream)  # pyright: ignore[reportArgumentType]
        old = version == (1, 0)
        read = np.lib.format.read_array_header_1_0 if old else np.lib.format.read_array_header_2_0
        shape, by_columns, numbers = read(stream)  # pyright: ignore[reportArgumentType]
    except _BROKEN as error:
        raise _damaged(path, error) from None
    if not any_kind:
        _check_floating(path, numbers)
        if by_columns and len(shape) == 2:
            advice = "Save np.ascontiguousarray of it."
            raise invalid(str(path), "stored row by row", "Fortran order", advice)
    return shape, numbers


def _column(path: Path, name: str, rows: int, kinds: str) -> np.ndarray:
    """A member with one value a row, whole: eight bytes a row are little beside the rows."""
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            column = file[name]
    except KeyError:
        raise invalid(str(path), f"a file with {name!r}", "none", "Add one value a row.") from None
    except _BROKEN as error:
        raise _damaged(path, error) from None
    if column.shape != (rows,) or column.dtype.kind not in kinds:
        constraint = f"one value for each of the {rows:,} rows"
        got = f"{column.dtype} {column.shape}"
        raise invalid(f"{name} of {path}", constraint, got, "Save them in the rows' order.")
    return column


def _widened(block: np.ndarray) -> np.ndarray:
    """Two-byte integers as the float32 whose upper half they are; all else as it is."""
    if block.dtype.kind == "u":
        return (block.astype(np.uint32) << 16).view(np.float32)
    return block


def _fits(kinds: Any, kind: str, shape: tuple[int, ...]) -> bool:
    return kind in kinds and len(shape) == 2


def _check_floating(path: Path, numbers: np.dtype) -> None:
    if numbers.kind != "f" or numbers.itemsize > 8:
        raise _not_floating(path, str(numbers))


def _not_floating(path: Path, kind: str) -> ValueError:
    advice = "Save the model's raw output."
    return invalid(str(path), "float16, bfloat16, float32 or float64", kind, advice)


def _damaged(path: Path, error: Exception) -> ValueError:
    if isinstance(error, ValueError) and " must be " in str(error):
        return error  # already in the error form
    why = " ".join(str(error).split())[:120] or type(error).__name__
    return invalid(str(path), "a whole file without pickles", why, _AGAIN)
