"""The folder of one run: its spec, metrics, checkpoint and result."""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from normscope._checks import invalid
from normscope._environment import hardware, versions
from normscope._files import exclusive, whole_file, without_nan
from normscope.engine.differences import described, differences, extends, how_to_extend, is_length
from normscope.engine.spec import RunSpec


class InUseError(ValueError):
    """Another process is training the run."""


@dataclass(frozen=True)
class RunFolder:
    """The files of a run, by name."""

    path: Path

    @property
    def spec_file(self) -> Path:
        """The resolved spec, with the environment it was started in."""
        return self.path / "spec.json"

    @property
    def metrics(self) -> Path:
        """One JSON object a line: log points, epochs, alarms."""
        return self.path / "metrics.jsonl"

    @property
    def checkpoint(self) -> Path:
        """Everything needed to resume."""
        return self.path / "checkpoint.pt"

    @property
    def encoder(self) -> Path:
        """The trained network's weights, with what `load_encoder` must know as its metadata."""
        return self.path / "encoder.safetensors"

    @property
    def config(self) -> Path:
        """That metadata, to be read without the weights."""
        return self.path / "config.json"

    @property
    def result_file(self) -> Path:
        """The result; its presence marks the run as finished."""
        return self.path / "result.json"

    @property
    def evaluation(self) -> tuple[Path, ...]:
        """What `normscope evaluate` writes."""
        return tuple(self.path / n for n in ("evaluation.json", "embeddings.npz", "gallery.npz"))

    def spec(self) -> RunSpec:
        """The spec of the run in this folder."""
        return self._about()[0]

    def made(self) -> dict[str, Any]:
        """Where the run was started: device, hardware, versions, and the data's checksum."""
        _, checksum = self._about()
        about = json.loads(self.spec_file.read_text())
        versions = about.get("versions")
        stated = versions if isinstance(versions, dict) else {}
        return {
            **{name: str(about.get(name, "unknown")) for name in ("device", "hardware")},
            "versions": {name: str(version) for name, version in stated.items()},
            "data_checksum": checksum,
        }

    def check_data(self, checksum: str) -> None:
        """Refuse images other than those that the run started with."""
        spec, stored = self._about()
        if stored != checksum:
            got = f"{spec.data} with another checksum"
            raise invalid("data", "the images that the run began with", got, "Fetch it again.")

    def _about(self) -> tuple[RunSpec, str]:
        """The spec and the images' checksum, as spec.json has them."""
        advice = "`normscope train` makes one, by default below runs/."
        try:
            about = json.loads(self.spec_file.read_text())
            values, spec_hash, checksum = (about[k] for k in ("spec", "hash", "data_checksum"))
            spec = RunSpec.from_dict(values)
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
            raise invalid("run", "the folder of a run", str(self.path), advice) from None
        if spec.hash != spec_hash:
            raise invalid(str(self.spec_file), "as train wrote it", "an edited one", advice)
        return spec, checksum

    def begin(self, spec: RunSpec, *, resume: bool, checksum: str, device: str) -> None:
        """Create the folder for this spec, or check that it is this run's; hold its lock first.

        Raises:
            ValueError: if it holds another run, or this one and `resume` is false.
        """
        known = self.spec_file.exists()
        if known:
            old = self.spec()
            longer = resume and extends(old, spec)
            found = {} if longer else differences(old, spec)
            if found:
                advice = "Name another folder, or remove this one."
                if is_length(found) and spec.epochs > old.epochs:
                    advice = how_to_extend(old, spec)
                got = f"{self.path}, whose run has {described(found)}"
                raise invalid("folder", "empty or this run's", got, advice)
            self.check_data(checksum)
            if not resume:
                advice = "The run was started already. Pass --resume (resume=True) to continue."
                if self.result_file.exists():
                    advice = "The run is finished. Name another folder to train it again."
                raise invalid("folder", "new", str(self.path), advice)
            if longer:
                self._extend(spec)
        for partial in self.path.glob(".*.partial"):  # of a process that was killed
            partial.unlink()
        if known:
            return
        about = {
            "spec": spec.to_dict(),
            "hash": spec.hash,
            "data_checksum": checksum,
            "device": device,
            "hardware": hardware(gpu=device.startswith("cuda")),
            "versions": versions(),
        }
        with whole_file(self.spec_file) as partial:
            partial.write_text(json.dumps(about, indent=1) + "\n")

    def _extend(self, spec: RunSpec) -> None:
        """Make this the folder of a longer run, whose first epochs are there."""
        if self.result_file.exists() and not self.checkpoint.exists():
            advice = "Without it no run goes on. Name another folder to train from the start."
            raise invalid("folder", "a run with its checkpoint", str(self.path), advice)
        about = json.loads(self.spec_file.read_text())
        hashes = [*self.shorter_hashes(), about["hash"]]
        about |= {"spec": spec.to_dict(), "hash": spec.hash, "shorter_hashes": hashes}
        with whole_file(self.spec_file) as partial:
            partial.write_text(json.dumps(about, indent=1) + "\n")
            # what was found of the shorter run; the longer one is not finished
            for file in (self.result_file, *self.evaluation):
                file.unlink(missing_ok=True)

    def shorter_hashes(self) -> list[str]:
        """What named this run before it was extended, whose checkpoint may still be there."""
        hashes = json.loads(self.spec_file.read_text()).get("shorter_hashes", [])
        return [str(one) for one in hashes] if isinstance(hashes, list) else []

    def locked(self) -> IO[str]:
        """Create the folder and lock it for this process, until the returned file is closed.

        Raises:
            InUseError: if another process holds it.
            ValueError: if it is not a run's folder.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            # a process that was killed early leaves its lock and half a file
            begun = {*self.path.glob(".lock"), *self.path.glob(".*.partial")}
            if set(self.path.iterdir()) - begun and not self.spec_file.exists():
                advice = "Name another folder."
                raise invalid("folder", "empty or a run's", str(self.path), advice)
            f = exclusive(self.path / ".lock")
        except OSError as error:
            got = f"{self.path}: {error.strerror}"
            raise invalid("folder", "one that can be written to", got, "Name another.") from None
        if f is None:
            advice = "Wait for the other process, or stop it."
            error = invalid("folder", "unused by other processes", str(self.path), advice)
            raise InUseError(str(error))
        return f

    def read_metrics(self) -> list[dict[str, Any]]:
        """Every record that was logged, in order."""
        if not self.metrics.exists():
            return []
        try:
            records = [json.loads(line) for line in self.metrics.read_text().splitlines()]
            if all(isinstance(record, dict) and "kind" in record for record in records):
                return records
        except (ValueError, RecursionError):
            pass
        advice = "Remove the folder and train again."
        raise invalid(str(self.metrics), "as train wrote it", "a damaged one", advice)


@dataclass(frozen=True)
class RunResult:
    """The result of a finished run.

    Attributes:
        spec: the run's spec.
        folder: where its files are.
        knn: kNN accuracy on the test images, from the backbone's features.
        loss: mean over the last epoch.
        norm: mean embedding norm over the test images.
        steps: optimizer steps.
        seconds: spent training, over all sessions.
        images_per_second: training images (each in two views) per second, without evaluation.
        waited: seconds of training for which the device waited for images.
    """

    spec: RunSpec
    folder: Path
    knn: float
    loss: float
    norm: float
    steps: int
    seconds: float
    images_per_second: float
    waited: float = 0.0

    def save(self) -> None:
        """Write result.json, which marks the run as finished."""
        numbers = {k: v for k, v in vars(self).items() if k not in ("spec", "folder")}
        with whole_file(RunFolder(self.folder).result_file) as partial:
            partial.write_text(json.dumps(without_nan(numbers), indent=1) + "\n")

    @classmethod
    def load(cls, folder: Path | str) -> RunResult:
        """The result of a finished run."""
        run = RunFolder(Path(folder))
        spec = run.spec()
        if not run.result_file.exists():
            raise invalid("run", "finished", str(folder), "Continue it with --resume.")
        try:
            values = json.loads(run.result_file.read_text())
            numbers: dict[str, Any] = {k: _number(v) for k, v in values.items()}
            return cls(spec=spec, folder=run.path, **numbers)
        except (OSError, ValueError, TypeError, AttributeError, OverflowError, RecursionError):
            advice = "Remove it, and continue with --resume."
            raise invalid(str(run.result_file), "as train wrote it", "another", advice) from None

    def metrics(self, kind: str | None = None) -> list[dict[str, Any]]:
        """Logged records: `"step"`s, `"epoch"`s or `"alarm"`s, or all of them."""
        records = RunFolder(self.folder).read_metrics()
        return [r for r in records if kind in (None, r["kind"])]

    def history(self, key: str) -> tuple[list[int], list[float]]:
        """A quantity over epochs, where it was measured: the epochs and the values."""
        found = [(r["epoch"], r[key]) for r in self.metrics("epoch") if key in r]
        found = [(epoch, math.nan if v is None else v) for epoch, v in found]
        return [e for e, _ in found], [v for _, v in found]


def _number(value: Any) -> int | float:
    """A number from JSON, where null stands for NaN."""
    if type(value) is int and abs(value) < 2**63:
        return value
    if value is not None and type(value) is not float:
        raise TypeError
    return math.nan if value is None else value


def truncate(path: Path, size: int) -> None:
    """Cut a file to this size, if it is larger."""
    if path.exists() and path.stat().st_size > size:
        os.truncate(path, size)
