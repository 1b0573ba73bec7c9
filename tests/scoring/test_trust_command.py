"""`normscope score` by neighbours, direction and norm: columns, verdict, ranks, pictures, files."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

from normscope.cli import app, run
from normscope.confidence import EmbeddingTrust
from normscope.scoring import (
    Tally,
    as_source,
    fit_trust,
    load_reference,
    open_embeddings,
    score_batch,
    score_file,
)
from normscope.scoring.sample import Sample

from .conftest import KINDS, embeddings, table, write_file

D = 8


def clustered(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows around three directions, some far from theirs, and whose they are."""
    random = np.random.default_rng(seed)
    labels = random.integers(3, size=rows)
    width = random.uniform(0.2, 1.2, (rows, 1))
    z = np.eye(3, D)[labels] * 3 + random.normal(size=(rows, D)) * width
    return (z * random.uniform(0.7, 1.4, (rows, 1))).astype(np.float32), labels


def scores(path: Path) -> dict[str, np.ndarray]:
    found = pq.read_table(path).to_pandas()
    return {name: found[name].to_numpy() for name in found}


@pytest.fixture
def files(tmp_path: Path, monkeypatch) -> Path:
    """Old and new rows, the last 20 of which are strange, in the current folder."""
    monkeypatch.chdir(tmp_path)
    old, labels = clustered(600, 0)
    new, _ = clustered(100, 1)
    new[80:] = embeddings(20, seed=2) - 1.5
    np.save("old.npy", old)
    np.save("labels.npy", np.array(["cat", "dog", "cow"])[labels])
    np.save("new.npy", new)
    np.save("bad.npy", embeddings(60, seed=3) - 1.5)
    return tmp_path


def command(*words: str) -> None:
    app(["score", *words], standalone_mode=False)


