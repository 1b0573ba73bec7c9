"""Training runs that experiments share: each spec is trained once, and judged once."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from normscope.engine import RunFolder, RunResult, RunSpec, evaluate, train
from normscope.experiments.results import Scale

# What each scale trains with; `paper` is Appendix "Experimental Setup".
_SETTINGS: dict[Scale, dict[str, Any]] = {
    "smoke": {},  # as digits are trained unless told: a small network, 60 epochs
    "small": {"net": "resnet18", "epochs": 50},
    "paper": {"net": "resnet50", "epochs": 512},
}


def spec_at(scale: Scale, **values: Any) -> RunSpec:
    """The spec of a run at a scale: its network and epochs unless `values` say otherwise."""
    return RunSpec(**{**_SETTINGS[scale], **values})


def datasets_at(scale: Scale, *names: str) -> tuple[str, ...]:
    """The datasets of an experiment; at smoke scale, digits alone."""
    return ("digits",) if scale == "smoke" else names


def trained(spec: RunSpec) -> RunResult:
    """The finished run of a spec: trained now, gone on with, or found.

    Runs are below $NORMSCOPE_RUNS, or else below runs/, where `normscope train` has them too.
    """
    return train(spec, folder=_folder(spec), resume=True)


def judged(spec: RunSpec) -> dict[str, Any]:
    """What `normscope evaluate` says of the finished run of a spec."""
    import torch

    run = RunFolder(trained(spec).folder)
    stored = run.path / "evaluation.json"
    if stored.exists():
        found = json.loads(stored.read_text())
        if found["epoch"] == spec.epochs:
            return found
    return evaluate(run.path, device="cuda" if torch.cuda.is_available() else "cpu")


def _folder(spec: RunSpec) -> Path:
    return Path(os.environ.get("NORMSCOPE_RUNS", "runs")) / spec.name
