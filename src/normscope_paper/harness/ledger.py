"""Finished runs in one file, a line each: what it has need not be trained again."""

from __future__ import annotations

import json
import math
import os
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from normscope.engine import RunFolder, RunResult, RunSpec
from normscope.extend import invalid, typed, whole_file, without_nan
from normscope_paper.harness.results import Made, rounded

POINTS = 3  # log points whose mean stands for an epoch's end
_PATIENCE = 30  # seconds to wait for another process that adds a run
Number = float | None  # null stands for NaN
# what a record of each kind must have; it may have more numbers
_RECORDS: dict[str, dict[str, Any]] = {
    "epoch": {"epoch": int, "knn": Number, "norm_test": Number},
    "step": {"epoch": int, "step": int, "norm_mean": Number},
    "alarm": {"epoch": int, "step": int, "line": str},
    "course": {"steps": list[int], "lrs": list[Number], "norms": list[Number]},
}
# points of the course are at least this share of the steps, or of log norm, apart
_STEPS_APART, _NORMS_APART = 0.01, 0.25


@dataclass(frozen=True)
class StoredRun:
    """What experiments take from a finished run.

    Attributes:
        spec: what was run.
        knn: on the test images, at the end; NaN if the network broke.
        norm: mean over the test images, at the end.
        made: where and with what.
        records: of its metrics, the epochs that were evaluated, for each of these the mean of its
            last log points, the alarms, and one record with the course of norms.
    """

    spec: RunSpec
    knn: float
    norm: float
    made: Made
    records: list[dict[str, Any]]

    @classmethod
    def of(cls, result: RunResult) -> StoredRun:
        """The run in a folder."""
        records = [r for r in result.metrics("epoch") if "knn" in r]
        if not records or records[-1]["epoch"] != result.spec.epochs:
            raise _not_whole(result, "one whose metrics.jsonl lacks the last epoch")
        steps = result.metrics("step")
        for epoch in [r["epoch"] for r in records]:
            points = [r for r in steps if r["epoch"] == epoch]
            records += [_mean(points[-POINTS:])] if points else []
        records += [*result.metrics("alarm"), _course(steps)]
        about = RunFolder(result.folder).made() | {"seconds": float(result.seconds)}
        try:
            made = typed(Made, about, "made")
            run = cls(result.spec, result.knn, result.norm, made, rounded(records))
            return cls.read(run.line())
        except ValueError as error:
            raise _not_whole(result, str(error)) from None

    @classmethod
    def read(cls, line: str) -> StoredRun:
        """What `line` wrote.

        Raises:
            ValueError: if it is anything else.
        """
        stored = typed(_Line, json.loads(line), "it")
        spec = RunSpec.from_dict(stored.spec)
        if spec.name != stored.run:
            raise ValueError(f"{stored.run!r} is not the run of its spec")
        _check_records(stored.records)
        knn, norm = _in_range(stored.knn, most=1.0), _in_range(stored.norm, most=math.inf)
        last = [record for record in stored.records if record["kind"] == "epoch"][-1]
        ends = _same(last["knn"], knn) and _same(last["norm_test"], norm)
        if last["epoch"] != spec.epochs or not ends:
            raise ValueError("its last epoch has other numbers")
        return cls(spec, knn, norm, stored.made, stored.records)

    def line(self) -> str:
        """As JSON."""
        numbers = {"knn": self.knn, "norm": self.norm}
        numbers |= {"made": asdict(self.made), "records": self.records}
        stored = {"run": self.spec.name, "spec": self.spec.stored(), **without_nan(numbers)}
        return json.dumps(stored, allow_nan=False)

    def metrics(self, kind: str) -> list[dict[str, Any]]:
        """The kept `"step"`s, `"epoch"`s or `"alarm"`s, or the `"course"`."""
        return [record for record in self.records if record["kind"] == kind]


@dataclass(frozen=True)
class _Line:
    run: str
    spec: dict[str, Any]
    knn: Number
    norm: Number
    made: Made
    records: list[dict[str, Any]]


def _not_whole(result: RunResult, got: str) -> ValueError:
    return invalid(str(result.folder), "a whole run", got, "Remove it, and train it again.")


def _in_range(value: Number, *, most: float) -> float:
    """A number from 0 up; NaN for null."""
    if value is not None and not 0 <= value <= most:
        raise ValueError(f"{value} is out of range")
    return math.nan if value is None else value


def _same(kept: Number, value: float) -> bool:
    """Whether a number of the records is the run's, up to its rounding."""
    return math.isnan(value) if kept is None else math.isclose(kept, value, rel_tol=1e-4)


