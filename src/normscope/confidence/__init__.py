"""How sure a network is of an embedding, read from its norm beside a reference's."""

from normscope.confidence.calibration import Calibration, reliability
from normscope.confidence.norm_confidence import NormConfidence
from normscope.confidence.reference import LEAST

__all__ = ["LEAST", "Calibration", "NormConfidence", "reliability"]
