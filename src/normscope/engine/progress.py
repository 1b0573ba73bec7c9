"""The progress bar of a run."""

from __future__ import annotations

import math
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn


class ProgressBar:
    """A bar on stderr with loss, kNN, mean norm, images/s and the time left.

    Without a terminal, it prints a line with each kNN instead.
    """

    def __init__(self, title: str, steps: int, done: int) -> None:
        self._console = Console(stderr=True)
        columns = (
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            TextColumn("{task.fields[numbers]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
        )
        self._progress = Progress(*columns, console=self._console, refresh_per_second=4)
        self._task = self._progress.add_task(title, total=steps, completed=done, numbers="")
        self._title = title
        self._shown: dict[str, float] = {}

    def start(self) -> None:
        """Begin to draw."""
        if self._console.is_terminal:
            self._progress.start()

    def stop(self) -> None:
        """Leave the bar as it is."""
        if self._console.is_terminal:
            self._progress.stop()

    def step(self, step: int, images_per_second: float) -> None:
        """Show the number of optimizer steps done, and the speed."""
        self._shown["images_per_second"] = images_per_second
        self._progress.update(self._task, completed=step, numbers=self._numbers())

    def show(self, record: dict[str, Any]) -> None:
        """Take the newest numbers from a log record."""
        named = ("loss", "knn", "norm_mean", "rad_per_step")
        known = {k: record.get(k) for k in named}
        self._shown |= {k: v for k, v in known.items() if v is not None and not math.isnan(v)}
        self._progress.update(self._task, numbers=self._numbers())
        if "knn" in record and not self._console.is_terminal:
            self.line(f"{self._title}: epoch {record['epoch']}, {self._numbers()}")

    def line(self, text: str) -> None:
        """Print a line above the bar."""
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    def _numbers(self) -> str:
        shapes = {
            "loss": "loss {:.3f}",
            "knn": "kNN {:.1%}",
            "norm_mean": "training norm {:.3g}",
            "rad_per_step": "{:.2g} rad/step",
            "images_per_second": "{:,.0f} images/s",
        }
        return ", ".join(s.format(self._shown[k]) for k, s in shapes.items() if k in self._shown)
