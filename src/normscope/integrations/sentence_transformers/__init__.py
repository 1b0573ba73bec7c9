"""sentence-transformers: raw embeddings of its models, and training with norms in sight."""

try:
    import sentence_transformers  # noqa: F401
except ImportError as error:
    raise ImportError(
        "sentence-transformers 6 must be installed. "
        "Install the extra: pip install 'normscope[sentence-transformers]'."
    ) from error

from normscope.integrations.sentence_transformers.reading import (
    NormEvaluator,
    NormTap,
    raw_embeddings,
    tapped,
)
from normscope.integrations.sentence_transformers.training import (
    EmbeddingLoss,
    GradScale,
    cut_init_,
    plain,
    scaled,
    suggest_cut,
)

__all__ = [
    "EmbeddingLoss",
    "GradScale",
    "NormEvaluator",
    "NormTap",
    "cut_init_",
    "plain",
    "raw_embeddings",
    "scaled",
    "suggest_cut",
    "tapped",
]