def test_the_command_delivers_what_embedding_trust_does(files: Path, capsys) -> None:
    command("new.npy", "--reference", "old.npy", "--labels", "labels.npy")
    told = capsys.readouterr().out.splitlines()
    trust = EmbeddingTrust.fit(np.load("old.npy"), np.load("labels.npy"))
    new = np.load("new.npy")
    found = scores(files / "new.scores.parquet")
    assert list(found) == ["id", "norm", "score", "novelty", "confidence", "status"]
    np.testing.assert_allclose(found["novelty"], trust.novelty(new), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(found["score"], 2.0 ** -trust.novelty(new), rtol=1e-3)
    np.testing.assert_allclose(found["confidence"], trust.confidence(new), rtol=1e-3)
    assert told[: len(told) - 1] == str(trust.verdict).splitlines()
    assert "look new (score below .05)" in told[-1]


def test_every_format_gives_the_same_trust_with_a_covariate(tmp_path: Path) -> None:
    old, new = clustered(400, 0)[0], clustered(90, 1)[0]
    lengths = np.random.default_rng(0).uniform(1, 9, 400), np.linspace(2, 8, 90)
    expected = None
    for i, kind in enumerate(KINDS):
        suffix = f"{'.stream' * (kind == 'arrow-list')}.{kind.split('-')[0]}"
        paths = []
        for name, rows, length in zip("on", (old, new), lengths, strict=True):
            paths.append(write_file(tmp_path / f"{name}{i}{suffix}", rows, kind, length=length))
        sources = [open_embeddings(path, covariates=["length"]) for path in paths]
        score_file(sources[1], fit_trust(sources[0]), tmp_path / "scores.parquet")
        found = scores(tmp_path / "scores.parquet")
        expected = expected or found
        for name in ("norm", "score", "novelty"):
            np.testing.assert_allclose(found[name], expected[name], rtol=2e-3, atol=2e-3)


def test_rows_are_kept_and_ranked_by_what_is_delivered(files: Path, capsys) -> None:
    words = ["new.npy", "--reference", "old.npy", "--html", "--keep", "0.8"]
    command(*words)
    found = scores(files / "new.scores.parquet")
    kept = pq.read_table("new.kept.parquet")["id"].to_pylist()
    assert kept == np.sort(np.argsort(found["novelty"], kind="stable")[:80]).tolist()
    assert len(set(kept) & set(range(80, 100))) <= 2  # the strange ones
    page = Path("new.scores.html").read_text()
    least = page[page.index("Rows to trust least</h2>") :]
    assert (
        f'<td class="">{found["novelty"].argmax()}</td>' in least[: least.index("</tr>\n<tr>", 400)]
    )
    assert page.index("Novelty is ") < page.index("<table>")
    command(*words, "--labels", "labels.npy", "--force")
    assert "80 rows kept, by confidence" in capsys.readouterr().out
    found = scores(files / "new.scores.parquet")
    kept = pq.read_table("new.kept.parquet")["id"].to_pylist()
    assert kept == np.sort(np.argsort(-found["confidence"], kind="stable")[:80]).tolist()


@pytest.mark.usefixtures("files")
def test_rows_are_not_kept_by_a_confidence_that_ranks_none(capsys) -> None:
    np.save("labels.npy", np.random.default_rng(9).integers(3, size=600))
    words = ["score", "new.npy", "--reference", "old.npy", "--labels", "labels.npy"]
    with pytest.raises(SystemExit, match="2"):
        run(lambda: app([*words, "--threshold", "0.5"]))
    assert "confidence must rank rows for --keep and --threshold" in capsys.readouterr().err
    assert not list(Path.cwd().glob("*scores*"))


@pytest.mark.usefixtures("files")
def test_known_bad_rows_choose_the_parts(capsys) -> None:
    command("new.npy", "--reference", "old.npy", "--known-bad", "bad.npy")
    told = capsys.readouterr().out
    assert "the distance to neighbours tells known bad rows from others" in told
    assert "known bad rows" in told.splitlines()[0]


@pytest.mark.parametrize(("parts", "suffix"), [("all", ".safetensors"), ("norm", ".npz")])
def test_a_saved_reference_gives_the_same_scores(files: Path, parts: str, suffix: str) -> None:
    saved = f"fit{suffix}"
    words = ["new.npy", "--reference", "old.npy", "--parts", parts, "--save-reference", saved]
    command(*words, "--labels", "labels.npy")
    command("new.npy", "--reference", saved, "--out", "again.parquet")
    one, other = scores(files / "new.scores.parquet"), scores(files / "again.parquet")
    assert list(one) == list(other)
    for name, column in one.items():
        np.testing.assert_array_equal(column, other[name])


@pytest.mark.usefixtures("files")
def test_a_sample_of_the_reference_is_stated_and_drawn_by_a_seed(capsys) -> None:
    for out in ("one.parquet", "other.parquet"):
        command("new.npy", "--reference", "old.npy", "--reference-rows", "300", "--out", out)
        told = capsys.readouterr().out
        assert "The reference is 300 of its 600 rows, drawn by seed 0." in told
    assert pq.read_table("one.parquet") == pq.read_table("other.parquet")


def test_a_covariate_beyond_the_reference_is_named(tmp_path: Path) -> None:
    old, new = clustered(400, 0)[0], clustered(50, 1)[0]
    new[4] = 0
    length = np.linspace(2, 8, 50)
    length[3], length[5] = 100, np.nan
    given = {"length": np.random.default_rng(0).uniform(1, 9, 400)}
    fitted = fit_trust(as_source(old, covariates=given))
    source = as_source(new, covariates={"length": length})
    summary = score_file(source, fitted, tmp_path / "scores.parquet")
    found = scores(tmp_path / "scores.parquet")
    assert found["status"][3:6].tolist() == ["outside", "zero", "covariate"]
    assert np.isnan(found["score"][4:6]).all()
    assert np.isfinite(found["score"][[3, 6]]).all()
    assert summary.statuses == {"zero": 1, "covariate": 1, "outside": 1}


def test_normalised_rows_are_judged_by_their_direction(tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, seed in (("old", 0), ("new", 1)):
        z = clustered(300, seed)[0]
        np.save(f"{name}.npy", z / np.linalg.norm(z, axis=1, keepdims=True))
    command("new.npy", "--reference", "old.npy", "--html")
    told = capsys.readouterr()
    assert "norms carry nothing here" in told.err
    assert "the norm" not in told.out.splitlines()[0]
    np.save("raw.npy", clustered(300, 0)[0])
    with pytest.raises(ValueError, match=r"new\.npy must be raw, as the reference was"):
        command("new.npy", "--reference", "raw.npy", "--force")


def test_pictures_are_shown_and_missing_or_damaged_ones_are_not(files: Path) -> None:
    new = np.load("new.npy")[-30:]
    names = [f"picture {i}.png" for i in range(30)]
    (files / "data").mkdir()
    for i, name in enumerate(names):
        if i % 3:
            Image.new("RGB", (300, 200), (8 * i, 0, 0)).save(files / "data" / name)
    (files / "data" / names[3]).write_bytes(b"\x89PNG\r\n damaged")
    names[6], names[9] = "/dev/zero", "data"
    rows = pa.table({"file": names, "embedding": list(new)})
    pq.write_table(rows, "data/new.parquet")
    command("data/new.parquet", "--reference", "old.npy", "--images", "file", "--html")
    page = (files / "data" / "new.scores.html").read_text()
    assert page.count('<img src="data:image/jpeg;base64,') == 26
    assert page.count("no picture") == 14
    assert len(page) < 500_000


def test_the_page_shows_the_text_beside_what_rows_are_ranked_by(files: Path) -> None:
    rows = {"words": [f"sentence {i}" for i in range(100)], "embedding": list(np.load("new.npy"))}
    pq.write_table(pa.table(rows), "new.parquet")
    words = ["new.parquet", "--reference", "old.npy", "--text", "words", "--html"]
    command(*words, "--labels", "labels.npy", "--known-bad", "bad.npy")
    page = (files / "new.scores.html").read_text()
    heads = [f">{name}</th>" for name in ("id", "confidence", "text", "score", "norm")]
    assert sorted(heads, key=page.index) == heads
    assert '<p class="item">the distance to neighbours tells known bad rows' in page
    assert "Numbers behind a part are its AUROC" in page
    command("new.parquet", "--reference", "old.npy", "--out", "plain.parquet", "--html")
    page = (files / "plain.html").read_text()
    assert not any(words in page for words in ("confidence</th>", "text</th>", "AUROC"))


@pytest.mark.usefixtures("files")
def test_a_file_that_is_not_there_is_named_before_the_place_of_its_scores() -> None:
    names = {"no.npy": "no.npy must be a file", "*.npz": "a pattern that", "": "that are not empty"}
    for name, message in names.items():
        with pytest.raises(ValueError, match=message):
            command(name, "--reference", "old.npy")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--parts", "neighbours"], "--parts must be all or norm, got 'neighbours'"),
        (["--parts", "norm", "--known-bad", "bad.npy"], "--parts must be all with --known-bad"),
        (["--reference-rows", "5"], "--reference-rows must be at least 20, got 5"),
        (["--images", "x"], "--images must be left out without --html"),
        (["--keep", "1.5"], "keep must be a share above 0, at most 1, got 1.5"),
        (["--keep", "nan"], "keep must be a share above 0, at most 1, got nan"),
        (["--threshold", "nan"], "threshold must be a number, got nan"),
        (["--threshold", "2"], "threshold must be a score that some row reaches, got '2.0 where"),
        (["--keep", "0.5", "--threshold", "0.5"], "keep must be one of a share and a threshold"),
        (["--keep", "0.5", "--covariate", "e0"], "covariate must be named otherwise than kept"),
        (["--keep", "0.5", "--covariate", "status"], "covariate must be named otherwise than"),
        (["--known-bad", "few.npy"], "known_bad must be at least 20 rows, got 9"),
        (
            ["--known-bad", "narrow.npy"],
            "known_bad must be of 8 columns, as the reference is, got 3",
        ),
        (["--known-bad", "none.npy"], "No such file"),
        (["--reference", "few.npy"], "reference must be at least 20 rows, got 9"),
        (["--reference", "fit.safetensors", "--parts", "all"], "got one that is fitted"),
        (["--reference", "hurt.safetensors"], "must be a file that EmbeddingTrust.save wrote"),
        (["--labels", "one.npy"], "labels must be of two classes or more"),
    ],
)
def test_what_makes_no_sense_is_one_line(files: Path, capsys, words, message: str) -> None:
    old = np.load("old.npy")
    np.save("few.npy", old[:9])
    np.save("narrow.npy", old[:, :3].copy())
    np.save("one.npy", np.zeros(600, int))
    EmbeddingTrust.fit(old).save("fit.safetensors")
    content = bytearray(Path("fit.safetensors").read_bytes())
    content[-100] ^= 1
    Path("hurt.safetensors").write_bytes(content)
    before = {path.name for path in files.iterdir()}
    words = words if "--reference" in words else ["--reference", "old.npy", *words]
    with pytest.raises(SystemExit, match="2"):
        run(lambda: app(["score", "new.npy", *words]))
    told = capsys.readouterr()
    assert message in told.err
    assert told.err.count("\n") == 1
    assert not told.out
    assert {path.name for path in files.iterdir()} == before


