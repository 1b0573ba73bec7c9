"""Files read and scored by the workers of a Ray cluster, their rows in order."""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, cast

from normscope._checks import invalid
from normscope._environment import versions
from normscope.scoring.blocks import Block, Source
from normscope.scoring.listing import Given
from normscope.scoring.parcels import parcels_of, table_of
from normscope.scoring.places import is_url, place_of
from normscope.scoring.readers import Shards, form_of, open_embeddings, open_place
from normscope.scoring.spread import Kernel, Parcel, Spread
from normscope.scoring.wanted import Wanted

_BLOCK_BYTES = 1 << 23  # of what comes back, at once: all that waits in a worker
_PATIENCE = 10  # seconds
_AGAIN = "Wait until it is written, and let every machine see the same files."


@dataclass
class RaySource(Spread):
    """Files that a Ray cluster's workers read, a file by one worker.

    Each worker opens its file by our readers, checks its head again, and sends back what a kernel
    makes of it. A worker that dies is replaced, and its file read again.

    Attributes:
        here: the same files, read in this process.
        wanted: the columns that are read.
    """

    here: Source
    wanted: Wanted

    def blocks(self) -> Iterator[Block]:
        """The rows in order, read in this process."""
        return self.here.blocks()

    def mapped(self, kernel: Kernel) -> Iterator[Parcel]:
        """What the kernel makes of each block, in the order of the rows."""
        parts = self.here.parts if isinstance(self.here, Shards) else [self.here]
        work = _Work(form_of(self.here), self.wanted, kernel, versions()["normscope"])
        items, start = [], 0
        for part in parts:
            items.append({"name": _everywhere(part.path), "start": start, "rows": part.rows})
            start += part.rows
        rows = 0
        for parcel in parcels_of(_tables(items, work), d=self.d):
            yield parcel
            rows += len(parcel.block)
        if rows != self.rows:
            raise RuntimeError(f"all {self.rows:,} rows must come, got {rows:,}. Start again.")


def open_on_ray(
    given: Given | Sequence[Given],
    *,
    split: Literal["train", "test"] = "test",
    column: str | None = None,
    id: str | None = None,
    text: str | None = None,
    covariates: Sequence[str] = (),
) -> RaySource:
    """`open_embeddings`, but what is made of the rows is computed in a Ray cluster.

    Every machine must see the files by the same names, and have the same normscope. Use it within
    `connected`, or after `ray.init`.
    """
    wanted = Wanted(column, id, text, tuple(covariates), split)
    here = open_embeddings(
        given, split=split, column=column, id=id, text=text, covariates=covariates
    )
    return RaySource(here.path, here.rows, here.d, here.dtype, here.beside, here, wanted)


STARTED = threading.Event()  # this process has had threads of Ray's


@contextmanager
def connected(address: str | None = None) -> Iterator[None]:
    """A connection to a Ray cluster, closed on leaving; one that is there is used, and stays.

    Args:
        address: of a cluster; None takes the one that RAY_ADDRESS names or that runs on this
            machine, else starts one here, which ends on leaving.
    """
    ray = _with_ray()
    if ray.is_initialized():
        yield
        return
    if address is not None:
        _check_answers(address)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is sent to anyone
    STARTED.set()
    try:
        ray.init(
            address=address,
            include_dashboard=None if address else False,
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
    except (ConnectionError, ValueError, RuntimeError, TimeoutError) as error:
        why = " ".join(str(error).split())[:120]
        advice = f"Start it, and give this machine its token. Ray says: {why}"
        raise invalid("ray-address", "a cluster that answers", address, advice) from None
    try:
        yield
    finally:
        ray.shutdown()


@dataclass(frozen=True)
class _Work:
    """What every worker does with its file.

    Attributes:
        form: of a file's rows, as it was when files were listed.
        wanted: the columns that are read.
        kernel: what is made of a block.
        version: of normscope.
    """

    form: str
    wanted: Wanted
    kernel: Kernel
    version: str

    def __call__(self, item: Any) -> Iterator[Any]:
        """The parcels of a file as Arrow tables; an error that a user can mend as one row."""
        import pyarrow

        name, start, rows = (item.column(k)[0].as_py() for k in ("name", "start", "rows"))
        try:
            here = versions()["normscope"]
            if here != self.version:
                advice = "Install one version on all machines."
                raise invalid("normscope of a worker", self.version, here, advice)
            source = open_place(place_of(name), self.wanted)
            found = f"{source.rows:,} rows of {form_of(source)}"
            if found != (listed := f"{rows:,} rows of {self.form}"):
                raise invalid(name, f"{listed}, as when it was listed", found, _AGAIN)
            for block in source.blocks():
                yield table_of(self.kernel(block, start), start)
                start += len(block)
        except (ValueError, OSError) as error:
            yield pyarrow.table({"error": [str(error) or type(error).__name__]})


def _tables(items: list[dict[str, Any]], work: _Work) -> Iterator[Any]:
    """What the workers make of files, in the order of these."""
    import ray.data

    with _in_order():
        files = ray.data.from_items(items, override_num_blocks=len(items))
        made = files.map_batches(work.__call__, batch_size=1, batch_format="pyarrow")
        batches = made.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=1)
        for table in cast("Iterable[Any]", batches):
            if "error" in table.column_names:  # Ray may have put it behind rows of its file
                raise ValueError(table.column("error").drop_null()[0].as_py())
            yield table


@contextmanager
def _in_order() -> Iterator[None]:
    """Settings of Ray Data for ordered, small and quiet blocks; the user's come back after."""
    from ray.data import DataContext

    log = logging.getLogger("ray.data")
    level = log.level
    log.setLevel(logging.ERROR)

    context = DataContext.get_current()
    options = context.execution_options
    before = options.preserve_order
    ours = {
        "target_max_block_size": _BLOCK_BYTES,
        "enable_progress_bars": False,
        "print_on_execution_start": False,
    }
    theirs = {name: getattr(context, name) for name in ours if hasattr(context, name)}
    options.preserve_order = True
    for name in theirs:
        setattr(context, name, ours[name])
    try:
        yield
    finally:
        log.setLevel(level)
        options.preserve_order = before
        for name, value in theirs.items():
            setattr(context, name, value)


def _everywhere(name: str) -> str:
    """A file's name as other processes know it."""
    return name if is_url(name) else os.path.abspath(name)


def _check_answers(address: str) -> None:
    """Refuse an address where nothing listens: Ray would try it for ten minutes."""
    advice = "Start one with `ray start --head`, or leave it out."
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not port.isdigit():
        return  # a word that Ray knows, or refuses at once
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_PATIENCE).close()
    except (OSError, OverflowError, ValueError):
        raise invalid("ray-address", "a cluster that answers", address, advice) from None


def _with_ray() -> Any:
    try:
        import pyarrow  # noqa: F401
        import ray
        import ray.data
    except ImportError:
        install = "Install the extra: pip install 'normscope[ray]'."
        raise invalid("ray", "installed for engine ray", None, install) from None
    return ray
