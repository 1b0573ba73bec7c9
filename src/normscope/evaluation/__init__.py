"""Evaluation of frozen features, and of confidence and novelty scores."""

from normscope.evaluation.confidence import (
    Agreement,
    Buckets,
    Trend,
    agreement,
    monotone_trend,
    norm_buckets,
    wilson_interval,
)
from normscope.evaluation.features import extract
from normscope.evaluation.knn import KnnResult, knn
from normscope.evaluation.novelty import novelty_scores
from normscope.evaluation.ood import OodMetrics, ood_intervals, ood_metrics
from normscope.evaluation.probe import ProbeResult, linear_probe
from normscope.evaluation.ranks import auroc, average_precision, kendall, spearman
from normscope.evaluation.selective import RiskCoverage, risk_coverage

__all__ = [
    "Agreement",
    "Buckets",
    "KnnResult",
    "OodMetrics",
    "ProbeResult",
    "RiskCoverage",
    "Trend",
    "agreement",
    "auroc",
    "average_precision",
    "extract",
    "kendall",
    "knn",
    "linear_probe",
    "monotone_trend",
    "norm_buckets",
    "novelty_scores",
    "ood_intervals",
    "ood_metrics",
    "risk_coverage",
    "spearman",
    "wilson_interval",
]