def test_a_record_batch_has_the_scores_of_its_file(tmp_path: Path) -> None:
    old, labels = clustered(400, 0)
    fitted = fit_trust(as_source(old), labels=labels)
    fitted.save(tmp_path / "fit.safetensors")
    again = load_reference(tmp_path / "fit.safetensors")
    new = clustered(90, 1)[0]
    score_file(as_source(new), fitted, tmp_path / "scores.parquet")
    expected = scores(tmp_path / "scores.parquet")
    for batch in table(new, "fixed", {}).to_batches():
        found = score_batch(batch, again).to_pydict()
        assert list(found) == [name for name in expected if name != "id"]
        np.testing.assert_allclose(found["confidence"], expected["confidence"], rtol=1e-5)


def test_tallies_and_samples_of_parts_merge_to_those_of_the_whole() -> None:
    old, labels = clustered(400, 0)
    fitted = fit_trust(as_source(old), labels=labels)
    blocks = [
        block for part in np.split(clustered(900, 1)[0], 9) for block in as_source(part).blocks()
    ]
    columns = [
        {"id": np.arange(100 * i, 100 * i + 100), **fitted.columns(b)} for i, b in enumerate(blocks)
    ]
    whole, parts = Tally(delivers="confidence"), [Tally(delivers="confidence") for _ in range(2)]
    drawn, samples = Sample(50), [Sample(50), Sample(50)]
    for i, (block, column) in enumerate(zip(blocks, columns, strict=True)):
        whole.add(column)
        drawn.take(block, 100 * i, np.ones(100, bool))
        j = (7 * i) % 2
        parts[j].add(column, start=100 * i)
        samples[j].take(block, 100 * i, np.ones(100, bool))
    parts[0].merge(parts[1])
    samples[0].merge(samples[1])
    one, other = whole.summary(fitted.share_up_to), parts[0].summary(fitted.share_up_to)
    assert (one.rows, one.low, one.highest, one.lowest) == (
        other.rows,
        other.low,
        other.highest,
        other.lowest,
    )
    np.testing.assert_allclose(one.norms.shares, other.norms.shares)
    np.testing.assert_array_equal(drawn.drawn()[0], samples[0].drawn()[0])
    np.testing.assert_array_equal(drawn.drawn()[1].z, samples[0].drawn()[1].z)
    assert len(drawn.drawn()[0]) == 50


