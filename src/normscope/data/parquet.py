"""Images in parquet shards, as ImageNet-100 is often passed on: columns `image` and `label`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from normscope._checks import invalid
from normscope.data.images import (
    ImageArrays,
    LazyImages,
    Split,
    check_classes,
    class_count,
    file_checksum,
    opened,
)
from normscope.data.paths import check_file

_ADVICE = "Replace the shard by a whole one."


class ParquetImages(LazyImages):
    """Images in the row groups of parquet shards.

    Reading an image reads its row group, commonly a hundred images; the last group is kept.

    Args:
        paths: the shards.
        group_sizes: rows of each row group, shard by shard.
    """

    def __init__(self, paths: Sequence[Path], group_sizes: Sequence[Sequence[int]]) -> None:
        self.paths = tuple(paths)
        self.groups = [(s, g) for s, sizes in enumerate(group_sizes) for g in range(len(sizes))]
        self.ends = np.cumsum([n for sizes in group_sizes for n in sizes])
        self._files: dict[int, Any] = {}
        self._last: tuple[int, Any] = (-1, None)

    def __getstate__(self) -> dict[str, Any]:
        # open files do not travel to worker processes
        return {**self.__dict__, "_files": {}, "_last": (-1, None)}

    def __len__(self) -> int:
        return int(self.ends[-1])

    def __getitem__(self, i: int) -> np.ndarray:
        group = int(np.searchsorted(self.ends, i, side="right"))
        if group != self._last[0]:
            self._last = (group, self._column(group))
        column = self._last[1]
        value = column[i - int(self.ends[group])].as_py()  # counted from the group's end
        path = self.paths[self.groups[group][0]]
        content = value.get("bytes") if isinstance(value, dict) else value
        if not isinstance(content, bytes):
            raise invalid(f"{path}, row {i} of all", "an image's bytes", value, _ADVICE)
        return np.asarray(opened(content, f"{path}, row {i} of all", _ADVICE))

    def _column(self, group: int) -> Any:
        shard, local = self.groups[group]
        if shard not in self._files:
            self._files[shard] = _parquet_file(self.paths[shard])
        read = self._files[shard].read_row_group
        return _readable(self.paths[shard], read, local, columns=["image"]).column("image")


def read_parquet(folder: Path, name: str, *, side: int) -> ImageArrays:
    """Shards `train-*.parquet` and `validation-*.parquet`; images stay in them.

    Args:
        folder: holds the shards.
        name: what to call the dataset.
        side: what networks are trained at.
    """
    train, train_paths = _split(folder, "train")
    test, test_paths = _split(folder, "validation")
    n_classes = class_count(f"{folder / 'train'}-*.parquet", train.labels, _ADVICE)
    for kind, split in (("train", train), ("validation", test)):
        check_classes(f"{folder / kind}-*.parquet", split.labels, n_classes, _ADVICE)
    classes = tuple(str(i) for i in range(n_classes))
    checksum = file_checksum(folder, [path.name for path in train_paths + test_paths])
    return ImageArrays(name, train, test, classes, side, str(folder), checksum)


def _split(folder: Path, kind: str) -> tuple[Split, list[Path]]:
    paths = sorted(folder.glob(f"{kind}-*.parquet"))
    if not paths:
        raise invalid(str(folder), f"a folder of {kind}-*.parquet", "none", "Add the shards.")
    sizes, labels = [], []
    for path in paths:
        file = _parquet_file(path)
        columns = set(file.schema_arrow.names)
        if not {"image", "label"} <= columns or file.metadata.num_rows == 0:
            raise invalid(str(path), "a shard with columns image and label", "none", _ADVICE)
        sizes.append([file.metadata.row_group(g).num_rows for g in range(file.num_row_groups)])
        column = _readable(path, file.read, columns=["label"]).column("label").to_numpy()
        if column.dtype.kind not in "iu":  # a missing label makes them floats
            raise invalid(str(path), "a shard with integer labels", str(column.dtype), _ADVICE)
        labels.append(column.astype(np.int64))
    return Split(ParquetImages(paths, sizes), np.concatenate(labels)), paths


def _parquet_file(path: Path) -> Any:
    try:
        import pyarrow.parquet
    except ImportError:
        install = "Install the extra: pip install 'normscope[parquet]'."
        raise invalid("pyarrow", "installed to read parquet shards", None, install) from None
    check_file(path, "a whole parquet file", _ADVICE)
    return _readable(path, pyarrow.parquet.ParquetFile, path)


def _readable(path: Path, read: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """What pyarrow reads of a shard; damage may show only when its pages are decoded."""
    try:
        return read(*args, **options)
    except Exception:  # damaged shards raise errors of any kind
        raise invalid(str(path), "a whole parquet file", "a damaged one", _ADVICE) from None
