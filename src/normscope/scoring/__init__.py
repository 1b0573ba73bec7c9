"""Confidence and novelty for files of embeddings, from any model, read as a stream."""

from normscope.scoring.arrays import as_source
from normscope.scoring.batches import score_batch
from normscope.scoring.blocks import Source
from normscope.scoring.kept import kept_rows, write_kept
from normscope.scoring.ray_engine import connected, open_on_ray
from normscope.scoring.readers import open_embeddings, read_files
from normscope.scoring.stream import (
    FittedReference,
    fit_reference,
    load_reference,
    score_file,
)
from normscope.scoring.tally import Histogram, Row, Summary
from normscope.scoring.targets import check_out, default_out, kept_beside

__all__ = [
    "FittedReference",
    "Histogram",
    "Row",
    "Source",
    "Summary",
    "as_source",
    "check_out",
    "connected",
    "default_out",
    "fit_reference",
    "kept_beside",
    "kept_rows",
    "load_reference",
    "open_embeddings",
    "open_on_ray",
    "read_files",
    "score_batch",
    "score_file",
    "write_kept",
]