def test_each_row_is_drawn_as_often_as_others() -> None:
    times = np.zeros(100)
    for seed in range(400):
        sample = Sample(20, seed=seed)
        for i, block in enumerate(as_source(torch.ones(100, 2)).blocks()):
            sample.take(block, 100 * i, np.ones(100, bool))
        times[sample.drawn()[0]] += 1
    assert abs((times - 80) / np.sqrt(400 * 0.2 * 0.8)).max() < 4.5
    assert times.sum() == 400 * 20


def test_rows_of_the_reference_itself_have_even_p_values(tmp_path: Path) -> None:
    z, labels = clustered(1000, 0)
    np.save(tmp_path / "z.npy", z)
    pq.write_table(table(z, "list", {}), tmp_path / "z.parquet")
    whole = open_embeddings(tmp_path / "z.npy")
    fitted, few = fit_trust(whole, labels=labels), fit_trust(whole, most=500)
    for name in ("z.npy", "z.parquet"):  # the same rows, wherever they come from
        summary = score_file(open_embeddings(tmp_path / name), fitted, tmp_path / "all.parquet")
        assert (summary.own, summary.copies) == (1000, 0)
        score = scores(tmp_path / "all.parquet")["score"]
        for share in (0.05, 0.2, 0.5):
            assert (score < share).mean() == pytest.approx(share, abs=0.015)
    alone = fitted.confidence
    assert isinstance(alone, EmbeddingTrust)
    sure = scores(tmp_path / "all.parquet")["confidence"]
    assert (sure < alone.confidence(z) - 1e-6).mean() > 0.5  # a row's own vote is not counted
    summary = score_file(whole, few, tmp_path / "few.parquet")
    assert (summary.own, summary.copies) == (500, 0)  # those that were drawn
    assert summary.low == pytest.approx(0.05, abs=0.02)
    later = score_file(as_source(z[100:]), fitted, tmp_path / "later.parquet")
    assert (later.own, later.copies) == (0, 900)  # of other numbers: they may be other rows
    longer = score_file(as_source(2 * z), fitted, tmp_path / "longer.parquet")
    assert (longer.own, longer.copies) == (0, 1000)


