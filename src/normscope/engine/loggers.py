"""Where a run's numbers go: always to a JSONL file, on request elsewhere too."""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from normscope._checks import invalid
from normscope._files import without_nan
from normscope.engine.spec import RunSpec

Record = Mapping[str, Any]


class Logger(Protocol):
    """Receives a run's records."""

    def log(self, record: Record) -> None:
        """Log one record: its kind, epoch, step, and numbers."""
        ...

    def close(self) -> None:
        """Flush and close."""
        ...


class Jsonl:
    """One JSON object a line. NaN and infinity are written as null."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a")

    def log(self, record: Record) -> None:
        """Append a line."""
        self._file.write(json.dumps(without_nan(record), allow_nan=False) + "\n")
        self._file.flush()

    def size(self) -> int:
        """How many bytes are safely on disk."""
        os.fsync(self._file.fileno())
        return self._file.tell()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class TensorBoard:
    """TensorBoard's event files, in the run's folder."""

    def __init__(self, folder: Path) -> None:
        from torch.utils.tensorboard.writer import SummaryWriter

        self._writer = SummaryWriter(str(folder / "tensorboard"))

    def log(self, record: Record) -> None:
        """Every number of the record, at its step."""
        for name, value in _numbers(record).items():
            self._writer.add_scalar(f"{record['kind']}/{name}", value, record["step"])

    def close(self) -> None:
        """Close the event file."""
        self._writer.close()


class WeightsAndBiases:
    """A run on Weights & Biases, under the folder's name; resumed with it."""

    def __init__(self, folder: Path, spec: RunSpec) -> None:
        import wandb  # pyright: ignore[reportMissingImports]

        self._run = wandb.init(
            project="normscope",
            name=folder.name,
            id=spec.hash,
            resume="allow",
            dir=str(folder),
            config=spec.to_dict(),
        )

    def log(self, record: Record) -> None:
        """Every number of the record, at its step."""
        numbers = {f"{record['kind']}/{k}": v for k, v in _numbers(record).items()}
        self._run.log(numbers, step=record["step"])

    def close(self) -> None:
        """Finish the upload."""
        self._run.finish()


LOGGERS = ("tensorboard", "wandb")


def check_loggers(names: Sequence[str]) -> None:
    """Refuse loggers that are not known or not installed."""
    for name in names:
        if name not in LOGGERS:
            raise invalid("loggers", f"among {', '.join(LOGGERS)}", name, "JSONL is always there.")
        if importlib.util.find_spec(name) is None:
            advice = f"pip install 'normscope[{name}]'"
            raise invalid("loggers", "installed", name, advice)


def extra_logger(name: str, folder: Path, spec: RunSpec) -> Logger:
    """A logger beside the JSONL file, by its name in `LOGGERS`."""
    return TensorBoard(folder) if name == "tensorboard" else WeightsAndBiases(folder, spec)


def _numbers(record: Record) -> dict[str, float]:
    places = ("step", "epoch")
    return {k: v for k, v in record.items() if isinstance(v, (int, float)) and k not in places}