def _check_records(records: list[dict[str, Any]]) -> None:
    """Refuse what `StoredRun.of` would not have kept."""
    kinds = [record["kind"] for record in records]
    if kinds.count("course") != 1 or "epoch" not in kinds or not set(kinds) <= _RECORDS.keys():
        raise ValueError("records must be epochs, steps, alarms and one course")
    for record in records:
        needed = _RECORDS[record["kind"]]
        if missing := needed.keys() - record.keys():
            raise ValueError(f"a record has no {min(missing)}")
        for key, value in record.items():
            if key != "kind":
                other = int if key in ("epoch", "step") else Number | list[Number]
                typed(needed.get(key, other), value, f"a record's {key}")
        if record["kind"] == "course" and len({len(record[key]) for key in needed}) != 1:
            raise ValueError("the course has gaps")
        if record["kind"] == "epoch":
            _in_range(record["knn"], most=1.0)
            _in_range(record["norm_test"], most=math.inf)


def _mean(points: list[dict[str, Any]]) -> dict[str, Any]:
    """One log point for several of an epoch: the mean of each number, None if it broke in one."""
    mean: dict[str, Any] = {name: points[-1][name] for name in ("kind", "epoch", "step")}
    for key, last in points[-1].items():
        if key in mean or isinstance(last, list):
            continue
        values = [point[key] for point in points if key in point]
        mean[key] = None if None in values else statistics.fmean(values)
    return mean


def _course(points: list[dict[str, Any]]) -> dict[str, Any]:
    """Steps, learning rates and mean norms at some of the log points, closer where norms change."""
    some: list[dict[str, Any]] = []
    for point in points:
        norm = point["norm_mean"]
        if (
            not some
            or point["step"] - some[-1]["step"] >= _STEPS_APART * points[-1]["step"]
            or (norm and some[-1]["norm_mean"] and _far(norm, some[-1]["norm_mean"]))
        ):
            some.append(point)
    names = {"steps": "step", "lrs": "lr", "norms": "norm_mean"}
    return {"kind": "course"} | {name: [p[key] for p in some] for name, key in names.items()}


def _far(norm: float, before: float) -> bool:
    """Whether a norm is far enough from another to be kept beside it."""
    return abs(math.log(norm / before)) >= _NORMS_APART


class Ledger:
    """A file of runs, in the order of their names.

    Args:
        path: the file; it need not exist yet. A link is followed.
    """

    def __init__(self, path: Path) -> None:
        try:
            self.path = path.resolve()
        except (OSError, RuntimeError):
            raise invalid(str(path), "a file of runs", "a loop of links", "Name another.") from None
        if self.path.exists() and not os.access(self.path, os.W_OK):
            raise invalid(str(path), "a file that can be written to", "another", "Copy it.")
        self._runs = self._read()

    def __iter__(self) -> Iterator[StoredRun]:
        return iter(self._runs.values())

    def get(self, spec: RunSpec) -> StoredRun | None:
        """The run of a spec, if the file has it."""
        return self._runs.get(spec.name)

    def add(self, run: StoredRun) -> StoredRun:
        """Keep a run, unless another process has added it meanwhile; the run that is kept.

        Raises:
            ValueError: if it could not be read again.
        """
        with _alone(self.path.parent):
            self._runs = {run.spec.name: StoredRun.read(run.line())} | self._runs | self._read()
            with whole_file(self.path) as partial:
                lines = [self._runs[name].line() for name in sorted(self._runs)]
                partial.write_text("\n".join(lines) + "\n")
        return self._runs[run.spec.name]

    def _read(self) -> dict[str, StoredRun]:
        runs: dict[str, StoredRun] = {}
        try:
            lines = self.path.read_text().splitlines() if self.path.exists() else []
        except (OSError, ValueError) as error:
            raise self._foreign(str(error)) from None
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                run = StoredRun.read(line)
                if runs.setdefault(run.spec.name, run).line() != run.line():
                    raise ValueError(f"{run.spec.name} is there twice, with other numbers")
            except (ValueError, KeyError, TypeError) as error:
                raise self._foreign(f"line {number}: {error}") from None
            except RecursionError:
                raise self._foreign(f"line {number} is too deep") from None
        return runs

    def _foreign(self, why: str) -> ValueError:
        advice = f"Correct {' '.join(why.split())[:300].rstrip('.')}."
        wanted = "a file of runs that `reproduce` wrote"
        return invalid(str(self.path), wanted, "one with a fault", advice)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Context that only one process at a time can enter for a folder."""
    try:
        import fcntl
    except ImportError:  # Windows, where nothing is locked
        yield
        return
    descriptor, until = os.open(folder, os.O_RDONLY), time.monotonic() + _PATIENCE
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    got, advice = f"held for {_PATIENCE} s", "The run stays in its folder."
                    raise invalid(str(folder), "free for a moment", got, advice) from None
                time.sleep(0.05)
        yield
    finally:
        os.close(descriptor)
