"""Confidence and novelty for files of embeddings, from any model, read as a stream."""

from normscope.scoring.blocks import Source
from normscope.scoring.readers import open_embeddings
from normscope.scoring.stream import (
    FittedReference,
    fit_reference,
    load_reference,
    score_file,
)
from normscope.scoring.tally import Histogram, Row, Summary
from normscope.scoring.writers import check_out, default_out

__all__ = [
    "FittedReference",
    "Histogram",
    "Row",
    "Source",
    "Summary",
    "check_out",
    "default_out",
    "fit_reference",
    "load_reference",
    "open_embeddings",
    "score_file",
]
