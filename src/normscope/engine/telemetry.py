"""What a run reports while it trains: log files, a progress bar, and alarms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from torch import Tensor

from normscope._checks import invalid
from normscope.engine.loggers import Jsonl
from normscope.engine.run_folder import RunFolder, truncate
from normscope.engine.spec import RunSpec
from normscope.methods import StepOutput
from normscope.monitors import NormMonitor, on_host
from normscope.monitors.loggers import Logger, open_logger

if TYPE_CHECKING:
    from normscope.engine.progress import ProgressBar


class Telemetry:
    """The monitor, the loggers and the bar of one run; only its first process has them.

    Args:
        run: the folder.
        spec: the run's spec.
        classes: number of classes; None where there are none.
        weights: scale-invariant weights by name.
        layers: weights by name whose turning is measured.
        loggers: names of loggers besides JSONL.
        steps: optimizer steps of the whole run, for the bar; None shows nothing.
        processes: how many train together.
    """

    def __init__(
        self,
        run: RunFolder,
        spec: RunSpec,
        *,
        classes: int | None,
        weights: Mapping[str, Tensor],
        layers: Mapping[str, Tensor],
        loggers: Sequence[str],
        steps: int | None,
        processes: int,
    ) -> None:
        self.run, self.spec = run, spec
        scaled = {"power": spec.grad_scale, "power_of": spec.grad_scale_of}
        watched = {"weights": weights or None, "layers": layers}
        self.monitor = NormMonitor(**scaled, **watched, classes=classes)
        self._names, self._steps, self._processes = loggers, steps, processes
        self._loggers: list[Logger] = []
        self._jsonl: Jsonl
        self._bar: ProgressBar | None = None
        self._waiting: tuple[dict[str, Any], Tensor] | None = None  # place and loss of a log point

    def check_metrics(self, size: int) -> None:
        """Refuse a metrics file that has lost part of its first `size` bytes."""
        path = self.run.metrics
        held = path.read_bytes()[:size] if path.exists() else b""
        if len(held) < size or (size and not held.endswith(b"\n")):
            raise invalid(str(path), "as the run left it", "another file", "Train again.")

    def open(self, *, size: int, step: int) -> None:
        """Start reporting from this step, after cutting the metrics file to this size."""
        truncate(self.run.metrics, size)
        self._jsonl = Jsonl(self.run.metrics)
        self._loggers = [self._jsonl]
        known = {"key": self.spec.hash, "config": self.spec.to_dict()}
        self._loggers += [open_logger(name, self.run.path, **known) for name in self._names]
        if self._steps is not None:
            from normscope.engine.progress import ProgressBar  # rich is slow to import

            self._bar = ProgressBar(self.spec.name, self._steps, step)
            self._bar.start()
        self.monitor.step = step
        self.monitor.start()
        if size == 0:
            self.log("layers", {"step": step, "names": list(self.monitor.layers)})

    def observe(self, out: StepOutput, labels: Tensor, *, step: int, lr: float) -> None:
        """Write the previous log point's numbers, then observe a step after its backward pass.

        So nothing waits for the device: it passed the previous point long ago.
        """
        self.flush()
        z = out.embeddings
        self.monitor.step = step
        self.monitor.observe(
            z,
            lr=lr,
            targets=out.targets.detach(),
            labels=labels.repeat(len(z) // len(labels)),
            # each process has the gradient of its own part of the loss; the step takes their mean
            grad=None if z.grad is None else z.grad / self._processes,
        )

    def log_point(self, place: Mapping[str, Any], *, lr: float, loss: Tensor) -> None:
        """Send the observations to the host, to be written later."""
        self._waiting = ({**place, "lr": lr}, on_host(loss))
        self.monitor.ship()

    def flush(self) -> None:
        """Write the observations, and the alarms that they raised."""
        if self._waiting is None:
            return
        (place, loss), self._waiting = self._waiting, None
        before = len(self.monitor.alarms), len(self.monitor.withdrawn)
        records = self.monitor.records()  # which waits until they, and the loss, are there
        for record in records:
            self.log("step", {**record, **place, "loss": float(loss)})
        here = {name: place[name] for name in ("epoch", "step")}
        for line in self.monitor.alarms[before[0] :]:
            self.log("alarm", {**here, "line": line})
            self.say(f"warning: {line}")
        for line in self.monitor.withdrawn[before[1] :]:
            self.log("withdrawn", {**here, "line": line})
            self.say(line)

    def say(self, line: str) -> None:
        """A line above the bar, if there is one."""
        if self._bar:
            self._bar.line(line)

    def log(self, kind: str, numbers: Mapping[str, Any]) -> None:
        """Write one record everywhere."""
        record = {"kind": kind, **numbers}
        for logger in self._loggers:
            logger.log(record)
        if self._bar:
            self._bar.show(record)

    def tick(self, step: int, images_per_second: float) -> None:
        """Move the bar."""
        if self._bar:
            self._bar.step(step, images_per_second)

    def size(self) -> int:
        """The metrics file's size, once it is safe on disk."""
        return self._jsonl.size()

    def close(self) -> None:
        """Write the last observations, and close loggers and bar."""
        if self._loggers:
            with suppress(RuntimeError):  # a failed device has nothing to report
                self.flush()
        for logger in self._loggers:
            logger.close()
        if self._bar:
            self._bar.stop()
