"""Rows that are new to a reference, as an issue that cleanlab's `Datalab` finds."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from normscope._checks import check_number, invalid
from normscope.confidence import EmbeddingTrust

try:
    import pandas as pd
    from cleanlab.datalab.internal.issue_manager import IssueManager
    from cleanlab.datalab.internal.issue_manager_factory import register
    from cleanlab.datalab.internal.task import Task
except ImportError as error:
    raise ImportError(
        "cleanlab and datasets must be installed. "
        "Install the extra: pip install 'normscope[cleanlab]'."
    ) from error

__all__ = ["Novelty"]


class Novelty(IssueManager):
    """The issue `novelty`: rows that an `EmbeddingTrust` finds new, or cannot judge.

    Importing this module registers it for all of cleanlab's tasks:

    `lab.find_issues(issue_types={"novelty": {"trust": trust, "features": z}})`

    The score of a row is its p-value among the reference's held-out rows: near zero if it is new.
    `lab.get_info("novelty")` has what `trust.explain` says, row by row: bits, what speaks for it,
    the nearest row, and a confidence if the trust has one. A row of the reference itself looks
    familiar: fit the trust to other rows than those of the lab.

    Args:
        datalab: given by cleanlab.
        trust: fitted to rows that are as they should be.
        alpha: the p-value up to which a row is an issue.
    """

    issue_name: ClassVar[str] = "novelty"
    description: ClassVar[str] = "Examples whose embeddings are unlike those of a reference."
    verbosity_levels: ClassVar[dict[int, list[str]]] = {0: [], 1: ["alpha"], 2: ["verdict"], 3: []}

    def __init__(
        self, datalab: Any, trust: EmbeddingTrust | None = None, alpha: float = 0.01, **_: Any
    ) -> None:
        super().__init__(datalab)
        if not isinstance(trust, EmbeddingTrust):
            advice = "Pass issue_types={'novelty': {'trust': trust, 'features': z}}."
            raise invalid("trust", "a fitted EmbeddingTrust", trust, advice)
        if not 0 < check_number("alpha", alpha, "Usual: 0.01.") < 1:
            raise invalid("alpha", "between 0 and 1", alpha, "Usual: 0.01.")
        self.trust, self.alpha = trust, alpha

    def find_issues(self, features: Any = None, covariates: Any = None, **_: Any) -> None:
        """Judge the rows of the lab.

        Args:
            features: raw embeddings, (n, d).
            covariates: as the trust was fitted with.
        """
        if features is None or len(features) != len(self.datalab.data):
            constraint = f"given, with a row for each of {len(self.datalab.data):,} examples"
            got = None if features is None else len(features)
            raise invalid("features", constraint, got, "Pass raw embeddings.")
        found = self.trust.explain(features, covariates)
        p_value = np.nan_to_num(found.p_value, nan=0.0)  # what can't be judged is an issue
        columns = {"is_novelty_issue": p_value <= self.alpha, self.issue_score_key: p_value}
        self.issues = pd.DataFrame(columns)
        self.summary = self.make_summary(float(p_value.mean()))
        self.info = self.collect_info(found.columns())

    def collect_info(self, columns: dict[str, np.ndarray]) -> dict[str, Any]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """What `lab.get_info` returns."""
        return {**columns, "alpha": self.alpha, "verdict": str(self.trust.verdict)}


for _task in Task:
    register(Novelty, task=_task.value)
