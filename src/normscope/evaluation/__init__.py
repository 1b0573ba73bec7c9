"""What frozen features are worth: nearest neighbours and linear probes, in torch alone."""

from normscope.evaluation.features import extract
from normscope.evaluation.knn import KnnResult, knn
from normscope.evaluation.probe import ProbeResult, linear_probe

__all__ = ["KnnResult", "ProbeResult", "extract", "knn", "linear_probe"]