def test_one_row_is_scored_as_it_is_among_others(files: Path) -> None:
    command("new.npy", "--reference", "old.npy", "--out", "all.parquet")
    np.save("one.npy", np.load("new.npy")[:1])
    command("one.npy", "--reference", "old.npy", "--out", "one.parquet", "--html", "--keep", "1")
    for name, column in scores(files / "one.parquet").items():
        if name != "status":
            expected = scores(files / "all.parquet")[name][:1]
            np.testing.assert_allclose(column, expected, rtol=1e-5)


def test_rows_that_the_reference_holds_are_named(files: Path, capsys) -> None:
    command("old.npy", "--reference", "old.npy", "--save-reference", "fit.safetensors", "--html")
    words = "600 rows of FILE are also in the reference: each was left out of it"
    assert words in capsys.readouterr().err
    assert words in (files / "old.scores.html").read_text()
    command("old.npy", "--reference", "fit.safetensors", "--out", "again.csv")
    assert (
        "Warning: 600 rows of FILE have a row of the same direction in the reference"
        in capsys.readouterr().err
    )
    command("new.npy", "--reference", "old.npy")
    assert "reference" not in capsys.readouterr().err


def test_ids_are_of_the_scored_file_alone(files: Path) -> None:
    rows = pa.table(
        {"key": [f"row {i}" for i in range(100)], "embedding": list(np.load("new.npy"))}
    )
    pq.write_table(rows, "new.parquet")
    command("new.parquet", "--reference", "old.npy", "--id", "key")
    assert scores(files / "new.scores.parquet")["id"][7] == "row 7"
