"""normscope: train, correct and read cosine-similarity embeddings through their norms."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from normscope import evaluation, losses, optim, theory
from normscope.confidence import EmbeddingTrust, NormConfidence
from normscope.engine import RunResult, RunSpec, train
from normscope.interventions import (
    GradScale,
    cut_init_,
    grad_scale,
    scale_invariant_parameters,
    suggest_cut,
)
from normscope.monitors import NormMonitor, range_test

if TYPE_CHECKING:
    from normscope import simulation as simulation

__version__ = "0.1.0"

__all__ = [
    "EmbeddingTrust",
    "GradScale",
    "NormConfidence",
    "NormMonitor",
    "RunResult",
    "RunSpec",
    "__version__",
    "cut_init_",
    "evaluation",
    "grad_scale",
    "losses",
    "optim",
    "range_test",
    "scale_invariant_parameters",
    "simulation",
    "suggest_cut",
    "theory",
    "train",
]


def __getattr__(name: str) -> Any:
    """The simulations, which belong to the reproduction: imported on first use."""
    if name == "simulation":
        return import_module("normscope.simulation")
    raise AttributeError(f"module 'normscope' has no attribute {name!r}")
