"""normscope: train, correct and read cosine-similarity embeddings through their norms."""

from normscope import evaluation, losses, simulation, theory
from normscope.engine import RunResult, RunSpec, train
from normscope.evaluation import NormConfidence
from normscope.interventions import (
    GradScale,
    cut_init_,
    grad_scale,
    scale_invariant_parameters,
    suggest_cut,
)
from normscope.monitors import NormMonitor

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
    "losses",
    "scale_invariant_parameters",
    "simulation",
    "suggest_cut",
    "theory",
    "train",
]
