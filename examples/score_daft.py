"""Novelty of the rows of a Daft frame, batch by batch."""

import daft  # pyright: ignore[reportMissingImports]
import numpy as np
import pyarrow as pa

from normscope.scoring import as_source, fit_trust, score_batch

random = np.random.default_rng(0)
reference = fit_trust(as_source(random.normal(2, 1, (2000, 16))))  # your training embeddings
new = np.concatenate([random.normal(2, 1, (3, 16)), random.normal(-2, 1, (2, 16))])


@daft.func.batch(return_dtype=daft.DataType.float32())
def novelty(embedding: daft.Series) -> pa.Array:
    """Bits of surprise at each embedding."""
    batch = pa.record_batch({"embedding": embedding.to_arrow()})
    return score_batch(batch, reference).column("novelty")


ids = [f"row {i}" for i in range(len(new))]
frame = daft.from_pydict({"id": ids, "embedding": new.astype(np.float32).tolist()})
for row in frame.with_column("novelty", novelty(frame["embedding"])).to_pylist():
    print(f"{row['id']}: {row['novelty']:.1f} bits of novelty")
