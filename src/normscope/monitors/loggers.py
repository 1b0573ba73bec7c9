"""Where records of a training can go: each logger takes a dict of numbers at a step."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from normscope._checks import invalid

Record = Mapping[str, Any]
_PROJECT = "normscope"


class Logger(Protocol):
    """Receives the records of one run."""

    def log(self, record: Record) -> None:
        """Log one record: its `step`, numbers, and `kind` ("step" unless given)."""
        ...

    def close(self) -> None:
        """Flush and close."""
        ...


class TensorBoard:
    """TensorBoard's event files, in the run's folder."""

    def __init__(self, folder: Path, *, key: str, config: Record) -> None:
        from torch.utils.tensorboard.writer import SummaryWriter

        del key, config  # a resumed run writes a second file, and TensorBoard joins them
        self._writer = SummaryWriter(str(folder / "tensorboard"))

    def log(self, record: Record) -> None:
        """Every number of the record, at its step."""
        for name, value in _numbers(record).items():
            self._writer.add_scalar(name, value, record["step"])

    def close(self) -> None:
        """Close the event file."""
        self._writer.close()


class WeightsAndBiases:
    """A run on Weights & Biases, or offline in the run's folder if WANDB_MODE says so."""

    def __init__(self, folder: Path, *, key: str, config: Record) -> None:
        import wandb

        self._run = wandb.init(
            project=_PROJECT,
            name=folder.name,
            id=key,
            resume="allow",
            dir=str(folder),
            config=dict(config),
        )

    def log(self, record: Record) -> None:
        """Every number of the record, at its step."""
        self._run.log(_numbers(record), step=record["step"])

    def close(self) -> None:
        """Finish the upload."""
        self._run.finish()


class MLflow:
    """A run in the store that MLFLOW_TRACKING_URI names, or MLflow's own default."""

    def __init__(self, folder: Path, *, key: str, config: Record) -> None:
        from mlflow.entities import Param  # pyright: ignore
        from mlflow.tracking import MlflowClient  # pyright: ignore

        self._client = MlflowClient()
        found = self._client.get_experiment_by_name(_PROJECT)
        place = found.experiment_id if found else self._client.create_experiment(_PROJECT)
        runs = self._client.search_runs([place], f"tags.`normscope.key` = '{key}'")
        if runs:
            self._id = runs[0].info.run_id
            self._client.update_run(self._id, status="RUNNING")
        else:
            tags = {"normscope.key": key}
            self._id = self._client.create_run(place, run_name=folder.name, tags=tags).info.run_id
            settings = [Param(name, str(value)) for name, value in config.items()]
            self._client.log_batch(self._id, params=settings)

    def log(self, record: Record) -> None:
        """Every number of the record, at its step."""
        from mlflow.entities import Metric  # pyright: ignore

        now, step = round(1000 * time.time()), record["step"]
        numbers = [Metric(name, value, now, step) for name, value in _numbers(record).items()]
        self._client.log_batch(self._id, metrics=numbers)

    def close(self) -> None:
        """Mark the run as finished."""
        self._client.set_terminated(self._id)


class Trackio:
    """A run in trackio's local store, TRACKIO_DIR, or the Space that TRACKIO_SPACE_ID names."""

    def __init__(self, folder: Path, *, key: str, config: Record) -> None:
        import trackio  # pyright: ignore[reportMissingImports]

        name = f"{folder.name}-{key}"  # by which it is resumed
        self._run = trackio.init(_PROJECT, name=name, config=dict(config), resume="allow")

    def log(self, record: Record) -> None:
        """Every number of the record, at its step."""
        self._run.log(_numbers(record), step=record["step"])

    def close(self) -> None:
        """Wait until all is stored."""
        self._run.finish()


# By name, which is also that of the package to install.
LOGGERS = {
    "tensorboard": TensorBoard,
    "wandb": WeightsAndBiases,
    "mlflow": MLflow,
    "trackio": Trackio,
}


def check_loggers(names: Sequence[str]) -> None:
    """Refuse loggers that are not known or not installed."""
    for name in names:
        if name not in LOGGERS:
            raise invalid("loggers", f"among {', '.join(LOGGERS)}", name, "JSONL is always there.")
        if importlib.util.find_spec(name) is None:
            advice = f"pip install 'normscope[{name}]'"
            raise invalid("loggers", "installed", name, advice)


def open_logger(name: str, folder: Path, *, key: str, config: Record) -> Logger:
    """A logger, for a training loop of any kind.

    Args:
        name: of `LOGGERS`.
        folder: the run's, whose name the run gets; it exists.
        key: letters and digits by which a resumed run is found again.
        config: settings to show beside it.

    Raises:
        ValueError: if it is not known, not installed, or does not start.
    """
    check_loggers([name])
    try:
        return LOGGERS[name](folder, key=key, config=config)
    except Exception as error:  # its own kinds, for a login or a store that is not there
        why = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise invalid("loggers", "ready to log", name, why) from error


def _numbers(record: Record) -> dict[str, float]:
    """A record's numbers by kind and name."""
    places = ("step", "epoch")
    numbers = ((k, v) for k, v in record.items() if isinstance(v, (int, float)) and k not in places)
    kind = record.get("kind", "step")
    return {f"{kind}/{name}": value for name, value in numbers}
