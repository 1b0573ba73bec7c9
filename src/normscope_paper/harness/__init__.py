"""What experiments are trained, judged, stored and shown with."""

from normscope_paper.harness.claims import Claim
from normscope_paper.harness.ledger import Ledger, StoredRun
from normscope_paper.harness.page import results_page
from normscope_paper.harness.registry import EXPERIMENTS, Experiment, load
from normscope_paper.harness.results import SCALES, Results, Scale
from normscope_paper.harness.runner import reproduce
from normscope_paper.harness.summary import claims_of, stored_paths, stored_results
from normscope_paper.harness.sweep import Sweep

__all__ = [
    "EXPERIMENTS",
    "SCALES",
    "Claim",
    "Experiment",
    "Ledger",
    "Results",
    "Scale",
    "StoredRun",
    "Sweep",
    "claims_of",
    "load",
    "reproduce",
    "results_page",
    "stored_paths",
    "stored_results",
]
