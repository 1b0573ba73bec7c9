"""normscope: train, correct and read cosine-similarity embeddings through their norms."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from normscope import evaluation as evaluation
    from normscope import losses as losses
    from normscope import optim as optim
    from normscope import simulation as simulation
    from normscope import theory as theory
    from normscope.confidence import EmbeddingTrust as EmbeddingTrust
    from normscope.confidence import NormConfidence as NormConfidence
    from normscope.engine import RunResult as RunResult
    from normscope.engine import RunSpec as RunSpec
    from normscope.engine import load_encoder as load_encoder
    from normscope.engine import train as train
    from normscope.interventions import GradScale as GradScale
    from normscope.interventions import cut_init_ as cut_init_
    from normscope.interventions import grad_scale as grad_scale
    from normscope.interventions import (
        scale_invariant_parameters as scale_invariant_parameters,
    )
    from normscope.interventions import suggest_cut as suggest_cut
    from normscope.monitors import NormMonitor as NormMonitor
    from normscope.monitors import range_test as range_test

__version__ = "0.1.0"

# Where each public name is; it is imported on first use, so that `normscope --help` needs no torch.
_PLACES = {
    "EmbeddingTrust": "confidence",
    "GradScale": "interventions",
    "NormConfidence": "confidence",
    "NormMonitor": "monitors",
    "RunResult": "engine",
    "RunSpec": "engine",
    "cut_init_": "interventions",
    "grad_scale": "interventions",
    "load_encoder": "engine",
    "range_test": "monitors",
    "scale_invariant_parameters": "interventions",
    "suggest_cut": "interventions",
    "train": "engine",
}
_FOLDERS = (
    *("augment", "confidence", "data", "engine", "evaluation", "extend", "integrations"),
    *("interventions", "losses", "methods", "monitors", "nets", "optim", "report", "scoring"),
    *("simulation", "theory"),
)

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
    "load_encoder",
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
    if name in _FOLDERS:
        return import_module(f"normscope.{name}")
    if name in _PLACES:
        value = getattr(import_module(f"normscope.{_PLACES[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'normscope' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_FOLDERS})
