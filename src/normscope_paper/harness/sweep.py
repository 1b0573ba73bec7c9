"""Training runs that experiments share: each spec is trained once, and evaluated once."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any
from zipfile import is_zipfile

import torch
from rich.console import Console

from normscope import data
from normscope.engine import InUseError, RunFolder, RunResult, RunSpec, evaluate, made_with, train
from normscope_paper.harness.ledger import Ledger, StoredRun
from normscope_paper.harness.results import Made, Scale

# What each scale trains with; `paper` is Appendix "Experimental Setup".
SETTINGS: dict[Scale, dict[str, Any]] = {
    "smoke": {},  # the defaults for digits: a small network, 60 epochs
    "small": {"net": "resnet18", "epochs": 30},
    "paper": {"net": "resnet50", "epochs": 512},
}
_PATIENCE = 1.0  # seconds between looks at a run that another process trains


def spec_at(scale: Scale, **values: Any) -> RunSpec:
    """The spec of a run at a scale: its network and epochs unless `values` say otherwise."""
    return RunSpec(**{**SETTINGS[scale], **values})


def epochs_at(scale: Scale, *, paper: int, small: int | None = None) -> dict[str, Any]:
    """The epochs of a spec where an experiment has its own; nothing where it has not."""
    own = {"paper": paper, "small": small}.get(scale)
    return {} if own is None else {"epochs": own}


def datasets_at(scale: Scale, *names: str) -> tuple[str, ...]:
    """The datasets of an experiment; at smoke scale, digits alone."""
    return ("digits",) if scale == "smoke" else names


def folder_of(spec: RunSpec) -> Path:
    """Below `$NORMSCOPE_RUNS`, or else below runs/, where `normscope train` keeps its runs too."""
    return Path(os.environ.get("NORMSCOPE_RUNS") or "runs").expanduser() / spec.name


class OutOfTime(KeyboardInterrupt):
    """The sweep's minutes are over."""


class Sweep:
    """Hands out finished runs, and trains those that are missing.

    Args:
        ledger: runs that need not be trained; those that are trained are added to it.
        minutes: after these, training stops as if by Ctrl-C, and none begins.

    Attributes:
        used: what made each run that was handed out, by the run's name.
    """

    def __init__(self, *, ledger: Ledger | None = None, minutes: float = math.inf) -> None:
        self.ledger = ledger
        self.used: dict[str, Made] = {}
        self._until = time.monotonic() + 60 * minutes
        self._images = lru_cache(maxsize=1)(data.load)  # one set serves most runs

    def time_is_up(self) -> bool:
        """Whether the minutes are over."""
        return time.monotonic() >= self._until

    def require(self, datasets: Iterable[str]) -> None:
        """Raise before training if a dataset is missing."""
        for name in datasets:
            self._images(name, data.default_root())

    def runs(self, specs: Sequence[RunSpec], *, weights: bool = False) -> list[StoredRun]:
        """The finished runs of these specs: from the ledger or their folders, or trained now.

        Several processes share a sweep: what another one is training is left for the end, and
        then waited for.

        Args:
            specs: what to train.
            weights: whether the networks are needed too, which a ledger does not hold.
        """
        missing = self.missing(specs, weights=weights)
        if missing:
            count = f"{len(missing)} run{'s' * (len(missing) > 1)}"
            place = "a GPU" if torch.cuda.is_available() else "the CPU (there is no GPU)"
            Console(stderr=True).print(f"{count} to train, on {place}", highlight=False)
        self.require(dict.fromkeys(spec.data for spec in missing))
        stored = [self._stored(spec, weights) for spec in specs]
        for i, spec in enumerate(specs):
            with suppress(InUseError):
                stored[i] = stored[i] or self._trained(spec, weights)
        runs = [run or self._waited_for(s, weights) for s, run in zip(specs, stored, strict=True)]
        self.used |= {run.spec.name: run.made for run in runs}
        return runs

    def missing(self, specs: Sequence[RunSpec], *, weights: bool = False) -> list[RunSpec]:
        """The specs that have neither a line in the ledger nor a finished folder."""
        absent = [spec for spec in specs if self._stored(spec, weights) is None]
        return [spec for spec in absent if not RunFolder(folder_of(spec)).result_file.exists()]

    def evaluation(self, spec: RunSpec) -> dict[str, Any]:
        """What `normscope evaluate` finds for the finished run of a spec."""
        self.runs([spec], weights=True)
        folder = folder_of(spec)
        try:
            found = json.loads((folder / "evaluation.json").read_text())
            fresh = (found["epoch"], found["made_with"]) == (spec.epochs, made_with(spec.data))
            if fresh and is_zipfile(folder / "gallery.npz"):
                return found
        except (OSError, ValueError, KeyError, TypeError):
            pass  # there is none, or an old or damaged one
        return evaluate(folder, device="cuda" if torch.cuda.is_available() else "cpu")

    def _waited_for(self, spec: RunSpec, weights: bool) -> StoredRun:
        while True:
            with suppress(InUseError):
                return self._trained(spec, weights)
            waiting = f"waiting for {spec.name}, which another process trains"
            with Console(stderr=True).status(waiting):
                while not self.time_is_up():
                    with suppress(InUseError), RunFolder(folder_of(spec)).locked():
                        break
                    time.sleep(_PATIENCE)

    def _stored(self, spec: RunSpec, weights: bool) -> StoredRun | None:
        """The ledger's, which has no weights."""
        return None if weights or not self.ledger else self.ledger.get(spec)

    def _trained(self, spec: RunSpec, weights: bool) -> StoredRun:
        known = self._stored(spec, weights)
        if known:  # another process has added it meanwhile
            return known
        run = StoredRun.of(self._in_folder(spec))
        if self.ledger and not self.ledger.get(spec):
            run = self.ledger.add(run)
        return run

    def _in_folder(self, spec: RunSpec) -> RunResult:
        """The finished run of a spec in its folder: found, resumed, or trained from the start."""
        if self.time_is_up():
            raise OutOfTime
        folder, images = folder_of(spec), None
        if not RunFolder(folder).result_file.exists():
            with RunFolder(folder).locked():
                pass  # a run in use is found out before its images are loaded
            images = self._images(spec.data, data.default_root())
        return train(spec, folder=folder, resume=True, images=images, until=self._until)
