"""The tools that train, judge, store and show experiments."""

from normscope_paper.harness.cell_tables import (
    COLORS,
    Printed,
    legend_below,
    middle,
    plot_cells,
    plot_courses,
    rates_and_knns,
)
from normscope_paper.harness.cells import (
    Cell,
    RunTable,
    TrainedCell,
    TrainedRun,
    columns_at,
    highest_rate,
    intervention_cells,
    log_ratio,
    rate_and_rank,
    train_cells,
)
from normscope_paper.harness.claims import NOT_IN_PAPER, Claim
from normscope_paper.harness.comparisons import (
    above,
    difference,
    gains,
    gains_more,
    intervention_claims,
    share,
)
from normscope_paper.harness.intervals import (
    UNKNOWN,
    mean_interval,
    rank_interval,
    share_interval,
    t_quantile,
)
from normscope_paper.harness.ledger import Ledger, StoredRun
from normscope_paper.harness.page import results_page
from normscope_paper.harness.registry import EXPERIMENTS, load
from normscope_paper.harness.results import SCALES, Results, Scale, finite, rounded
from normscope_paper.harness.runner import numbers, reproduce
from normscope_paper.harness.summary import claims_of, stored_paths, stored_results
from normscope_paper.harness.sweep import Sweep, datasets_at, epochs_at, folder_of, spec_at

__all__ = [
    "COLORS",
    "EXPERIMENTS",
    "NOT_IN_PAPER",
    "SCALES",
    "UNKNOWN",
    "Cell",
    "Claim",
    "Ledger",
    "Printed",
    "Results",
    "RunTable",
    "Scale",
    "StoredRun",
    "Sweep",
    "TrainedCell",
    "TrainedRun",
    "above",
    "claims_of",
    "columns_at",
    "datasets_at",
    "difference",
    "epochs_at",
    "finite",
    "folder_of",
    "gains",
    "gains_more",
    "highest_rate",
    "intervention_cells",
    "intervention_claims",
    "legend_below",
    "load",
    "log_ratio",
    "mean_interval",
    "middle",
    "numbers",
    "plot_cells",
    "plot_courses",
    "rank_interval",
    "rate_and_rank",
    "rates_and_knns",
    "reproduce",
    "results_page",
    "rounded",
    "share",
    "share_interval",
    "spec_at",
    "stored_paths",
    "stored_results",
    "t_quantile",
    "train_cells",
]
