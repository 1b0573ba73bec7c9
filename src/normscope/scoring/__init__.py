"""Confidence and novelty for files of embeddings, from any model, read as a stream."""

from normscope.confidence import LEAST
from normscope.scoring.arrays import as_source, blocks_of
from normscope.scoring.batches import score_batch
from normscope.scoring.blocks import LEFT_OUT, Source
from normscope.scoring.drift import WINDOWS, Drift, Quantity, Window, drift, drift_by
from normscope.scoring.drift_words import TEST, as_json, change_in, p_in_words
from normscope.scoring.kept import check_kept, kept_rows, texts_at, write_kept
from normscope.scoring.npy_file import read_labels
from normscope.scoring.ray_engine import connected, open_on_ray
from normscope.scoring.readers import open_embeddings, read_files
from normscope.scoring.reference import (
    REFERENCE_ROWS,
    FittedReference,
    fit_reference,
    fit_trust,
    load_reference,
)
from normscope.scoring.sample import Drawn, drawn_rows
from normscope.scoring.stream import score_file
from normscope.scoring.tally import Histogram, Row, Summary, Tally
from normscope.scoring.targets import check_out, default_out, kept_beside

__all__ = [
    "LEAST",
    "LEFT_OUT",
    "REFERENCE_ROWS",
    "TEST",
    "WINDOWS",
    "Drawn",
    "Drift",
    "FittedReference",
    "Histogram",
    "Quantity",
    "Row",
    "Source",
    "Summary",
    "Tally",
    "Window",
    "as_json",
    "as_source",
    "blocks_of",
    "change_in",
    "check_kept",
    "check_out",
    "connected",
    "default_out",
    "drawn_rows",
    "drift",
    "drift_by",
    "fit_reference",
    "fit_trust",
    "kept_beside",
    "kept_rows",
    "load_reference",
    "open_embeddings",
    "open_on_ray",
    "p_in_words",
    "read_files",
    "read_labels",
    "score_batch",
    "score_file",
    "texts_at",
    "write_kept",
]
