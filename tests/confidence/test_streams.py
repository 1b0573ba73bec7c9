"""Fits from Arrow tables, iterators and sources: the same as from an array, in bounded memory."""

import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch

from normscope.confidence import EmbeddingTrust, NormConfidence
from normscope.scoring import as_source, open_embeddings

RNG = np.random.default_rng(0)
Z = (RNG.normal(size=(900, 6)) + 2) * RNG.uniform(0.5, 2, size=(900, 1))
Z = Z.astype(np.float32)
LABELS = RNG.integers(3, size=900)
LENGTH = RNG.uniform(1, 9, size=900)


def streams(tmp_path: Path) -> dict[str, object]:
    np.save(tmp_path / "z.npy", Z)
    table = pa.table({"embedding": pa.FixedSizeListArray.from_arrays(pa.array(Z.ravel()), 6)})
    pieces = [slice(start, start + 200) for start in range(0, 900, 200)]
    return {
        "table": table,
        "reader": table.to_reader(max_chunksize=250),
        "batches": iter(table.to_batches(max_chunksize=300)),
        "arrays": (Z[piece] for piece in pieces),
        "tensors": [torch.from_numpy(Z[piece]) for piece in pieces],
        "source": open_embeddings(tmp_path / "z.npy"),
        "counted": as_source(iter([Z]), n=900),
    }


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_stream_is_fitted_as_its_rows_are(tmp_path: Path) -> None:
    given = {"labels": LABELS, "covariates": {"length": LENGTH}}
    trust, norm = EmbeddingTrust.fit(Z, **given), NormConfidence.fit(Z, **given)
    new, length = Z[:50] * 1.1, {"length": LENGTH[:50]}
    for name, rows in streams(tmp_path).items():
        if name in ("reader", "source", "tensors"):
            continue  # all are read by the same function: below
        found = EmbeddingTrust.fit(rows, **given)
        np.testing.assert_allclose(
            found.novelty(new, length), trust.novelty(new, length), err_msg=name
        )
        np.testing.assert_allclose(found.confidence(new, length), trust.confidence(new, length))
    for name, rows in streams(tmp_path).items():
        found = NormConfidence.fit(rows, **given)
        assert found.d == 6
        assert found.trust == pytest.approx(norm.trust), name
        assert found.explained == pytest.approx(norm.explained, rel=1e-4)
        # a norm that is rounded otherwise may lie one place further
        np.testing.assert_allclose(found.score(new, length), norm.score(new, length), atol=0.03)


@pytest.mark.parametrize("fit", [EmbeddingTrust.fit, NormConfidence.fit])
def test_a_stream_with_bad_rows_or_few_labels_is_refused(fit) -> None:
    bad = Z.copy()
    bad[5], bad[600] = np.nan, 0
    with pytest.raises(ValueError, match=r"must be of finite rows .* got '1 nan, 1 zero of 900"):
        fit(part for part in np.split(bad, 3))
    with pytest.raises(
        ValueError, match="labels must be a whole number or a string for each of 900"
    ):
        fit(iter([Z]), LABELS[:99])
    with pytest.raises(ValueError, match="of 6 columns"):
        fit(iter([Z, Z[:, :3]]))
    with pytest.raises(ValueError, match="at least 20 rows"):
        fit(iter([Z[:9]]))


def test_the_rows_of_a_long_stream_are_drawn_evenly(monkeypatch) -> None:
    monkeypatch.setattr("normscope.confidence.embedding_trust.MOST", 500)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        trust = EmbeddingTrust.fit(iter(np.split(Z, 30)))
    assert "the reference is 500 of 900 rows" in str(told[0].message)
    nearest = set(trust.explain(Z).nearest.tolist())
    assert max(nearest) == 499


def test_memory_does_not_grow_with_the_stream() -> None:
    code = (
        "import resource, sys, numpy as np, normscope as ns\n"
        "from normscope.scoring import as_source\n"
        "def rows(n):\n"
        "    for i in range(n):\n"
        "        yield np.random.default_rng(i).normal(size=(10_000, 64)).astype('f4') + 1\n"
        "for n in (2, 40):\n"
        "    ns.NormConfidence.fit(rows(n))\n"
        "    ns.EmbeddingTrust.fit(rows(n), search='sample') if n == 2 else None\n"
        "    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    few, many = (int(line) / 1024 for line in done.stdout.split())
    assert many - few < 40  # MB, where the rows take 100
