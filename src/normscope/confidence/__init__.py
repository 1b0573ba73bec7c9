"""Confidence in embeddings and their novelty, compared with a reference's."""

from normscope.confidence.calibration import Calibration, reliability
from normscope.confidence.embedding_trust import EmbeddingTrust
from normscope.confidence.explained import Explained
from normscope.confidence.norm_confidence import NormConfidence
from normscope.confidence.raw import check_not_normalised
from normscope.confidence.reference import LEAST
from normscope.confidence.sureness import Sureness
from normscope.confidence.trust import norm_trust
from normscope.confidence.verdict import Finding, Verdict

__all__ = [
    "LEAST",
    "Calibration",
    "EmbeddingTrust",
    "Explained",
    "Finding",
    "NormConfidence",
    "Sureness",
    "Verdict",
    "check_not_normalised",
    "norm_trust",
    "reliability",
]
