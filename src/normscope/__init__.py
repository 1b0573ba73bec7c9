"""normscope: train, correct and read cosine-similarity embeddings through their norms."""

from normscope import losses, simulation, theory
from normscope.interventions import (
    GradScale,
    cut_init_,
    grad_scale,
    scale_invariant_parameters,
    suggest_cut,
)

__version__ = "0.1.0"

__all__ = [
    "GradScale",
    "__version__",
    "cut_init_",
    "grad_scale",
    "losses",
    "scale_invariant_parameters",
    "simulation",
    "suggest_cut",
    "theory",
]
