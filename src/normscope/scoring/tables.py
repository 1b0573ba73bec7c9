"""Embeddings in Arrow record batches, whatever they were read from."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from normscope._checks import invalid
from normscope.scoring.blocks import (
    NULL,
    RAGGED,
    TEXT_SHOWN,
    TIME,
    Block,
    Source,
    block_rows,
    check_shape,
    checked_ids,
    id_kind,
    norms_and_status,
    not_floating,
)
from normscope.scoring.wanted import Wanted, chosen

# (columns, rows at once) -> the record batches; without columns, what counting rows takes
Records = Callable[[list[str], int], Iterator[Any]]

_AGAIN = "Write it again."
_TICKS = {"s": 1, "ms": 1e3, "us": 1e6, "ns": 1e9}  # of a time, in a second
_TICKS |= {"date32[day]": 1 / 86_400, "date64[ms]": 1e3}
_USUAL = ("embedding", "embeddings")


@dataclass(frozen=True)
class Layout:
    """Where the rows of a table have what is read.

    Attributes:
        entries: what holds the embeddings: one column of lists, or d columns of numbers.
        d: entries of a row.
        numbers: an entry's kind.
        id: the column of ids, or None.
        text: the column of strings, or None.
        covariates: names of numeric columns.
    """

    entries: list[str]
    d: int
    numbers: Any
    id: str | None
    text: str | None
    covariates: tuple[str, ...]

    def names(self) -> list[str]:
        """All that are read, each once."""
        beside = [name for name in (self.id, self.text) if name is not None]
        return list(dict.fromkeys([*self.entries, *self.covariates, *beside]))


@dataclass
class TableSource(Source):
    """Rows of record batches.

    Attributes:
        layout: of their columns.
        records: reads them from the first.
    """

    layout: Layout
    records: Records

    def blocks(self) -> Iterator[Block]:
        """The rows in order, as the record batches come, in pieces if these are long."""
        n = block_rows(self.d * self.layout.numbers.bit_width // 8)
        rows = 0
        with arrow_errors(self.path):
            for record in self.records(self.layout.names(), n):
                for start in range(0, len(record), n):
                    piece = record.slice(start, n)
                    rows += len(piece)
                    yield block_of(self.path, piece, self.layout)
        if rows != self.rows:
            constraint = f"a file of {self.rows:,} rows, as when it was opened"
            advice = "Wait until it is written. In .jsonl, each row is a line."
            raise invalid(self.path, constraint, f"{rows:,}", advice)


def open_table(path: str, schema: Any, rows: int, records: Records, wanted: Wanted) -> TableSource:
    """A source of record batches.

    Args:
        path: of the file, as messages show it.
        schema: of all its columns.
        rows: how many there are.
        records: reads some columns of it.
        wanted: the columns that are meant.
    """

    def length_of(name: str) -> int:
        first = next(records([name], 100), None)
        return 0 if first is None else usual_length(first.column(0))

    with arrow_errors(path):
        layout = layout_of(path, schema, wanted, length_of)
        found = [] if layout.id is None else [f"id: {_id_kind(schema.field(layout.id).type)}"]
    rows, d = check_shape(path, (rows, layout.d))
    given = [c + TIME * is_time(schema.field(c).type) for c in wanted.covariates]
    beside = (*found, *given, *([wanted.text] if wanted.text else []))
    return TableSource(path, rows, d, str(layout.numbers), beside, layout, records)


def layout_of(path: str, schema: Any, wanted: Wanted, length_of: Callable[[str], int]) -> Layout:
    """Column `embedding` or `embeddings`, the only list of floats, or columns e0, e1 and so on.

    A name asked for may also be what such numbered columns begin with. Lists that may be of any
    length have the length that most of the first rows have, as `length_of` gives it.
    """
    names = schema.names
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        constraint = "a file of columns with different names"
        raise invalid(path, constraint, f"{min(twice)} twice", _AGAIN)
    lists = [f.name for f in schema if _is_list(f.type) and _is_float(plain(f.type).value_type)]
    entries = _numbered(schema, wanted.column or "e")
    beside = Wanted(None, wanted.id, wanted.text, wanted.covariates)
    beside.check(path, names)
    if entries and (wanted.column not in names if wanted.column else not lists):
        _check_numbered(path, schema, wanted.column or "e")
        found, d, numbers = entries, len(entries), schema.field(entries[0]).type
    else:
        wanted.check(path, names)
        if not lists:
            _check_numbered(path, schema, wanted.column or "e")
        name = wanted.column or chosen(path, names, lists, _USUAL)
        kind = plain(schema.field(name).type)
        if name not in lists:
            advice = "Save the model's raw output."
            raise invalid(f"{name} of {path}", "a list of floats in each row", str(kind), advice)
        d = kind.list_size if _is_fixed(kind) else length_of(name)
        found, numbers = [name], kind.value_type
    if numbers.bit_width > 64:
        raise not_floating(path, str(numbers))
    return Layout(found, d, numbers, wanted.id_among(names), wanted.text, wanted.covariates)


def block_of(path: str, record: Any, layout: Layout) -> Block:
    """A record batch as a block; its offsets and strings are checked before they are followed."""
    record.validate(full=True)
    columns = {name: _storage(record.column(name)) for name in layout.names()}
    if columns[layout.entries[0]].type == layout.numbers:
        z = np.stack([_numbers(columns[name]) for name in layout.entries], axis=1)
        good, status = np.ones(len(z), bool), np.zeros(len(z), np.uint8)
    else:
        z, good, status = _lists(columns[layout.entries[0]], layout.d)
    norms, found = norms_and_status(z)
    if not good.all():  # the rows of lists that fit, among all rows
        norms, found, z = _spread(good, norms, found, z)
        found[~good] = status[~good]
    ids = None if layout.id is None else _ids(path, columns[layout.id])
    texts = None if layout.text is None else _texts(path, layout.text, columns[layout.text])
    given = {name: _covariate(path, name, columns[name]) for name in layout.covariates}
    return Block(norms, found, z, ids, given, texts)


@contextmanager
def arrow_errors(path: str) -> Iterator[None]:
    """What Arrow says of a damaged file, in one line."""
    import pyarrow

    try:
        yield
    except (OSError, pyarrow.ArrowException, UnicodeDecodeError) as error:
        why = " ".join(str(error).split())[:120]
        raise invalid(path, "a whole file", why, _AGAIN) from None


def with_pyarrow(what: str) -> Any:
    """The module pyarrow; refuses if it is not installed."""
    try:
        import pyarrow
    except ImportError:
        install = "Install the extra: pip install 'normscope[parquet]'."
        raise invalid("pyarrow", f"installed to read {what} files", None, install) from None
    return pyarrow


def text_schema(schema: Any, wanted: Wanted) -> Any:
    """What the columns of a text file are read as, given what the first rows look like.

    Numbers are float64, since whole ones may be followed by others; ids are integers or strings.
    """
    import pyarrow
    import pyarrow.types as t

    ids, number = wanted.id_among(schema.names), pyarrow.float64()

    def kind_of(field: Any) -> Any:
        kind = field.type
        if field.name == wanted.text or (field.name == ids and not t.is_integer(kind)):
            return pyarrow.string()
        if field.name == ids:
            return kind
        if t.is_list(kind):
            entry = kind.value_type
            return pyarrow.list_(number) if t.is_integer(entry) or t.is_null(entry) else kind
        return number if t.is_integer(kind) or t.is_null(kind) else kind

    return pyarrow.schema([field.with_type(kind_of(field)) for field in schema])


def plain(kind: Any) -> Any:
    """The type that an extension type, such as a tensor of fixed shape, is stored as."""
    return getattr(kind, "storage_type", kind)


def _storage(column: Any) -> Any:
    return getattr(column, "storage", column)


def _numbered(schema: Any, prefix: str) -> list[str]:
    """The float columns PREFIX0, PREFIX1 and so on, if none is missing, in order."""
    found = [f.name for f in schema if _is_entry(f.name, prefix) and _is_float(f.type)]
    found.sort(key=lambda name: int(name[len(prefix) :]))
    return found if found == [f"{prefix}{i}" for i in range(len(found))] else []


def _check_numbered(path: str, schema: Any, prefix: str) -> None:
    """Refuse columns PREFIX0 and so on that hold something other than floats, by their name."""
    for field in schema:
        if _is_entry(field.name, prefix) and not _is_float(field.type):
            constraint, advice = "a float in each row", "Save the model's raw output."
            raise invalid(f"{field.name} of {path}", constraint, str(field.type), advice)


def _is_entry(name: str, prefix: str) -> bool:
    return re.fullmatch(re.escape(prefix) + "(0|[1-9][0-9]{0,8})", name) is not None


def _lists(column: Any, d: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The lists of length d, which rows they are, and what the others are."""
    null = np.asarray(column.is_null())
    if _is_fixed(column.type):
        starts = (column.offset + np.arange(len(column))) * d
        lengths = np.full(len(column), d)
    else:
        offsets = np.asarray(column.offsets, np.int64)
        starts, lengths = offsets[:-1], np.diff(offsets)
    good = ~null & (lengths == d)
    status = np.where(null, NULL, RAGGED).astype(np.uint8)
    first = int(starts[0]) if len(starts) else 0
    last = int(starts[-1] + lengths[-1]) if len(starts) else 0
    values = _numbers(column.values.slice(first, last - first))  # no other rows of the array
    if good.all():
        z = values[: len(column) * d].reshape(len(column), d)
    else:
        z = values[(starts[good] - first)[:, None] + np.arange(d)]
    return z, good, status


