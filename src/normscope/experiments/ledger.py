"""Finished runs in one file, a line each: what it has need not be trained again."""

from __future__ import annotations

import json
import math
import os
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from normscope._checks import invalid
from normscope._files import whole_file, without_nan
from normscope.engine import RunFolder, RunResult, RunSpec
from normscope.experiments.results import rounded

POINTS = 3  # log points whose mean is an epoch's end
_PATIENCE = 30  # seconds to wait for another process that adds a run
_KEYS = {"run", "spec", "knn", "norm", "made", "records"}
_MADE = {"device": str, "hardware": str, "versions": dict, "data_checksum": str, "seconds": float}
# by kind of record, what it must have; beside these it may have more numbers
_RECORD_KEYS = {
    "epoch": {"epoch", "knn", "norm_test"},
    "step": {"epoch", "step", "norm_mean"},
    "alarm": {"epoch", "step", "line"},
    "course": {"steps", "lrs", "norms"},
}
_APART = 0.01, 0.25  # points of the course of norms: a share of the steps, or of log norm


@dataclass(frozen=True)
class Run:
    """What experiments take from a finished run.

    Attributes:
        spec: what was run.
        knn: on the test images, at the end.
        norm: mean over the test images, at the end.
        made: on what, with which versions and data, and how long it took.
        records: of its metrics, the epochs that were evaluated, for each of these the mean of its
            last log points, the alarms, and one record with the course of norms.
    """

    spec: RunSpec
    knn: float
    norm: float
    made: dict[str, Any]
    records: list[dict[str, Any]]

    @classmethod
    def of(cls, result: RunResult) -> Run:
        """Of a run in its folder."""
        made = RunFolder(result.folder).made() | {"seconds": float(result.seconds)}
        records = [r for r in result.metrics("epoch") if "knn" in r]
        if not records or records[-1]["epoch"] != result.spec.epochs:
            got = "one whose metrics.jsonl lacks the last epoch"
            raise invalid(str(result.folder), "a whole run", got, "Remove it, and train anew.")
        steps = result.metrics("step")
        for epoch in [r["epoch"] for r in records]:
            points = [r for r in steps if r["epoch"] == epoch]
            records += [_mean(points[-POINTS:])] if points else []
        records += [*result.metrics("alarm"), _course(steps)]
        run = cls(result.spec, result.knn, result.norm, made, rounded(records))
        try:
            return cls.read(run.line())
        except ValueError as error:
            advice = "Remove it, and train anew."
            raise invalid(str(result.folder), "a whole run", str(error), advice) from None

    @classmethod
    def read(cls, line: str) -> Run:
        """What `line` wrote.

        Raises:
            ValueError: if it is anything else.
        """
        stored = json.loads(line, parse_constant=_no_number, parse_float=_finite)
        if not isinstance(stored, dict) or set(stored) != _KEYS:
            raise ValueError(f"it is no object of {', '.join(sorted(_KEYS))}")
        spec = RunSpec.from_dict(stored["spec"])
        if spec.name != stored["run"]:
            raise ValueError(f"{stored['run']!r} is not the run of its spec")
        made, records = stored["made"], stored["records"]
        if not isinstance(made, dict) or {k: type(v) for k, v in made.items()} != _MADE:
            raise ValueError("made must say on what and how long")
        if made["seconds"] < 0 or {type(value) for value in made["versions"].values()} - {str}:
            raise ValueError("made must have versions and seconds that there can be")
        _check_records(records)
        knn, norm = _number(stored["knn"], most=1.0), _number(stored["norm"], most=math.inf)
        last = [record for record in records if record["kind"] == "epoch"][-1]
        if last["epoch"] != spec.epochs or not (
            _same(last["knn"], knn) and _same(last["norm_test"], norm)
        ):
            raise ValueError("its last epoch says otherwise")
        return cls(spec, knn, norm, made, records)

    def line(self) -> str:
        """As JSON."""
        numbers = {"knn": self.knn, "norm": self.norm, "made": self.made, "records": self.records}
        stored = {"run": self.spec.name, "spec": self.spec.to_dict(), **without_nan(numbers)}
        return json.dumps(stored, allow_nan=False)

    def metrics(self, kind: str) -> list[dict[str, Any]]:
        """What was kept of `"step"`s, `"epoch"`s or `"alarm"`s, or the `"course"`."""
        return [record for record in self.records if record["kind"] == kind]


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is no number")


def _finite(text: str) -> float:
    """JSON's own reader takes 1e999 for infinity."""
    return float(text) if math.isfinite(float(text)) else _no_number(text)


def _same(kept: float | None, value: float) -> bool:
    """Whether a number of the records is one of the run's, but for its rounding."""
    return math.isnan(value) if kept is None else math.isclose(kept, value, rel_tol=1e-4)


