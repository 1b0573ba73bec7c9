"""Confidence in an embedding, from its norm compared with a reference's."""

from normscope.confidence.calibration import Calibration, reliability
from normscope.confidence.norm_confidence import NormConfidence
from normscope.confidence.reference import LEAST

__all__ = ["LEAST", "Calibration", "NormConfidence", "reliability"]
