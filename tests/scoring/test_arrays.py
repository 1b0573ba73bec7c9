"""Embeddings that are no files: arrays, mapped files, Arrow tables, iterators, record batches."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch

from normscope.scoring import (
    FittedReference,
    as_source,
    fit_reference,
    open_embeddings,
    score_batch,
    score_file,
)

from .conftest import embeddings, table

Z = embeddings(100_000, seed=1)


@pytest.fixture(scope="module")
def reference() -> FittedReference:
    return fit_reference(as_source(embeddings(5000, seed=0)))


def columns_of(source, reference: FittedReference) -> dict[str, np.ndarray]:
    found = [reference.columns(block) for block in source.blocks()]
    return {name: np.concatenate([part[name] for part in found]) for name in found[0]}


@pytest.mark.parametrize("kind", ["array", "mapped", "tensor", "columns", "table", "list", "lazy"])
def test_rows_in_memory_are_scored_as_those_of_a_file(tmp_path: Path, reference, kind) -> None:
    np.save(tmp_path / "z.npy", Z)
    expected = columns_of(open_embeddings(tmp_path / "z.npy"), reference)
    rows = {
        "array": Z,
        "mapped": np.load(tmp_path / "z.npy", mmap_mode="r"),
        "tensor": torch.from_numpy(Z),
        "columns": np.asfortranarray(Z),
        "table": table(Z, "fixed", {}),
        "list": [Z[:70_000], Z[70_000:70_001], Z[70_001:]],
        "lazy": (Z[start : start + 999] for start in range(0, len(Z), 999)),
    }[kind]
    source = as_source(rows, n=len(Z) if kind == "lazy" else None)
    assert (source.rows, source.d) == Z.shape
    found = columns_of(source, reference)
    for name, column in expected.items():
        np.testing.assert_array_equal(found[name], column)


def test_a_source_of_rows_in_memory_is_written_as_a_file_is(tmp_path: Path, reference) -> None:
    length = np.arange(len(Z))
    source = as_source(Z, covariates={"length": length})
    given = np.concatenate([block.covariates["length"] for block in source.blocks()])
    np.testing.assert_array_equal(given, length)
    summary = score_file(as_source(Z), reference, tmp_path / "scores.npz")
    assert summary.rows == len(Z)


def test_bfloat16_rows_have_their_norms(reference) -> None:
    z = torch.from_numpy(Z[:50]).bfloat16()
    norms = columns_of(as_source(z), reference)["norm"]
    np.testing.assert_allclose(norms, z.double().norm(dim=1), rtol=1e-6)


def test_an_iterator_is_read_once_and_has_the_rows_that_were_said() -> None:
    with pytest.raises(ValueError, match="n must be given for an iterator"):
        as_source(iter([Z]))
    source = as_source(iter([Z]), n=len(Z))
    list(source.blocks())
    with pytest.raises(RuntimeError, match="must be read once"):
        list(source.blocks())
    for n in (len(Z) - 1, len(Z) + 1):
        with pytest.raises(ValueError, match=f"rows must be {n:,} rows"):
            list(as_source(iter([Z]), n=n).blocks())


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("z.npy", "Open files with open_embeddings"),
        (3, "rows must be an array"),
        (np.ones(5), r"rows must be embeddings \(n, d\)"),
        (np.ones((5, 2), int), "rows must be float16"),
        (np.ones((0, 2)), "rows must be at least one row"),
        (np.ones((5, 0)), "rows must be at least one row"),
        ([], "rows must be at least one row"),
        ([[1.0, 2.0]], r"rows must be embeddings \(n, d\)"),
        ([np.ones((5, 2)), np.ones((5, 3))], "rows must be of 2 columns, got 3"),
    ],
)
def test_what_is_not_rows_is_refused(rows: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        list(as_source(rows).blocks())


@pytest.mark.parametrize("how", ["list", "large", "fixed", "wide"])
def test_a_batch_is_scored_as_its_file_is(write, how: str, reference) -> None:
    z = Z[:1000].copy()
    z[3] = 0
    ids = np.array([f"row {i}" for i in range(1000)])
    source = open_embeddings(write(z, f"parquet-{how}", id=ids))
    expected = columns_of(source, reference)
    batches = table(z, how, {"id": ids}).to_batches(max_chunksize=300)
    found = pa.Table.from_batches([score_batch(batch, reference) for batch in batches])
    assert found.column_names == ["id", "norm", "score", "novelty", "status"]
    assert found["id"].to_pylist() == ids.tolist()
    assert found["status"].to_pylist() == ["ok"] * 3 + ["zero"] + ["ok"] * 996
    for name in ("norm", "score", "novelty"):
        np.testing.assert_array_equal(found[name].to_numpy(), expected[name])


def test_a_batch_may_be_empty_or_without_ids_and_has_what_the_reference_needs(reference) -> None:
    rows = table(Z[:500], "fixed", {"length": np.arange(500.0)}).to_batches()[0]
    empty = score_batch(rows.slice(0, 0), reference)
    assert empty.schema == score_batch(rows, reference).schema
    assert (len(empty), empty.schema.names[0]) == (0, "norm")
    known = as_source(Z[:500], covariates={"length": np.arange(500.0)})
    given = fit_reference(known)
    assert len(score_batch(rows, given)) == 500
    with pytest.raises(ValueError, match="batch must be a file with 'length'"):
        score_batch(rows.drop_columns("length"), given)


def test_memory_does_not_grow_with_the_rows(tmp_path: Path) -> None:
    part = np.random.default_rng(0).standard_normal((10_000, 256)).astype(np.float32)
    for times in (1, 40):
        with (tmp_path / f"{times}.raw").open("wb") as stream:
            for _ in range(times):
                stream.write(part.tobytes())
    code = (
        "import resource, numpy as np\n"
        "from normscope.scoring import as_source, fit_reference\n"
        "for times in (1, 40):\n"
        "    mapped = np.memmap(f'{times}.raw', 'f4', 'r').reshape(-1, 256)\n"
        "    fit_reference(as_source(mapped))\n"
        "    part = np.fromfile('1.raw', 'f4').reshape(-1, 256)\n"
        "    fit_reference(as_source((part + 0 for _ in range(times)), n=times * 10_000))\n"
        "    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    small, large = (int(line) / 1024 for line in done.stdout.split())  # MB
    assert large - small < 60


def test_a_batch_of_normalised_rows_is_refused_where_the_reference_is_raw() -> None:
    z = np.random.default_rng(0).normal(size=(30, 8))
    reference = fit_reference(as_source(z))
    raw = pa.record_batch({"embedding": z.tolist()})
    assert score_batch(raw, reference)["status"].to_pylist() == ["ok"] * 30
    unit = pa.record_batch({"embedding": (z / np.linalg.norm(z, axis=1)[:, None]).tolist()})
    with pytest.raises(ValueError, match="batch must be raw, as the reference was"):
        score_batch(unit, reference)


def test_pages_changed_in_private_are_kept(tmp_path: Path) -> None:
    np.save(tmp_path / "z.npy", Z)
    mapped = np.load(tmp_path / "z.npy", mmap_mode="c")
    mapped[:] = 1
    norms = np.concatenate([block.norms for block in as_source(mapped).blocks()])
    np.testing.assert_allclose(norms, 8**0.5)
    assert (np.asarray(mapped) == 1).all()