def _number(value: object, *, most: float) -> float:
    """What JSON has for a number from 0 up: null stands for NaN."""
    if value is None:
        return math.nan
    if type(value) not in (int, float) or not 0 <= value <= most:  # pyright: ignore[reportOperatorIssue]
        raise ValueError(f"{value!r} is out of range")
    return float(value)  # pyright: ignore[reportArgumentType]


def _check_records(records: Any) -> None:
    """Refuse what `Run.of` would not have kept."""
    kinds = [record["kind"] for record in records]
    if kinds.count("course") != 1 or not set(kinds) <= _RECORD_KEYS.keys():
        raise ValueError("records must be epochs, steps, alarms and one course")
    for record in records:
        _check_record(record)
    epochs = [record for record in records if record["kind"] == "epoch"]
    for record in epochs:
        _number(record["knn"], most=1.0)
        _number(record["norm_test"], most=math.inf)
    (course,) = (record for record in records if record["kind"] == "course")
    if not epochs or len({len(course[key]) for key in ("steps", "lrs", "norms")}) != 1:
        raise ValueError("there is no epoch, or a course with gaps")


def _check_record(record: dict[str, Any]) -> None:
    missing = _RECORD_KEYS[record["kind"]] - record.keys()
    if missing:
        raise ValueError(f"a record has no {min(missing)}")
    for key, value in record.items():
        kinds = {type(x) for x in value} if isinstance(value, list) else {type(value)}
        if key in ("kind", "line"):
            allowed: set[type] = {str}
        else:
            allowed = {int} if key in ("epoch", "step") else {int, float, type(None)}
        if kinds - allowed:
            raise ValueError(f"a record's {key} is {value!r}"[:80])


def _mean(points: list[dict[str, Any]]) -> dict[str, Any]:
    """One log point for several of an epoch: of each number its mean, None if it broke in one."""
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
            or point["step"] - some[-1]["step"] >= _APART[0] * points[-1]["step"]
            or (norm and some[-1]["norm_mean"] and _far(norm, some[-1]["norm_mean"]))
        ):
            some.append(point)
    names = {"steps": "step", "lrs": "lr", "norms": "norm_mean"}
    return {"kind": "course"} | {name: [p[key] for p in some] for name, key in names.items()}


def _far(norm: float, before: float) -> bool:
    """Whether a norm is far enough from another to be kept beside it."""
    return abs(math.log(norm / before)) >= _APART[1]


class Ledger:
    """A file of runs, in the order of their names.

    Args:
        path: the file; it need not exist yet. Of a link, what it leads to.
    """

    def __init__(self, path: Path) -> None:
        try:
            self.path = path.resolve()
        except (OSError, RuntimeError):
            raise invalid(str(path), "a file of runs", "a loop of links", "Name another.") from None
        if self.path.exists() and not os.access(self.path, os.W_OK):
            raise invalid(str(path), "a file that can be written to", "another", "Copy it.")
        self._runs = self._read()

    def __iter__(self) -> Iterator[Run]:
        return iter(self._runs.values())

    def get(self, spec: RunSpec) -> Run | None:
        """The run of a spec, if the file has it."""
        return self._runs.get(spec.name)

    def add(self, run: Run) -> Run:
        """Keep a run; what another process has added meanwhile stays, and is returned.

        Raises:
            ValueError: if it is one that could not be read again.
        """
        with _alone(self.path.parent):
            self._runs = {run.spec.name: Run.read(run.line())} | self._runs | self._read()
            with whole_file(self.path) as partial:
                lines = [self._runs[name].line() for name in sorted(self._runs)]
                partial.write_text("\n".join(lines) + "\n")
        return self._runs[run.spec.name]

    def _read(self) -> dict[str, Run]:
        runs: dict[str, Run] = {}
        try:
            lines = self.path.read_text().splitlines() if self.path.exists() else []
        except (OSError, ValueError) as error:
            raise self._foreign(str(error)) from None
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                run = Run.read(line)
                if runs.setdefault(run.spec.name, run).line() != run.line():
                    raise ValueError(f"{run.spec.name} is there twice, with other numbers")
            except (ValueError, TypeError, KeyError, AttributeError, ArithmeticError) as error:
                raise self._foreign(f"line {number}: {error}") from None
            except RecursionError:
                raise self._foreign(f"line {number} is too deep") from None
        return runs

    def _foreign(self, why: str) -> ValueError:
        advice = f"Mend {' '.join(why.split())[:300].rstrip('.')}."
        return invalid(
            str(self.path), "a file of runs that `reproduce` wrote", "one with a fault", advice
        )


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Inside this, no other process is inside it with the same folder."""
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
