"""Parcels as Arrow tables, and back, however the tables were cut on their way."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from normscope.scoring.blocks import Block
from normscope.scoring.spread import Parcel

_OF_BLOCK = ("norm", "status", "id", "text")
_COVARIATE, _COLUMN = "covariate ", "column "


def table_of(parcel: Parcel, start: int) -> Any:
    """A parcel as an Arrow table, a row for each of its rows.

    Args:
        parcel: of a block.
        start: the row that the block begins at.
    """
    import pyarrow

    block = parcel.block
    end = np.arange(len(block)) == len(block) - 1
    arrays: dict[str, Any] = {"row": np.arange(start, start + len(block)), "end": end}
    given = zip(_OF_BLOCK, (block.norms, block.status, block.ids, block.texts), strict=True)
    arrays |= {name: values for name, values in given if values is not None}
    arrays |= {_COVARIATE + name: values for name, values in block.covariates.items()}
    arrays |= {_COLUMN + name: values for name, values in parcel.columns.items()}
    table = pyarrow.table({name: pyarrow.array(values) for name, values in arrays.items()})
    if parcel.carried is None:
        return table
    return table.append_column("z", _lists(block, parcel.carried))


def parcels_of(tables: Iterable[Any], *, d: int) -> Iterator[Parcel]:
    """The parcels that tables hold; these follow each other, cut and joined at any row.

    Args:
        tables: as `table_of` gives them.
        d: entries of an embedding.
    """
    row = 0
    for table in _recut(tables):
        found = np.asarray(table.column("row"))
        if not np.array_equal(found, np.arange(row, row + len(found))):
            got = f"{found[0]:,} to {found[-1]:,}"
            raise RuntimeError(f"rows must come in order from {row:,}, got {got}. Start again.")
        row += len(found)
        yield _parcel(table, d)


def _recut(tables: Iterable[Any]) -> Iterator[Any]:
    """Tables of one parcel each."""
    import pyarrow

    held: list[Any] = []
    for table in tables:
        start = 0
        for end in np.flatnonzero(np.asarray(table.column("end"))):
            held.append(table.slice(start, end + 1 - start))
            yield pyarrow.concat_tables(held, promote_options="default").combine_chunks()
            held, start = [], end + 1
        if start < len(table):
            held.append(table.slice(start))
    if held:
        raise RuntimeError("rows must come to their end, got a part of a block. Start again.")


def _parcel(table: Any, d: int) -> Parcel:
    values = {name: table.column(name) for name in table.column_names}
    z, carried = _rows(values.pop("z", None), rows=len(table), d=d)
    arrays = {name: column.to_numpy() for name, column in values.items()}
    ids, texts = (arrays.get(name) for name in ("id", "text"))
    given = _under(_COVARIATE, arrays)
    block = Block(arrays["norm"], arrays["status"], z, ids, given, texts)
    return Parcel(block, _under(_COLUMN, arrays), carried)


def _under(prefix: str, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}


def _lists(block: Block, carried: np.ndarray) -> Any:
    """A list for each row, null where its embedding is not carried."""
    import pyarrow

    z = block.z[carried]
    flat = pyarrow.array(z.astype(z.dtype.newbyteorder("="), copy=False).reshape(-1))
    ends = np.concatenate([[0], np.cumsum(carried * z.shape[1])]).astype(np.int32)
    return pyarrow.ListArray.from_arrays(pyarrow.array(ends), flat, mask=pyarrow.array(~carried))


def _rows(column: Any, *, rows: int, d: int) -> tuple[np.ndarray, np.ndarray | None]:
    """The embeddings of rows, zero where they are not carried, and which are."""
    if column is None:
        return np.zeros((rows, d), np.float32), None
    carried = np.asarray(column.is_valid())
    flat = column.combine_chunks().flatten().to_numpy()
    z = np.zeros((rows, d), flat.dtype)  # pages that nothing is written to take no memory
    z[carried] = flat.reshape(-1, d)
    return z, carried
