"""`normscope score` as a user runs it: real processes, real files, flat memory."""

import csv
import json
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.command import FRESH, normscope  # pyright: ignore[reportMissingImports]

from normscope.cli import app, run
from normscope.confidence.norm_confidence import NormConfidence
from normscope.scoring import fit_reference, open_embeddings, score_file
from normscope.scoring.writers import WRITERS, written

from .conftest import KINDS, embeddings

COLUMNS = ["id", "norm", "score", "novelty", "status"]


def table(path: Path) -> dict[str, list]:
    """The columns of scores, whatever the format."""
    if path.suffix == ".parquet":
        return pq.read_table(path).to_pydict()
    if path.suffix == ".npz":
        with np.load(path) as file:
            return {name: file[name].tolist() for name in file.files}
    if path.suffix == ".arrow":
        return pa.ipc.open_file(path).read_all().to_pydict()
    if path.suffix == ".jsonl":
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        return {c: [row[c] for row in rows] for c in rows[0]}
    with path.open(newline="") as stream:
        lines = list(csv.DictReader(stream))
    return {c: [line[c] for line in lines] for c in COLUMNS}


def test_every_format_gives_the_same_scores(tmp_path: Path, write) -> None:
    z = embeddings(1000, seed=1)
    reference = embeddings(500, seed=0)
    norms = np.linalg.norm(reference.astype(float), axis=1)
    confidence = NormConfidence.from_norms(norms)
    expected = np.linalg.norm(z.astype(float), axis=1)
    for i, kind in enumerate(KINDS):
        fitted = fit_reference(open_embeddings(write(reference, kind, "reference")))
        out = tmp_path / f"{i}.parquet"
        summary = score_file(open_embeddings(write(z, kind)), fitted, out)
        found = table(out)
        assert list(found) == COLUMNS
        assert found["id"] == list(range(1000))
        np.testing.assert_allclose(found["norm"], expected, rtol=1e-6)
        score = confidence.score_norms(expected)
        np.testing.assert_allclose(found["score"], score, atol=2.1e-3)  # a norm in its place
        novelty = confidence.novelty_norms(expected)
        np.testing.assert_allclose(found["novelty"], novelty, atol=1.1)
        assert summary.rows == 1000
        assert summary.low == pytest.approx((score < 0.05).mean(), abs=2e-3)
        assert summary.norm_mean == pytest.approx(expected.mean(), rel=1e-6)


@pytest.mark.parametrize("suffix", list(WRITERS))
def test_every_kind_of_output_holds_the_same_columns(tmp_path: Path, write, suffix: str) -> None:
    names = np.array([f"row, {'x' * (i % 5)}{i}" for i in range(900)])
    z = embeddings(900, seed=1)
    z[5] = 0
    fitted = fit_reference(open_embeddings(write(embeddings(500, seed=0), "npy", "reference")))
    source = open_embeddings(write(z, "parquet-list", id=names))
    out = tmp_path / f"scores{suffix}"
    score_file(source, fitted, out)
    found = table(out)
    assert list(found) == COLUMNS
    assert found["id"] == names.tolist()
    assert found["status"] == ["ok"] * 5 + ["zero"] + ["ok"] * 894
    numbers = {c: np.array(found[c], float) for c in ("norm", "score", "novelty")}
    for column in numbers.values():
        assert np.flatnonzero(np.isnan(column)).tolist() == [5]
    np.testing.assert_allclose(
        np.delete(numbers["norm"], 5), np.linalg.norm(np.delete(z, 5, 0), axis=1), rtol=1e-6
    )
    assert numbers["score"][np.nanargmin(numbers["norm"])] < 0.1
    assert numbers["novelty"][np.nanargmin(numbers["norm"])] > 3


def test_a_run_is_scored_test_against_train_and_keeps_its_embeddings(tmp_path: Path) -> None:
    train, test = embeddings(100, seed=0), embeddings(50, seed=1)
    np.savez(tmp_path / "embeddings.npz", train_embeddings=train, test_embeddings=test)
    words = ["score", str(tmp_path), "--reference", str(tmp_path)]
    with pytest.raises(ValueError, match="out must be another file than those read"):
        app([*words, "--out", str(tmp_path / "embeddings.npz"), "--force"], standalone_mode=False)
    app(words, standalone_mode=False)
    found = table(tmp_path / "embeddings.scores.parquet")
    np.testing.assert_allclose(found["norm"], np.linalg.norm(test, axis=1), rtol=1e-6)


def test_npz_takes_as_many_parts_as_come(tmp_path: Path) -> None:
    with written(tmp_path / "scores.npz") as writer:
        for i in range(200):
            number = np.array([float(i)])
            numbers = {"norm": number, "score": number, "novelty": number}
            status = np.zeros(1, np.uint8)
            writer.write({"id": np.array(["x" * i], object), **numbers, "status": status})
    found = table(tmp_path / "scores.npz")
    assert found["id"] == ["x" * i for i in range(200)]
    assert found["norm"] == list(range(200))


