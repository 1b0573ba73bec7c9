"""Embeddings in parquet files, a batch of records at a time."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from normscope._checks import invalid
from normscope.scoring.blocks import (
    NULL,
    RAGGED,
    Block,
    Source,
    block_rows,
    check_shape,
    norms_and_status,
)
from normscope.scoring.raw import chosen

_ADVICE = "Write it again."


@dataclass
class ParquetSource(Source):
    """A column of lists, or a float column for each entry.

    Attributes:
        columns: what holds the embeddings: one column of lists, or d columns of numbers.
        id: the column of ids, or None.
        covariates: names of numeric columns.
        batch_rows: records read at once.
    """

    columns: list[str]
    id: str | None
    covariates: tuple[str, ...]
    batch_rows: int

    def blocks(self) -> Iterator[Block]:
        """The rows in order, as the record batches come."""
        names = [*self.columns, *self.covariates, *([self.id] if self.id else [])]
        for record in _records(self.path, names, self.batch_rows):
            if len(self.columns) > 1:
                z = np.stack([_numbers(record.column(name)) for name in self.columns], axis=1)
                good, status = np.ones(len(z), bool), np.zeros(len(z), np.uint8)
            else:
                z, good, status = _lists(record.column(self.columns[0]), self.d)
            norms, found = norms_and_status(z)
            if not good.all():  # the rows of lists that fit, among all rows
                norms, found, z = _spread(good, norms, found, z)
                found[~good] = status[~good]
            ids = None if self.id is None else self._ids(record.column(self.id))
            given = {name: self._covariate(name, record) for name in self.covariates}
            yield Block(norms, found, z, ids, given)

    def _ids(self, column: Any) -> np.ndarray:
        import pyarrow

        if pyarrow.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        values = column.to_numpy(zero_copy_only=False)
        text = pyarrow.types.is_string(column.type) or pyarrow.types.is_large_string(column.type)
        if column.null_count or not (text or values.dtype.kind in "iu"):
            got = f"{column.type} with {column.null_count} missing"
            raise invalid(f"id of {self.path}", "an integer or a string a row", got, _ADVICE)
        return values

    def _covariate(self, name: str, record: Any) -> np.ndarray:
        values = _numbers(record.column(name))
        if values.dtype.kind not in "fiub":
            advice = "A covariate is one number a row."
            raise invalid(f"{name} of {self.path}", "numeric", str(values.dtype), advice)
        return values.astype(np.float64)


def open_parquet(path: Path, *, covariates: Sequence[str] = (), **_: Any) -> ParquetSource:
    """Column `embedding` or `embeddings`, the only list of floats, or columns e0, e1 and so on.

    Lists that may be of any length have the length that most of the first rows have.

    Args:
        path: of the file.
        covariates: names of numeric columns.
    """
    file = _parquet_file(path)  # raises without pyarrow
    import pyarrow

    schema, rows = file.schema_arrow, file.metadata.num_rows
    twice = {name for name in schema.names if schema.names.count(name) > 1}
    if twice:
        got = f"{min(twice)} twice"
        raise invalid(str(path), "a file of columns with different names", got, _ADVICE)
    for name in covariates:
        if name not in schema.names:
            has = f"It has {', '.join(schema.names[:20])}."
            raise invalid(str(path), f"a file with a column {name!r}", "none", has)
    lists = [f.name for f in schema if _is_list(f.type) and _is_float(f.type.value_type)]
    entries = [f.name for f in schema if re.fullmatch(r"e\d+", f.name) and _is_float(f.type)]
    entries.sort(key=lambda name: int(name[1:]))
    if entries and entries == [f"e{i}" for i in range(len(entries))] and not lists:
        names, d, kind = entries, len(entries), schema.field("e0").type
    else:
        name = chosen(path, schema.names, lists, ("embedding", "embeddings"))
        if name not in lists:
            got, advice = str(schema.field(name).type), "Save the model's raw output."
            raise invalid(f"{name} of {path}", "a list of floats in each row", got, advice)
        names, kind = [name], schema.field(name).type
        fixed = pyarrow.types.is_fixed_size_list(kind)
        d = kind.list_size if fixed else _usual_length(path, name)
        kind = kind.value_type
    rows, d = check_shape(path, (rows, d))
    row_bytes = d * kind.bit_width // 8
    identity = "id" if "id" in schema.names else None
    n = block_rows(row_bytes)
    return ParquetSource(path, rows, d, str(kind), names, identity, tuple(covariates), n)


def _records(path: Path, columns: list[str], rows: int) -> Iterator[Any]:
    import pyarrow

    file = _parquet_file(path)
    try:
        yield from file.iter_batches(batch_size=rows, columns=columns)
    except (OSError, pyarrow.ArrowException) as error:
        why = " ".join(str(error).split())[:120]
        raise invalid(str(path), "a whole parquet file", why, _ADVICE) from None
    finally:
        file.close()


def _parquet_file(path: Path) -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        install = "Install the extra: pip install 'normscope[parquet]'."
        raise invalid("pyarrow", "installed to read parquet files", None, install) from None
    try:
        # a buffer, so that a row group of any size is read page by page
        return pyarrow.parquet.ParquetFile(path, buffer_size=1 << 20, pre_buffer=False)
    except (OSError, pyarrow.ArrowException):
        raise invalid(str(path), "a whole parquet file", "a damaged one", _ADVICE) from None


def _lists(column: Any, d: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The lists of length d, which rows they are, and what the others are."""
    import pyarrow

    null = np.asarray(column.is_null())
    if pyarrow.types.is_fixed_size_list(column.type):
        starts = (column.offset + np.arange(len(column))) * d
        lengths = np.full(len(column), d)
    else:
        offsets = np.asarray(column.offsets, np.int64)
        starts, lengths = offsets[:-1], np.diff(offsets)
    values = _numbers(column.values)
    good = ~null & (lengths == d)
    status = np.where(null, NULL, RAGGED).astype(np.uint8)
    if good.all():
        z = values[starts[0] : starts[0] + len(column) * d].reshape(len(column), d)
    else:
        z = values[starts[good][:, None] + np.arange(d)]
    return z, good, status


def _spread(good: np.ndarray, *parts: np.ndarray) -> Iterator[np.ndarray]:
    """Each part with a row for every row, NaN or 0 where it is not good."""
    for part in parts:
        blank = np.nan if part.dtype.kind == "f" else 0
        whole = np.full((len(good), *part.shape[1:]), blank, part.dtype)
        whole[good] = part
        yield whole


def _usual_length(path: Path, name: str) -> int:
    first = next(_records(path, [name], 100), None)
    lengths = [] if first is None else first.column(name).value_lengths().drop_null().to_numpy()
    return int(np.bincount(lengths).argmax()) if len(lengths) else 0


def _numbers(column: Any) -> np.ndarray:
    """A column as an array; what is missing is NaN."""
    return column.to_numpy(zero_copy_only=False)


def _is_list(kind: Any) -> bool:
    import pyarrow.types as t

    return t.is_list(kind) or t.is_large_list(kind) or t.is_fixed_size_list(kind)


def _is_float(kind: Any) -> bool:
    import pyarrow.types as t

    return t.is_floating(kind)
