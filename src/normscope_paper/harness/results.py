"""What an experiment stores: its numbers, and where they came from."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

from normscope.extend import hardware, invalid, typed, versions, whole_file

T = TypeVar("T")
Scale = Literal["smoke", "small", "paper"]
SCALES: tuple[Scale, ...] = ("smoke", "small", "paper")


@dataclass(frozen=True)
class Made:
    """On what a run was trained, with which versions and images, and for how long."""

    device: str
    hardware: str
    versions: dict[str, str]
    data_checksum: str
    seconds: float

    def __post_init__(self) -> None:
        if self.seconds < 0:
            raise ValueError(f"seconds must be zero or more, got {self.seconds}")


@dataclass(frozen=True)
class Provenance:
    """Where and with what numbers were computed, and the runs that they are taken from."""

    command: str
    seconds: float
    versions: dict[str, str]
    hardware: str
    runs: dict[str, Made] = field(default_factory=dict)

    @classmethod
    def of(cls, command: str, seconds: float, *, gpu: bool, runs: dict[str, Made]) -> Provenance:
        """Here and now."""
        return cls(command, round(seconds, 2), versions(), hardware(gpu=gpu), runs)

    @property
    def trained_seconds(self) -> float:
        """How long the runs trained, wherever that was."""
        return sum(made.seconds for made in self.runs.values())


@dataclass
class Results:
    """The numbers of one experiment at one scale; figures and claims come from these alone.

    Args:
        experiment: its ID.
        scale: how large it was.
        seeds: how many, from `seed` on.
        seed: the first.
        data: numbers, strings, and lists and dicts of them.
        provenance: where they came from; None before they are stored.
    """

    experiment: str
    scale: Scale
    seeds: int
    seed: int
    data: dict[str, Any]
    provenance: Provenance | None = None

    @property
    def file_name(self) -> str:
        """`<experiment>.<scale>.json`."""
        return f"{self.experiment}.{self.scale}.json"

    @property
    def made(self) -> Provenance:
        """The provenance, which all stored results have."""
        assert self.provenance is not None
        return self.provenance

    def save(self, folder: Path) -> Path:
        """Write the file, whole or not at all."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / self.file_name
        with whole_file(path) as partial:
            partial.write_text(json.dumps(asdict(self), allow_nan=False) + "\n")
        return path

    @classmethod
    def load(cls, path: Path) -> Results:
        """Read what `save` wrote.

        Raises:
            ValueError: if the file holds anything else.
        """
        try:
            results = typed(cls, json.loads(path.read_text()), "it")
            if results.provenance is None or not results.data:
                raise ValueError("it has no data or provenance")
            if not (0 < results.seeds < 2**31 and 0 <= results.seed < 2**31):
                raise ValueError("its seeds are out of range")
        except (ValueError, RecursionError) as error:
            advice = f"{str(error).rstrip('.')}. Delete the file, or run `reproduce` again."
            raise invalid(str(path), "a file that `reproduce` wrote", "another", advice) from error
        return results

    def read(self, reader: Callable[[Results], T]) -> T:
        """What a reader finds in the numbers; those that another version wrote are refused."""
        try:
            return reader(self)
        except Exception as error:  # numbers that are not there raise errors of any kind
            words = ["normscope", "reproduce", self.experiment, "--scale", self.scale]
            advice = f"Run {shlex.join(words)} again."
            why = f"{type(error).__name__}: {error}"
            raise invalid(self.file_name, "as `reproduce` writes it now", why, advice) from error


def rounded(values: Any, digits: int = 5) -> Any:
    """Nested lists, arrays or tensors as lists of numbers with so many significant digits.

    >>> rounded([[1.23456789, 2], (3.0,)], digits=3)
    [[1.23, 2], [3.0]]
    """
    if hasattr(values, "tolist"):
        values = values.tolist()
    if isinstance(values, Mapping):
        return {key: rounded(value, digits) for key, value in values.items()}
    if isinstance(values, (list, tuple)):
        return [rounded(value, digits) for value in values]
    return float(f"{values:.{digits}g}") if isinstance(values, float) else values


def finite(value: float | None) -> float:
    """A share that is 0 where a network broke, and has none."""
    return 0.0 if value is None or math.isnan(value) else value
