"""Training runs that experiments share: each spec is trained once, and judged once."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any
from zipfile import is_zipfile

import torch
from rich.console import Console

from normscope import data
from normscope.engine import InUseError, RunFolder, RunResult, RunSpec, evaluate, made_with, train
from normscope.experiments.ledger import Ledger, Run
from normscope.experiments.results import Scale

# What each scale trains with; `paper` is Appendix "Experimental Setup".
_SETTINGS: dict[Scale, dict[str, Any]] = {
    "smoke": {},  # as digits are trained unless told: a small network, 60 epochs
    "small": {"net": "resnet18", "epochs": 30},
    "paper": {"net": "resnet50", "epochs": 512},
}


def spec_at(scale: Scale, **values: Any) -> RunSpec:
    """The spec of a run at a scale: its network and epochs unless `values` say otherwise."""
    return RunSpec(**{**_SETTINGS[scale], **values})


def epochs_at(scale: Scale, *, paper: int, small: int | None = None) -> dict[str, Any]:
    """The epochs of a spec where an experiment has its own; nothing where it has not."""
    own = {"paper": paper, "small": small}.get(scale)
    return {} if own is None else {"epochs": own}


def datasets_at(scale: Scale, *names: str) -> tuple[str, ...]:
    """The datasets of an experiment; at smoke scale, digits alone."""
    return ("digits",) if scale == "smoke" else names


_PATIENCE = 1.0  # seconds between looks at a run that another process trains


class OutOfTime(KeyboardInterrupt):
    """The time that `within` gave is over."""


@contextmanager
def within(minutes: float) -> Iterator[None]:
    """Inside this, training stops after so many minutes as if by Ctrl-C, and none begins later."""
    global _until
    _until = time.monotonic() + 60 * minutes
    try:
        yield
    finally:
        _until = math.inf


_until = math.inf


def time_is_up() -> bool:
    """Whether the time that `within` gave is over."""
    return time.monotonic() >= _until


_images = lru_cache(maxsize=1)(data.load)  # one set serves most runs of an experiment


def require(datasets: Iterable[str]) -> None:
    """Miss data that are missing before anything is trained."""
    for name in datasets:
        _images(name, data.default_root())


def train_free(specs: Iterable[RunSpec], *, weights: bool = False) -> None:
    """Train what no other process is training: so several share a sweep, each its own runs.

    Data that are missing are missed before anything is trained.
    """
    specs = [spec for spec in specs if weights or not (_ledger and _ledger.get(spec))]
    unfinished = [spec for spec in specs if not RunFolder(folder_of(spec)).result_file.exists()]
    if unfinished:
        count = f"{len(unfinished)} run{'s' * (len(unfinished) > 1)}"
        place = "a GPU" if torch.cuda.is_available() else "the CPU (there is no GPU)"
        Console(stderr=True).print(f"{count} to train, on {place}", highlight=False)
    require(dict.fromkeys(spec.data for spec in unfinished))
    for spec in specs:
        with suppress(InUseError):
            _trained(spec, weights)


def trained(spec: RunSpec, *, weights: bool = False) -> Run:
    """The finished run of a spec: found in the ledger, or in its folder, or trained now.

    What another process is training is waited for.

    Args:
        spec: what to train.
        weights: whether they are needed too, which a ledger has not.
    """
    while True:
        with suppress(InUseError):
            return _trained(spec, weights)
        _wait(spec)


def _wait(spec: RunSpec) -> None:
    """Until no other process trains a run, or the time is up."""
    with Console(stderr=True).status(f"waiting for {spec.name}, which another process trains"):
        while not time_is_up():
            with suppress(InUseError), RunFolder(folder_of(spec)).locked():
                return
            time.sleep(_PATIENCE)


def _trained(spec: RunSpec, weights: bool) -> Run:
    known = _ledger.get(spec) if _ledger else None
    run = known if known and not weights else Run.of(_in_folder(spec))
    if _ledger and not known:
        run = _ledger.add(run)
    _used[spec.name] = run.made
    return run


def judged(spec: RunSpec) -> dict[str, Any]:
    """What `normscope evaluate` says of the finished run of a spec."""
    trained(spec, weights=True)
    folder = folder_of(spec)
    try:
        found = json.loads((folder / "evaluation.json").read_text())
        fresh = (found["epoch"], found["made_with"]) == (spec.epochs, made_with(spec.data))
        if fresh and is_zipfile(folder / "gallery.npz"):
            return found
    except (OSError, ValueError, KeyError, TypeError):
        pass  # there is none, or an old or damaged one
    return evaluate(folder, device="cuda" if torch.cuda.is_available() else "cpu")


def _in_folder(spec: RunSpec) -> RunResult:
    """The finished run of a spec in its folder: trained now, gone on with, or found."""
    if time_is_up():
        raise OutOfTime
    folder, images = folder_of(spec), None
    if not RunFolder(folder).result_file.exists():
        with RunFolder(folder).locked():
            pass  # another's run is known before its images are loaded
        images = _images(spec.data, data.default_root())
    return train(spec, folder=folder, resume=True, images=images, until=_until)


def folder_of(spec: RunSpec) -> Path:
    """Below $NORMSCOPE_RUNS, or else below runs/, where `normscope train` has its runs too."""
    return Path(os.environ.get("NORMSCOPE_RUNS") or "runs").expanduser() / spec.name


_used: dict[str, dict[str, Any]] = {}
_ledger: Ledger | None = None


@contextmanager
def noted(ledger: Ledger | None = None) -> Iterator[dict[str, dict[str, Any]]]:
    """Inside this, the runs that are used, by name: on what they were trained, and how long.

    Args:
        ledger: where runs are looked up before they are trained, and kept afterwards.
    """
    global _ledger
    _used.clear()
    _ledger = ledger
    try:
        yield _used
    finally:
        _ledger = None
