"""Files of embeddings: the same rows from every format, and one line for each that is no good."""

import io
import json
import struct
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors.torch import save_file

from normscope.scoring import open_embeddings
from normscope.scoring.blocks import STATUSES, Source, norms_and_status

from .conftest import KINDS, WITH_COLUMNS, embeddings


def read(source: Source) -> tuple[np.ndarray, list[str]]:
    """All norms and statuses."""
    batches = list(source.blocks())
    status = np.concatenate([batch.status for batch in batches])
    return np.concatenate([batch.norms for batch in batches]), [STATUSES[code] for code in status]


@pytest.mark.parametrize("kind", KINDS)
def test_every_format_gives_the_rows_norms(kind: str, write) -> None:
    z = embeddings(1000, seed=0)
    source = open_embeddings(write(z, kind))
    assert (source.rows, source.d) == (1000, 8)
    for _ in range(2):  # it can be read again
        norms, status = read(source)
        np.testing.assert_allclose(norms, np.linalg.norm(z.astype(float), axis=1), rtol=1e-6)
        assert set(status) == {"ok"}


@pytest.mark.parametrize("rows", [2, 65_536, 65_537, 150_001])
def test_rows_at_a_blocks_edge_are_all_read_once(tmp_path: Path, rows: int) -> None:
    z = np.arange(1, rows + 1, dtype=np.float32)[:, None]
    np.save(tmp_path / "z.npy", z)
    norms, _ = read(open_embeddings(tmp_path / "z.npy"))
    np.testing.assert_allclose(norms, z[:, 0], rtol=1e-7)