def _spread(good: np.ndarray, *parts: np.ndarray) -> Iterator[np.ndarray]:
    """Each part with a row for every row, NaN or 0 where it is not good."""
    for part in parts:
        blank = np.nan if part.dtype.kind == "f" else 0
        whole = np.full((len(good), *part.shape[1:]), blank, part.dtype)
        whole[good] = part
        yield whole


def _ids(path: str, column: Any) -> np.ndarray:
    values = _decoded(column)
    if column.null_count or _id_kind(column.type) is None:
        got = f"{column.type} with {column.null_count} missing"
        raise invalid(f"id of {path}", "an integer or a string a row", got, _AGAIN)
    return checked_ids(path, _numbers(values))


def _texts(path: str, name: str, column: Any) -> np.ndarray:
    """The beginning of each string; nothing where there is none."""
    import pyarrow.compute as compute

    words = column.dictionary if _is_coded(column.type) else column
    if not is_text(words.type):
        advice = "Name a column of strings."
        raise invalid(f"{name} of {path}", "a string a row", str(words.type), advice)
    words = compute.utf8_slice_codeunits(words, 0, TEXT_SHOWN)  # pyright: ignore[reportAttributeAccessIssue]
    if _is_coded(column.type):  # cut before it is repeated
        words = words.take(column.indices)
    return _numbers(compute.fill_null(words, ""))


