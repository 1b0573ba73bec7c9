"""normscope: train, correct and read cosine-similarity embeddings through their norms."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from normscope import evaluation, losses, theory
from normscope.confidence import NormConfidence
from normscope.engine import RunResult, RunSpec, train
from normscope.interventions import (
    GradScale,
    cut_init_,
    grad_scale,
    scale_invariant_parameters,
    suggest_cut,
)
from normscope.monitors import NormMonitor

if TYPE_CHECKING:
    from normscope import simulation as simulation
    from normscope.engine.encoder import load_encoder as load_encoder

__version__ = "0.1.0"

__all__ = [
    "GradScale",
    "NormConfidence",
    "NormMonitor",
    "RunResult",
    "RunSpec",
    "__version__",
    "cut_init_",
    "evaluation",
    "grad_scale",
    "load_encoder",
    "losses",
    "scale_invariant_parameters",
    "simulation",
    "suggest_cut",
    "theory",
    "train",
]


def __getattr__(name: str) -> Any:
    """What is imported on first use: the simulations belong to the reproduction."""
    if name == "simulation":
        return import_module("normscope.simulation")
    if name == "load_encoder":
        return import_module("normscope.engine.encoder").load_encoder
    raise AttributeError(f"module 'normscope' has no attribute {name!r}")
