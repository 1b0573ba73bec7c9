"""Novelty, confidence and norms as fields of FiftyOne samples, to sort and filter images by."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch

from normscope._checks import invalid
from normscope._sphere import safe_norm
from normscope.confidence import EmbeddingTrust

__all__ = ["write_fields"]


def write_fields(
    samples: Iterable[Any],
    trust: EmbeddingTrust,
    z: Any,
    covariates: Any = None,
    *,
    prefix: str = "normscope_",
) -> list[str]:
    """Write what a trust says of each sample into its fields; returns their names.

    The fields are the columns of `trust.explain` (`novelty` in bits, `p_value`, `speaks`, the
    index of the `nearest` row, `confidence` if there is one) and the `norm`. What could not be
    judged is None. Samples of a dataset are saved.

    Args:
        samples: FiftyOne's samples, or a dataset or view of n samples.
        trust: a fitted one.
        z: raw embeddings, (n, d), in the samples' order.
        covariates: as the trust was fitted with.
        prefix: of the names.
    """
    rows = list(samples)
    if len(rows) != len(z):
        raise invalid("z", f"one row for each of {len(rows):,} samples", len(z), "Embed them all.")
    columns = trust.explain(z, covariates).columns()
    columns["norm"] = safe_norm(torch.as_tensor(np.asarray(z))).squeeze(-1).numpy()
    fields = {prefix + name.replace(" ", "_"): column for name, column in columns.items()}
    for i, sample in enumerate(rows):
        for name, column in fields.items():
            sample[name] = _plain(column[i])
        if sample.in_dataset:
            sample.save()
    return list(fields)


def _plain(value: Any) -> Any:
    """A value as FiftyOne stores it: Python's own, None for what is not there."""
    found = value.item() if isinstance(value, np.generic) else value
    return None if found == "" or found != found else found
