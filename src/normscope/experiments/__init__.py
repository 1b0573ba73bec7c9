"""The paper's figures and tables, each with its claims and an honest verdict."""

from normscope.experiments.registry import EXPERIMENTS, Experiment, load
from normscope.experiments.results import SCALES, Claim, Results, Scale, Verdict, mean_interval

__all__ = [
    "EXPERIMENTS",
    "SCALES",
    "Claim",
    "Experiment",
    "Results",
    "Scale",
    "Verdict",
    "load",
    "mean_interval",
]