def test_the_command_scores_and_tells(tmp_path: Path, write) -> None:
    z = embeddings(1000, seed=1)
    z[3], z[4], z[5] = np.nan, np.inf, 0
    reference = embeddings(2000, seed=0)
    reference[7] = 0
    labels = tmp_path / "labels.npy"
    np.save(labels, np.arange(2000) % 5)
    kept = tmp_path / "kept.npz"
    words = ["--labels", labels, "--save-reference", kept, "--parts", "norm"]
    files = write(z, "npy"), "--reference", write(reference, "npy", "r")
    done = normscope("score", *files, *words)
    assert done.returncode == 0, done.stderr
    first, told, last = done.stdout.splitlines()
    assert first == "Score and novelty are by the norm alone."
    assert told.startswith("The norm separates right from wrong with AUROC .")
    assert last.startswith("1,000 rows, mean norm ")
    assert "below the reference's 5 % quantile" in last
    assert last.endswith("z.scores.parquet")
    assert done.stderr.splitlines() == [
        "1 row of the reference: all zero, no score",
        "1 row of FILE: NaN in the embedding, no score",
        "1 row of FILE: infinity in the embedding, no score",
        "1 row of FILE: all zero, no score",
    ]
    found = table(tmp_path / "z.scores.parquet")
    assert found["status"][2:7] == ["ok", "nan", "infinite", "zero", "ok"]
    words = ["--reference", str(kept), "--out", str(tmp_path / "again.csv")]
    app(["score", str(tmp_path / "z.npy"), *words], standalone_mode=False)
    scores = np.array(table(tmp_path / "again.csv")["score"], float)
    np.testing.assert_allclose(scores, found["score"], atol=1e-7)


def test_a_covariate_is_conditioned_on_and_named(tmp_path: Path, write, capsys) -> None:
    random = np.random.default_rng(0)
    length = random.uniform(1, 10, 2000)
    z = embeddings(2000, seed=0)
    z *= (length / np.linalg.norm(z, axis=1))[:, None] * random.uniform(0.9, 1.1, (2000, 1))
    known = write(z.astype(np.float32), "parquet-list", "known", length=length)
    lengths = length[:100].copy()
    lengths[4] = np.nan
    new = write(z[:100].astype(np.float32), "parquet-list", length=lengths)
    words = ["score", str(new), "--reference", str(known), "--covariate", "length"]
    words += ["--parts", "norm"]
    app(words, standalone_mode=False)
    assert "length explains 9" in capsys.readouterr().err
    found = table(tmp_path / "z.scores.parquet")
    assert found["status"][4] == "covariate"
    assert np.isnan(found["score"][4])
    score = np.delete(found["score"], 4)
    assert abs(np.corrcoef(score, np.delete(length[:100], 4))[0, 1]) < 0.3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (["--out", "x.npy"], "An array has no named columns"),
        (["--out", "x.txt"], "out must be a file ending in .parquet, .npz, .csv"),
        (["--out", "nowhere/x.csv"], "out must be in a folder that exists"),
        (["--out", "z.npz", "--force"], "out must be another file than those read"),
        (["--out", "old.csv"], "old.csv, which exists"),
        (["--labels", "z.npz"], "z.npz must be a whole file without pickles"),
        (["--labels", "no.npy"], "labels must be a .npy file, got 'no.npy'"),
        (["--labels", "few.npy"], "labels of few.npy must be an integer or a string for each of"),
        (["--covariate", "size"], "z.npz must be a file with 'size'"),
        (["--save-reference", "kept.csv"], "--save-reference must be a .safetensors in a folder"),
        (["--save-reference", "z.npz", "--parts", "norm"], "--save-reference must be a new file"),
        (["--reference", "unit.npy", "--parts", "norm"], "reference must be raw"),
        (["--reference", "r.npy", "unit"], "unit.npy must be raw, as the reference was"),
        (["--reference", "r.npy", "unit"], "leave out its Normalize module"),
        (["--reference", "narrow.npy"], "FILE must have 3 columns as --reference has, got 8."),
        (["--reference", "old.txt"], "old.txt must be a run's folder or one of"),
        (["--reference", "none.npy"], "No such file"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_nothing_is_written(
    tmp_path: Path, write, monkeypatch, capsys, change: list[str], message: str
) -> None:
    z = embeddings(100, seed=0)
    write(z, "npz")
    write(z, "npy", "r")
    write(z / np.linalg.norm(z, axis=1, keepdims=True), "npy", "unit")
    write(z[:, :3].copy(), "npy", "narrow")
    np.save(tmp_path / "few.npy", np.arange(3))
    (tmp_path / "old.csv").write_text("old")
    (tmp_path / "old.txt").write_text("old")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    file = "unit.npy" if change[-1] == "unit" else "z.npz"
    change = [word for word in change if word != "unit"]
    words = change if "--reference" in change else ["--reference", "r.npy", *change]
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match="2"):
        run(lambda: app(["score", file, *words]))
    told = capsys.readouterr().err
    assert message in told
    assert len(told.splitlines()) == 1
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("ids", [np.arange(1000), np.array([f"n{i}" for i in range(1000)])])
def test_an_id_that_occurs_again_is_refused(tmp_path: Path, write, ids: np.ndarray) -> None:
    fitted = fit_reference(open_embeddings(write(embeddings(500, seed=0), "npy", "reference")))
    ids = ids.copy()
    ids[700] = ids[20]
    for kind in ("npz", "parquet-list"):
        source = open_embeddings(write(embeddings(1000, seed=1), kind, id=ids))
        with pytest.raises(ValueError, match="1 that occur again, as in rows 20 and 700"):
            score_file(source, fitted, tmp_path / "scores.csv")
        assert not list(tmp_path.glob("*scores*"))
    words = ["score", tmp_path / "z.npz", "--reference", tmp_path / "reference.npy"]
    found = normscope(*words, "--parts", "norm")
    assert (found.returncode, len(found.stderr.splitlines())) == (2, 1)


