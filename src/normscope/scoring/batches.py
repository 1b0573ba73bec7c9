"""Scores of one Arrow record batch: what Spark's mapInArrow and Daft call on each machine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from normscope.confidence import check_not_normalised
from normscope.scoring.blocks import STATUSES
from normscope.scoring.reference import FittedReference
from normscope.scoring.tables import arrow_errors, block_of, layout_of, usual_length, with_pyarrow
from normscope.scoring.wanted import Wanted

if TYPE_CHECKING:
    import pyarrow

_NAME = "batch"


def score_batch(
    batch: pyarrow.RecordBatch,
    reference: FittedReference,
    *,
    column: str | None = None,
    id: str | None = None,
    covariates: Sequence[str] | None = None,
) -> pyarrow.RecordBatch:
    """The rows' id (if they have one) and the columns that `score_file` writes.

    With Spark: `frame.mapInArrow(lambda parts: (score_batch(part, reference) for part in parts),
    "id string, norm double, score float, novelty float, status string")`; `confidence float` goes
    before the status if the reference had labels.

    Args:
        batch: rows with a column `embedding` or `embeddings` of lists, or columns e0, e1 and so on.
        reference: as `fit_reference` or `fit_trust` gives it.
        column: the embeddings' column, if it has another name.
        id: the column of ids; `id` if there is one.
        covariates: columns of numbers; those that the reference was fitted with.

    >>> import numpy as np, pyarrow as pa
    >>> from normscope import NormConfidence
    >>> reference = FittedReference(NormConfidence.from_norms(np.linspace(1, 9, 99)))
    >>> rows = pa.record_batch({"id": ["a", "b"], "embedding": [[3.0, 4.0], [0.0, 0.0]]})
    >>> score_batch(rows, reference).select(["id", "norm", "score", "status"]).to_pylist()[0]
    {'id': 'a', 'norm': 5.0, 'score': 0.5, 'status': 'ok'}
    """
    pa = with_pyarrow("arrow")
    names = tuple(reference.confidence.names if covariates is None else covariates)
    wanted = Wanted(column, id, None, names)
    with arrow_errors(_NAME):
        layout = layout_of(
            _NAME, batch.schema, wanted, lambda name: usual_length(batch.column(name))
        )
        reference.check_columns(_NAME, layout.d)
        block = block_of(_NAME, batch, layout)
    if reference.raw:
        check_not_normalised(_NAME, block.norms)
    arrays: dict[str, Any] = {} if layout.id is None else {"id": batch.column(layout.id)}
    arrays |= reference.columns(block)
    arrays["status"] = pa.array([STATUSES[code] for code in arrays["status"]], pa.string())
    return pa.RecordBatch.from_pydict(arrays)
