"""Embeddings on their way into a file: kept on disk, so that an interrupted command can go on."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Sequence
from contextlib import ExitStack
from glob import escape
from pathlib import Path
from typing import Any

import numpy as np
import torch

from normscope._checks import invalid
from normscope._files import exclusive, whole_file
from normscope.data import Listed
from normscope.engine.encoder import Embedded, Encoder


def identity(
    encoder: Encoder, every: Sequence[Listed], names: Sequence[str], *, batch: int
) -> dict[str, Any]:
    """What must be the same when an interrupted command goes on.

    The batch and the device are part of it, for they move the last digits.
    """
    weights, images = hashlib.sha256(), hashlib.sha256()
    for name, weight in encoder.state_dict().items():
        weights.update(name.encode())
        weights.update(weight.cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    for one in every:
        there = one.path is not None and one.path.exists()
        size = os.path.getsize(one.id) if there else -1
        images.update(os.fsencode(f"{one.id}\t{size}\n"))
    return {
        "encoder": f"{encoder.layer} {weights.hexdigest()}",
        "images": f"{' '.join(names)} {images.hexdigest()}",
        "batch": batch,
        "device": encoder.mean.device.type,
    }


def folder_of(target: Path) -> Path:
    """Where the rows of a file are kept until it is complete."""
    return target.with_name(f"{target.name}.begun")


class BegunEmbeddings:
    """The rows of a target file that are computed so far, in a folder beside it.

    Args:
        target: the file.
        about: the `identity` of the embeddings.
        n: images in all.
        d: width of the embeddings.
        resume: go on with what an interrupted command left, rather than refuse it.
        force: start from the first image where something was left.

    Attributes:
        done: rows that are there, whole batches.
        broken: what is wrong with those of them that could not be read, by row.
    """

    def __init__(
        self, target: Path, about: dict[str, Any], *, n: int, d: int, resume: bool, force: bool
    ) -> None:
        self.folder = folder_of(target)
        self.n, self._d = n, d
        self.done, self.broken = 0, dict[int, str]()
        self.folder.mkdir(exist_ok=True)
        lock = exclusive(self.folder / ".lock")
        if lock is None:
            got = f"{target}, which another process writes"
            raise invalid("out", "unused by other processes", got, "Wait for it, or stop it.")
        with ExitStack() as stack:
            stack.enter_context(lock)
            for partial in target.parent.glob(f".{escape(target.name)}.*.partial"):
                partial.unlink()  # of a process that was killed
            path = self.folder / "rows.f32"
            rows = path.stat().st_size // self._bytes if path.exists() else 0
            if rows and (resume or not force):
                self._restore(about, rows, resume=resume)
            else:
                self._begin(about)
            self._rows = stack.enter_context(path.open("ab"))
            self._rows.truncate(self.done * self._bytes)
            self._open = stack.pop_all()

    def _begin(self, about: dict[str, Any]) -> None:
        try:
            for name in ("rows.f32", "broken.jsonl"):
                (self.folder / name).write_bytes(b"")
            with whole_file(self.folder / "about.json") as partial:
                partial.write_text(json.dumps(about, indent=1) + "\n")
        except BaseException:
            self.remove()
            raise

    def _restore(self, about: dict[str, Any], rows: int, *, resume: bool) -> None:
        if not resume:
            advice = "--resume goes on with them, --force starts over."
            got = f"one of which {rows:,} of {self.n:,} embeddings are there"
            raise invalid("out", "a new file", got, advice)
        try:
            stored = dict(json.loads((self.folder / "about.json").read_text()))
        except (OSError, ValueError, TypeError):
            stored = {}
        differ = [name for name in about if stored.get(name) != about[name]]
        if differ:
            advice = "Give the same command, or --force without --resume to start over."
            got = f"another {' and another '.join(differ)}"
            raise invalid("out", "begun by the same command", got, advice)
        batch = about["batch"]
        self.done = rows if rows == self.n else rows // batch * batch
        broken = self.folder / "broken.jsonl"
        lines = broken.read_text().split("\n")[:-1] if broken.exists() else []  # one may be cut
        self.broken = {row: why for row, why in map(json.loads, lines) if row < self.done}
        with whole_file(broken) as partial:
            partial.write_text(_lines(self.broken))

    @property
    def _bytes(self) -> int:
        """Of one row: the embedding, and its norm."""
        return 4 * (self._d + 1)

    def append(self, found: Embedded, broken: dict[int, str]) -> None:
        """Add the next rows, which then are on the disk."""
        if broken:
            with (self.folder / "broken.jsonl").open("a") as file:
                file.write(_lines(broken))
                file.flush()
                os.fsync(file.fileno())
            self.broken |= broken
        rows = torch.cat([found.embeddings, found.norms[:, None]], dim=1)
        self._rows.write(rows.numpy().astype("<f4").tobytes())
        self._rows.flush()
        os.fsync(self._rows.fileno())
        self.done += len(rows)

    def rows(self) -> np.ndarray:
        """All rows so far, (done, d + 1), mapped from their file."""
        shape = self.done, self._d + 1
        if not self.done:
            return np.empty(shape, np.float32)
        return np.memmap(self.folder / "rows.f32", np.dtype("<f4"), "r", shape=shape)

    def close(self) -> None:
        """Let other processes go on, and leave nothing where there are no rows."""
        self._rows.flush()  # `done` may lag behind, where Ctrl-C came between
        empty = os.fstat(self._rows.fileno()).st_size == 0
        if empty:
            self.remove()
        self._open.close()

    def remove(self) -> None:
        """Remove what is beside the target."""
        shutil.rmtree(self.folder, ignore_errors=True)


def _lines(broken: dict[int, str]) -> str:
    return "".join(json.dumps(pair) + "\n" for pair in broken.items())