@pytest.mark.parametrize("numbers", ["<f2", "<f4", "<f8", ">f4", ">f8"])
def test_every_floating_format_of_numpy_is_read(tmp_path: Path, numbers: str) -> None:
    z = embeddings(50, seed=0).astype(numbers)
    np.save(tmp_path / "z.npy", z)
    norms, _ = read(open_embeddings(tmp_path / "z.npy"))
    np.testing.assert_allclose(norms, np.linalg.norm(z.astype(float), axis=1), rtol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_every_floating_format_of_safetensors_is_read(tmp_path: Path, dtype) -> None:
    z = torch.from_numpy(embeddings(50, seed=0)).to(dtype)
    save_file({"z": z, "labels": torch.arange(50)}, tmp_path / "z.safetensors")
    norms, _ = read(open_embeddings(tmp_path / "z.safetensors"))
    np.testing.assert_allclose(norms, z.double().norm(dim=1), rtol=1e-6)


def test_a_runs_folder_gives_the_split_that_is_meant(tmp_path: Path) -> None:
    train, test = embeddings(30, seed=0), embeddings(20, seed=1)
    arrays = {"train_embeddings": train, "test_embeddings": test, "train_features": train}
    np.savez(tmp_path / "embeddings.npz", **arrays)
    assert open_embeddings(tmp_path, split="train").rows == 30
    assert open_embeddings(tmp_path, split="test").rows == 20


def test_rows_without_a_norm_are_marked_in_their_place(tmp_path: Path) -> None:
    rows = [[3.0, 4.0], None, [1.0], [np.nan, 1.0], [np.inf, 1.0], [0.0, 0.0], [1.0, None]]
    table = pa.table({"embedding": pa.array(rows * 2, pa.list_(pa.float32()))})
    pq.write_table(table.slice(1), tmp_path / "z.parquet")
    norms, status = read(open_embeddings(tmp_path / "z.parquet"))
    expected = ["ok", "null", "ragged", "nan", "infinite", "zero", "nan"]
    assert status == (expected * 2)[1:]
    assert norms[6] == 5
    assert np.isnan(np.delete(norms, 6)).all()


def test_missing_lists_of_fixed_size_are_marked(tmp_path: Path) -> None:
    column = pa.array([[3.0, 4.0], None, [6.0, 8.0]], pa.list_(pa.float64(), 2))
    pq.write_table(pa.table({"embedding": column}), tmp_path / "z.parquet")
    norms, status = read(open_embeddings(tmp_path / "z.parquet"))
    assert status == ["ok", "null", "ok"]
    np.testing.assert_array_equal(norms, [5, np.nan, 10])


@given(hnp.arrays(np.float32, (5, 3), elements=st.floats(width=32)))
def test_norms_agree_with_float64_whatever_the_size(z: np.ndarray) -> None:
    norms, status = norms_and_status(z)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        expected = np.linalg.norm(z.astype(np.float64), axis=1)
    finite = np.isfinite(expected) & (expected > 0)
    np.testing.assert_array_equal(status == 0, finite)
    np.testing.assert_allclose(norms[finite], expected[finite], rtol=1e-6)
    assert np.isnan(norms[~finite]).all()


def test_ids_and_covariates_come_with_their_rows(write) -> None:
    z = embeddings(1000, seed=0)
    columns = {"id": np.arange(1000) * 7, "length": np.arange(1000)}
    columns["words"] = np.array([f"number {i}" for i in range(1000)])
    for kind in WITH_COLUMNS:
        path = write(z, kind, **columns)
        source = open_embeddings(path, covariates=["length"], text="words")
        batches = list(source.blocks())
        np.testing.assert_array_equal(np.concatenate([b.ids for b in batches]), columns["id"])
        lengths = np.concatenate([b.covariates["length"] for b in batches])
        np.testing.assert_array_equal(lengths, columns["length"])
        texts = np.concatenate([b.texts for b in batches])
        assert texts.tolist() == columns["words"].tolist()


def test_columns_of_any_name_are_read_when_they_are_named(tmp_path: Path) -> None:
    z = embeddings(50, seed=0)
    names = [f"n{i}" for i in range(50)]
    both = {"first": z.tolist(), "second": (2 * z).tolist(), "name": names}
    pq.write_table(pa.table(both), tmp_path / "z.parquet")
    np.savez(tmp_path / "z.npz", first=z, second=2 * z, name=np.array(names))
    save_file({k: torch.tensor(both[k]) for k in ("first", "second")}, tmp_path / "z.safetensors")
    wide = {"dim_" + str(i): z[:, i] for i in reversed(range(8))}
    pq.write_table(pa.table({"name": names, **wide}), tmp_path / "wide.parquet")
    expected = np.linalg.norm(z.astype(float), axis=1)
    for name in ("z.parquet", "z.npz"):
        source = open_embeddings(tmp_path / name, column="second", id="name")
        assert next(iter(source.blocks())).ids.tolist() == names
        np.testing.assert_allclose(read(source)[0], 2 * expected, rtol=1e-6)
    second = open_embeddings(tmp_path / "z.safetensors", column="second")
    np.testing.assert_allclose(read(second)[0], 2 * expected, rtol=1e-6)
    numbered = open_embeddings(tmp_path / "wide.parquet", column="dim_")
    np.testing.assert_allclose(read(numbered)[0], expected, rtol=1e-6)
    for name in ("z.parquet", "z.npz", "z.safetensors"):
        with pytest.raises(ValueError, match=r"a file with 'third', got 'none'. It has first"):
            open_embeddings(tmp_path / name, column="third")
        with pytest.raises(ValueError, match="Choose one with --column"):
            open_embeddings(tmp_path / name)


def test_empty_lines_are_no_rows(tmp_path: Path) -> None:
    path = tmp_path / "z.jsonl"
    path.write_text('\n{"embedding": [3, 4]}\n\n  \n\r\n{"embedding": [6, 8]}\n\n')
    (block,) = open_embeddings(path).blocks()
    assert block.norms.tolist() == [5, 10]


def test_a_cell_that_is_no_number_is_named_by_its_column(tmp_path: Path) -> None:
    path = tmp_path / "z.csv"
    path.write_text("id,e0,e1\n1,2.5,3\n2,4.5,x\n")
    with pytest.raises(ValueError, match=r"e1 of .*z\.csv must be a float in each row, got 's"):
        open_embeddings(path)


def test_a_csv_file_without_a_heading_is_all_embedding(tmp_path: Path) -> None:
    z = embeddings(50, seed=0)
    np.savetxt(tmp_path / "z.csv", z, delimiter=",")
    norms, _ = read(open_embeddings(tmp_path / "z.csv"))
    np.testing.assert_allclose(norms, np.linalg.norm(z.astype(float), axis=1), rtol=1e-6)


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_numbers_in_text_that_start_out_whole_may_be_broken_later(tmp_path: Path, kind) -> None:
    z = np.ones((400_000, 2))  # more than is read at once
    z[-1] = [0.5, np.nan]
    path = tmp_path / f"z.{kind}"
    if kind == "csv":
        rows = "".join(f"{a:g},{b:g}\n" for a, b in z.tolist())
        path.write_text("e0,e1\n" + rows)
    else:
        path.write_text(
            "".join(f'{{"embedding": [{a:g}, {b:g}]}}\n' for a, b in z).replace("nan", "NaN")
        )
    norms, status = read(open_embeddings(path))
    assert norms[0] == 2**0.5
    assert status[-2:] == ["ok", "nan"]


def npy(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def npz(**arrays: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    return stream.getvalue()


def parquet(**columns: object) -> bytes:
    stream = io.BytesIO()
    pq.write_table(pa.table(columns), stream)
    return stream.getvalue()


def two_columns(first: str, second: str) -> bytes:
    stream = io.BytesIO()
    rows = pa.array([[1.0, 2.0]] * 9)
    pq.write_table(pa.table([rows, rows], [first, second]), stream)
    return stream.getvalue()


def safetensors(kind: str, shape: list[Any], content: bytes) -> bytes:
    header = {"z": {"dtype": kind, "shape": shape, "data_offsets": [0, len(content)]}}
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + content


Z = embeddings(50, seed=0)
BAD = {
    "integers.npy": (npy(np.ones((9, 2), int)), "got 'int64'"),
    "complex.npy": (npy(np.ones((9, 2), complex)), "got 'complex128'"),
    "strings.npy": (npy(np.array([["a"]] * 9)), "got '<U1'"),
    "objects.npy": (npy(np.array([[None]] * 9)), "got 'object'"),
    "wide.npy": (npy(np.ones((9, 2), np.longdouble)), "float16, bfloat16, float32 or float64"),
    "empty.npy": (npy(Z[:0]), "at least one row"),
    "columns.npy": (npy(Z[:, :0]), "at least one row of at least one entry"),
    "flat.npy": (npy(Z[:, 0]), "1-d (50,)"),
    "deep.npy": (npy(Z[None]), "3-d (1, 50, 8)"),
    "fortran.npy": (npy(np.asfortranarray(Z)), "Save np.ascontiguousarray"),
    "cut.npy": (npy(Z)[:-1], "a whole file of 1,728 bytes"),
    "head.npy": (npy(Z)[:20], "a whole file"),
    "nothing.npy": (b"", "a whole file"),
    "text.npy": (b"hello", "a whole file"),
    "cut.npz": (npz(embeddings=Z)[:-30], "a whole file"),
    "two.npz": (npz(a=Z, b=Z), "one floating array (n, d), got 'a, b'"),
    "integers.npz": (npz(embeddings=np.ones((9, 2), int)), "got 'int64'"),
    "fortran.npz": (npz(embeddings=np.asfortranarray(Z)), "Fortran order"),
    "objects.npz": (npz(embeddings=np.array([[None]] * 9)), "got 'object'"),
    "cut.parquet": (parquet(e0=Z[:, 0])[:-5], "a whole file, got 'Parquet magic bytes"),
    "text.parquet": (b"hello", "a whole file, got 'Parquet file size"),
    "integers.parquet": (parquet(embedding=[[1, 2]] * 9), "a list of floats in each row"),
    "gap.parquet": (parquet(e0=Z[:, 0], e2=Z[:, 1]), "one floating array (n, d), got 'e0, e2'"),
    "empty.parquet": (parquet(embedding=pa.array([], pa.list_(pa.float32()))), "one row"),
    "none.parquet": (parquet(embedding=pa.array([None] * 9, pa.list_(pa.float32()))), "(9, 0)"),
    "cut.safetensors": (safetensors("F32", [9, 2], bytes(72))[:-1], "file not fully covered"),
    "odd.safetensors": (
        safetensors("F32", [9, 2], bytes(71)),
        "invalid shape, data type, or offset",
    ),
    "words.safetensors": (safetensors("F32", ["9", "2"], bytes(72)), "invalid JSON in header"),
    "before.safetensors": (
        safetensors("F32", [9, 2], bytes(72)).replace(b"[0, 72]", b"[-9,63]"),
        "invalid JSON in header",
    ),
    "deep.safetensors": (struct.pack("<Q", 100_000) + b"[" * 100_000, "a whole file"),
    "twice.parquet": (
        two_columns("embedding", "embedding"),
        "columns with different names, got 'embedding twice'",
    ),
    "integers.safetensors": (safetensors("I64", [9, 2], bytes(144)), "one floating array"),
    "head.safetensors": (struct.pack("<Q", 1 << 60) + b"{", "a whole file"),
    "short.safetensors": (b"abc", "a whole file"),
    "list.safetensors": (struct.pack("<Q", 2) + b"[]", "a whole file"),
    "z.txt": (b"1 2 3", "a run's folder or one of .npy, .npz, .parquet, .arrow, .jsonl"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_is_refused_in_one_line_that_names_it(tmp_path: Path, name: str) -> None:
    content, message = BAD[name]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=name) as refused:
        read(open_embeddings(tmp_path / name))
    assert message in str(refused.value)
    assert " must be " in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_file_that_is_not_there_and_a_run_not_evaluated_are_told(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="No such file"):
        open_embeddings(tmp_path / "z.npy")
    with pytest.raises(ValueError, match="Run `normscope evaluate"):
        open_embeddings(tmp_path)


@pytest.mark.parametrize("kind", ["npz", "npz-deflated", "parquet-list"])
def test_damage_in_the_middle_is_found_while_reading(kind: str, write) -> None:
    path = write(embeddings(5000, seed=0), kind)
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    if kind == "parquet-list":
        content[300 : middle + 300] = bytes(middle)  # pages' heads are gone
    else:
        content[middle] ^= 255
    path.write_bytes(content)
    with pytest.raises(ValueError, match="must be a whole"):
        read(open_embeddings(path))


def test_a_file_cut_after_it_was_opened_is_told(write) -> None:
    path = write(embeddings(5000, seed=0), "npy")
    source = open_embeddings(path)
    with path.open("r+b") as stream:
        stream.truncate(1000)
    with pytest.raises(ValueError, match="ends too soon"):
        read(source)


def test_covariates_must_be_there_and_numeric(write) -> None:
    z, words = embeddings(50, seed=0), np.array(["a"] * 50)
    for kind in ("npz", "parquet-list"):
        path = write(z, kind, words=words)
        with pytest.raises(ValueError, match="'length'"):
            open_embeddings(path, covariates=["length"])
        with pytest.raises(ValueError, match="words of "):
            read(open_embeddings(path, covariates=["words"]))
    with pytest.raises(ValueError, match="must be a file with 'length' beside it"):
        open_embeddings(write(z, "npy"), covariates=["length"])


def test_ids_must_be_there_for_every_row(tmp_path: Path) -> None:
    table = pa.table({"id": [1, None] * 9, "embedding": [[1.0, 2.0]] * 18})
    pq.write_table(table, tmp_path / "z.parquet")
    with pytest.raises(ValueError, match="an integer or a string a row, got 'int64 with 9 missing"):
        read(open_embeddings(tmp_path / "z.parquet"))
