"""Novelty of the rows of a Spark frame, each part scored where it lies."""

import os
import sys

import numpy as np
from pyspark.sql import SparkSession  # pyright: ignore[reportMissingImports]

from normscope.scoring import as_source, fit_trust, score_batch

random = np.random.default_rng(0)
reference = fit_trust(as_source(random.normal(2, 1, (2000, 16))))  # your training embeddings
new = np.concatenate([random.normal(2, 1, (3, 16)), random.normal(-2, 1, (2, 16))])

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # of the workers: it has normscope
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
rows = [(f"row {i}", z.tolist()) for i, z in enumerate(new)]
frame = spark.createDataFrame(rows, "id string, embedding array<float>")
scores = frame.mapInArrow(
    lambda batches: (score_batch(batch, reference) for batch in batches),
    "id string, norm double, score float, novelty float, status string",
)
for row in scores.collect():
    print(f"{row.id}: {row.novelty:.1f} bits of novelty, {row.status}")
spark.stop()