def _covariate(path: str, name: str, column: Any) -> np.ndarray:
    import pyarrow.types as t

    column = _decoded(column)
    if is_time(column.type):
        per_second = _TICKS[getattr(column.type, "unit", str(column.type))]
        whole = "int32" if t.is_date32(column.type) else "int64"
        return _numbers(column.cast(whole).cast("float64", safe=False)) / per_second
    if not any(fits(column.type) for fits in (t.is_floating, t.is_integer, t.is_boolean)):
        advice = "Give each row one; dates as text are none."
        raise invalid(f"{name} of {path}", "a number or a time", str(column.type), advice)
    return _numbers(column.cast("float64", safe=False)).astype(np.float64)


def usual_length(column: Any) -> int:
    """The length of most lists of a column; 0 if there is none."""
    lengths = _storage(column).value_lengths().drop_null().to_numpy(zero_copy_only=False)
    if not len(lengths):
        return 0
    values, counts = np.unique(lengths, return_counts=True)
    return int(values[counts.argmax()])


def _numbers(column: Any) -> np.ndarray:
    """A column as an array; what is missing is NaN."""
    return column.to_numpy(zero_copy_only=False)


def _decoded(column: Any) -> Any:
    return column.dictionary_decode() if _is_coded(column.type) else column


def _is_coded(kind: Any) -> bool:
    import pyarrow.types as t

    return t.is_dictionary(kind)


def is_text(kind: Any) -> bool:
    """Whether a column of this type holds strings."""
    import pyarrow.types as t

    return t.is_string(kind) or t.is_large_string(kind)


def is_time(kind: Any) -> bool:
    """Whether a column of this type holds dates, or dates with a time of day."""
    import pyarrow.types as t

    return t.is_timestamp(kind) or t.is_date(kind)


def _id_kind(kind: Any) -> str | None:
    """What ids are, in a word; None for what can't be an id."""
    import pyarrow.types as t

    kind = kind.value_type if t.is_dictionary(kind) else kind
    if is_text(kind):
        return "strings"
    return id_kind(np.dtype(kind.to_pandas_dtype())) if t.is_integer(kind) else None


def _is_fixed(kind: Any) -> bool:
    import pyarrow.types as t

    return t.is_fixed_size_list(kind)


def _is_list(kind: Any) -> bool:
    import pyarrow.types as t

    kind = plain(kind)
    return t.is_list(kind) or t.is_large_list(kind) or t.is_fixed_size_list(kind)


def _is_float(kind: Any) -> bool:
    import pyarrow.types as t

    return t.is_floating(kind)