def test_damage_found_late_leaves_the_old_scores(tmp_path: Path, write) -> None:
    path = write(embeddings(5000, seed=1), "npz")
    content = bytearray(path.read_bytes())
    content[-1000] ^= 255
    path.write_bytes(content)
    old = tmp_path / "old.csv"
    old.write_text("old")
    reference = write(embeddings(500, seed=0), "npy", "reference")
    words = ["score", str(path), "--reference", str(reference), "--out", str(old), "--force"]
    with pytest.raises(ValueError, match="must be a whole file"):
        app(words, standalone_mode=False)
    assert old.read_text() == "old"
    assert not list(tmp_path.glob(".*partial"))


@pytest.mark.parametrize("suffix", list(WRITERS))
def test_a_full_disk_is_one_line_and_leaves_the_old_scores(
    tmp_path: Path, write, capsys, suffix: str
) -> None:
    path = write(embeddings(20_000, seed=1), "npy")
    old = tmp_path / f"old{suffix}"
    old.write_text("old")
    words = ["score", str(path), "--reference", str(path), "--out", str(old), "--force"]
    words += ["--parts", "norm"]
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))  # bytes that a file may have
    try:
        with pytest.raises(SystemExit, match="2"):
            run(lambda: app(words))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    told = capsys.readouterr().err
    assert "--out must be writable" in told
    assert len(told.splitlines()) == 1
    assert old.read_text() == "old"
    assert not list(tmp_path.glob(".*partial"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_command_that_is_stopped_leaves_the_old_scores(tmp_path: Path, write, number) -> None:
    path = write(embeddings(2_000_000, seed=1, d=2), "npy")
    old = tmp_path / "old.csv"
    old.write_text("old")
    words = [str(path), "--reference", str(path), "--out", str(old), "--force", "--parts", "norm"]
    with subprocess.Popen([*FRESH, "score", *words], stderr=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 60
        while not list(tmp_path.glob(".*partial")) and time.monotonic() < deadline:
            time.sleep(0.01)
        process.send_signal(number)  # in the middle of writing
        _, errors = process.communicate(timeout=60)
    assert old.read_text() == "old"
    if number != signal.SIGKILL:
        assert process.returncode == 128 + number
        assert not list(tmp_path.glob(".*partial"))
    if number == signal.SIGINT:
        assert errors == "Stopped. No scores were written.\n"


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    z = embeddings(10_000, seed=0, d=256)
    lists = pa.FixedSizeListArray.from_arrays(pa.array(z.ravel()), 256)
    for name, times in (("small", 1), ("large", 40)):
        with (tmp_path / f"{name}.npy").open("wb") as stream:
            header = {"descr": "<f4", "fortran_order": False, "shape": (times * 10_000, 256)}
            np.lib.format.write_array_header_1_0(stream, header)
            for _ in range(times):
                stream.write(z.tobytes())
        table = pa.table({"embedding": pa.chunked_array([lists] * times)})
        whole = {"compression": "none", "use_dictionary": False, "row_group_size": 10**6}
        pq.write_table(table, tmp_path / f"{name}.parquet", **whole)  # in one group of rows
    assert (tmp_path / "large.parquet").stat().st_size > 400e6
    code = (
        "import resource, sys\n"
        "from normscope.cli import app\n"
        "for name in ('small', 'large'):\n"
        "    for kind in ('npy', 'parquet'):\n"
        "        words = ['score', f'{name}.{kind}', '--reference', 'small.npy', '--force']\n"
        "        app([*words, '--parts', 'norm'], standalone_mode=False)\n"
        "    print('peak', resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines() if line.startswith("peak")]
    small, large = (int(line[1]) / 1024 for line in lines)  # MB
    assert large - small < 40
    for path in tmp_path.glob("large.*"):
        path.unlink()


def test_parquet_without_pyarrow_is_told_in_one_line(tmp_path: Path, monkeypatch) -> None:
    pq.write_table(pa.table({"embedding": [[1.0, 2.0], [3.0, 4.0]]}), tmp_path / "a.parquet")
    monkeypatch.setitem(sys.modules, "pyarrow", None)  # as if it were not installed
    with pytest.raises(ValueError, match=r"pyarrow must be installed.*pip install 'normscope\[par"):
        open_embeddings(tmp_path / "a.parquet")
