"""What is written: kept rows in every format, all files or none, names that steer a terminal."""

import json
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from normscope.cli import app, run
from normscope.report.html import Page
from normscope.scoring import fit_reference, kept_rows, open_embeddings, score_file, write_kept
from normscope.scoring.writers import WRITERS

from .conftest import WITH_COLUMNS, embeddings


@pytest.mark.parametrize("suffix", list(WRITERS))
def test_kept_rows_can_be_scored_in_turn(tmp_path: Path, write, suffix: str) -> None:
    z = embeddings(900, seed=1)
    z[7] = np.nan
    ids = np.array([f"näme {i}" for i in range(900)])
    length = np.arange(900.0)
    reference = fit_reference(open_embeddings(write(embeddings(500, seed=0), "npy", "known")))
    known = {"covariates": ["length"]}
    source = open_embeddings(write(z, "parquet-list", id=ids, length=length), **known)
    scores: list[np.ndarray] = []
    plain = open_embeddings(tmp_path / "z.parquet")
    score_file(plain, reference, tmp_path / f"scores{suffix}", watch=scores.append)
    score = np.concatenate(scores)
    kept = kept_rows(score, share=0.9)
    assert kept.sum() == round(0.9 * 899)
    assert score[kept].min() >= np.nanmax(score[~kept])
    out = tmp_path / f"kept{suffix}"
    write_kept(source, kept, out)
    blocks = list(open_embeddings(out, **known).blocks())
    found = np.concatenate([b.z for b in blocks]).astype(np.float32)
    np.testing.assert_array_equal(found, z[kept])
    np.testing.assert_array_equal(np.concatenate([b.ids for b in blocks]), ids[kept])
    found = np.concatenate([b.covariates["length"] for b in blocks])
    np.testing.assert_array_equal(found, length[kept])


def test_rows_of_equal_score_are_kept_from_the_first() -> None:
    score = np.array([0.5, np.nan, 1.0, 0.5, 0.5])
    assert kept_rows(score, share=0.5).tolist() == [True, False, True, False, False]
    assert kept_rows(score, threshold=0.5).tolist() == [True, False, True, True, True]
    for options, message in (
        (
            {"threshold": 2.0},
            "threshold must be a score that some row reaches, got '2.0 where the highest is 1'",
        ),
        ({"share": 1.5}, "keep must be a share above 0, at most 1, got 1.5"),
        ({"share": np.nan}, "keep must be a share"),
        ({"share": 0.5, "threshold": 0.5}, "keep must be one of a share and a threshold"),
    ):
        with pytest.raises(ValueError, match=message):
            kept_rows(score, **options)


def test_the_command_keeps_rows_of_shards_and_shows_their_texts(
    tmp_path: Path, write, monkeypatch, capsys
) -> None:
    z = embeddings(300, seed=1)
    texts = np.array([f"<b>text {i}</b>" for i in range(300)])
    names = np.array([f"key {i}" for i in range(300)])
    (tmp_path / "new").mkdir()
    for name, rows in (("0", slice(200)), ("1", slice(200, 300))):
        path = write(z[rows], "jsonl", name, words=texts[rows], key=names[rows])
        path.rename(tmp_path / "new" / path.name)
    write(embeddings(500, seed=0), "jsonl", "known", key=np.arange(500))
    monkeypatch.chdir(tmp_path)
    words = ["score", "new", "--reference", "known.jsonl", "--id", "key", "--text", "words"]
    app([*words, "--keep", "0.9", "--html", "--parts", "norm"], standalone_mode=False)
    assert "270 rows kept, by score: new.kept.parquet" in capsys.readouterr().out
    kept = open_embeddings("new.kept.parquet")
    ids = np.concatenate([block.ids for block in kept.blocks()])
    lowest = np.argsort(np.linalg.norm(z, axis=1))[:30]
    assert set(names) - set(ids) == set(names[lowest])
    page = Path("new.scores.html").read_text()
    assert f"&lt;b&gt;text {lowest[0]}&lt;/b&gt;" in page
    assert "<b>text" not in page
    assert not list(tmp_path.glob(".*partial"))


def test_if_one_file_cannot_be_written_none_is(tmp_path: Path, write, monkeypatch, capsys) -> None:
    write(embeddings(300, seed=1), "npy")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "z.scores.html").write_bytes(b'<meta name="generator" content="normscope">')
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def full(*_) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Page, "save", full)
    words = ["score", "z.npy", "--reference", "z.npy", "--html"]
    words += ["--save-reference", "fit.safetensors"]
    for more in ([], ["--keep", "0.5"]):
        with pytest.raises(SystemExit, match="2"):
            run(lambda more=more: app([*words, *more]))
        told = capsys.readouterr().err
        assert told == "--out must be writable, got 'z.scores.parquet': No space left on device.\n"
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("name", ["a\nb\x1b[31m.npy", "a\u202eb.npy", os.fsdecode(b"a\xff.npy")])
def test_a_name_cannot_steer_the_terminal(tmp_path: Path, monkeypatch, capsys, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    for words in (["score", name, "--reference", name], ["evaluate", name]):
        with pytest.raises(SystemExit, match="2"):
            run(lambda words=words: app(words))
        assert_one_line(capsys.readouterr().err)
    np.save(name, embeddings(100, seed=0))
    app(["score", name, "--reference", name, "--html"], standalone_mode=False)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4
    for line in lines:
        assert_one_line(line + "\n")


def assert_one_line(told: str) -> None:
    assert told.endswith("\n")
    assert told[:-1].isprintable()


@pytest.mark.parametrize("kind", [kind for kind in WITH_COLUMNS if kind != "npz-deflated"])
def test_ids_that_are_too_long_are_refused(write, kind: str) -> None:
    z = embeddings(100, seed=0)
    long = np.array(["x" * 1025] * 100)
    with pytest.raises(ValueError, match=r"id of .* must be of at most"):
        list(open_embeddings(write(z, kind, id=long)).blocks())


def test_ids_of_parquet_and_npz_that_are_no_text_are_refused(tmp_path: Path) -> None:
    z = embeddings(100, seed=0)
    ids = np.array([f"{i:04}" for i in range(100)])
    high = "0007".encode("utf-32-le")
    for code, message in ((0x110000, "a whole file"), (0xD800, "an integer or a string a row")):
        bad = code.to_bytes(4, "little") + high[4:]
        array = np.frombuffer(ids.tobytes().replace(high, bad), ids.dtype)
        np.savez(tmp_path / "z.npz", embeddings=z, id=array)
        with pytest.raises(ValueError, match=message):
            list(open_embeddings(tmp_path / "z.npz").blocks())
    words = pa.array([b"\xff\xfe"] * 100).view(pa.string())
    pq.write_table(pa.table({"id": words, "embedding": z.tolist()}), tmp_path / "z.parquet")
    with pytest.raises(ValueError, match="must be a whole file"):
        list(open_embeddings(tmp_path / "z.parquet").blocks())


def test_jsonl_scores_have_null_where_there_is_none(tmp_path: Path, write) -> None:
    z = embeddings(100, seed=1)
    z[3] = 0
    reference = fit_reference(open_embeddings(write(embeddings(500, seed=0), "npy", "known")))
    score_file(open_embeddings(write(z, "npy")), reference, tmp_path / "scores.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "scores.jsonl").read_text().splitlines()]
    nothing = {"norm": None, "score": None, "novelty": None, "status": "zero"}
    assert lines[3] == {"id": 3, **nothing}
    assert lines[4]["score"] >= 0
