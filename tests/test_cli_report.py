"""report and score --html as a user meets them: pages, refusals, nothing lost."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from normscope.cli import app, run
from normscope.confidence.norm_confidence import NormConfidence
from normscope.engine import RunFolder
from normscope.report.html import is_page
from normscope.scoring import FittedReference, open_embeddings, score_file
from normscope_paper.harness import Results, Sweep, reproduce


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    """A folder with two runs, of which none is evaluated."""
    folder = tmp_path_factory.mktemp("runs")
    words = ["train", "simclr", "--epochs", "1", "--device", "cpu", "--quiet"]
    app([*words, "--out", str(folder / "first")], standalone_mode=False)
    shutil.copytree(folder / "first", folder / "second <b>")
    return folder


@pytest.fixture(scope="module")
def stored(tmp_path_factory) -> Path:
    """A folder of results, one of them false."""
    folder = tmp_path_factory.mktemp("results")
    for name in ("fig1", "convergence_rate"):
        reproduce(name, scale="smoke", seed=0, seeds=None, folder=folder, sweep=Sweep())
    return folder


def refused(words: list[str], capsys) -> str:
    """The one line that a command refuses with."""
    with pytest.raises(SystemExit, match="2"):
        run(lambda: app(words))
    (line,) = capsys.readouterr().err.splitlines()
    return line


def test_several_runs_are_compared_on_one_page(runs: Path, capsys) -> None:
    app(["report", str(runs / "first"), str(runs / "second <b>")], standalone_mode=False)
    page = runs / "report.html"
    assert capsys.readouterr().out == f"Open {page.resolve().as_uri()}\n"
    text = page.read_text()
    assert text.count("<img") == 5
    assert '<td class="">second &lt;b&gt;</td>' in text
    assert "None of them was evaluated yet" in text
    assert text.count("normscope train simclr --data digits") == 2


def test_runs_of_one_name_are_told_apart_and_need_an_out(
    runs: Path, tmp_path: Path, capsys
) -> None:
    other = tmp_path / "elsewhere" / "first"
    shutil.copytree(runs / "first", other)
    words = ["report", str(runs / "first"), str(other)]
    assert "--out must be given" in refused(words, capsys)
    app([*words, "--out", str(tmp_path / "new" / "page.html")], standalone_mode=False)
    assert "elsewhere/first" in (tmp_path / "new" / "page.html").read_text()


def test_results_are_judged_and_drawn_anew(stored: Path) -> None:
    app(["report", str(stored)], standalone_mode=False)
    text = (stored / "report.html").read_text()
    assert text.count("<img") == 2
    assert '<td class="yes">reproduced</td>' in text
    assert '<td class="no">not reproduced</td>' in text
    assert "normscope reproduce fig1 --scale smoke --seed 0 --seeds 1" in text
    assert f"numpy {Results.load(stored / 'fig1.smoke.json').made.versions['numpy']}" in text


def test_results_files_make_a_page_of_their_own(stored: Path, tmp_path: Path) -> None:
    page = tmp_path / "fig1.html"
    app(["report", str(stored / "fig1.smoke.json"), "--out", str(page)], standalone_mode=False)
    assert page.read_text().count("<img") == 1


@pytest.mark.parametrize(
    "change", [{"data": {"x": 1}}, {"experiment": "fig9"}, {"provenance": {}}, {"more": 1}]
)
def test_a_foreign_result_is_named(stored: Path, tmp_path: Path, capsys, change: dict) -> None:
    content = json.loads((stored / "fig1.smoke.json").read_text()) | change
    path = tmp_path / "fig1.smoke.json"
    path.write_text(json.dumps(content))
    line = refused(["report", str(path)], capsys)
    assert "must be" in line
    assert "fig1" in line
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_a_page_is_replaced_but_no_other_file(runs: Path, tmp_path: Path, capsys) -> None:
    folder = tmp_path / "run"
    shutil.copytree(runs / "first", folder)
    page = folder / "report.html"
    page.write_text("<p>mine</p>")
    assert "--force replaces it" in refused(["report", str(folder)], capsys)
    assert page.read_text() == "<p>mine</p>"
    app(["report", str(folder), "--force"], standalone_mode=False)
    assert is_page(page)
    before = page.stat().st_mtime_ns
    app(["report", str(folder)], standalone_mode=False)
    assert page.stat().st_mtime_ns > before
    assert not list(folder.glob(".*partial"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere"], "RUN must be a run's folder, a results folder or a result's JSON file"),
        (["empty"], "got 'empty'"),
        (["note.txt"], "got 'note.txt'"),
        (["run", "note.txt"], "got 'note.txt'"),
        (["run", "fig1.smoke.json"], "RUN and RESULTS must be on separate pages"),
        (["note.json"], "must be a file that `reproduce` wrote"),
        (["run", "--out", "page.pdf"], "--out must be a file ending in .html"),
        (["run", "--out", "folder.html"], "--out must be a file ending in .html"),
        (["run", "--out", "note.txt/page.html"], "--out must be writable"),
    ],
)
def test_what_has_no_page_is_one_line(
    runs: Path, stored: Path, tmp_path: Path, monkeypatch, capsys, words: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").symlink_to(runs / "first")
    (tmp_path / "fig1.smoke.json").symlink_to(stored / "fig1.smoke.json")
    for name in ("empty", "folder.html"):
        (tmp_path / name).mkdir()
    (tmp_path / "note.txt").write_text("a note")
    (tmp_path / "note.json").write_text("{}")
    assert message in refused(["report", *words], capsys)


def test_help_keeps_its_examples(capsys) -> None:
    with pytest.raises(SystemExit, match="0"):
        app(["report", "--help"])
    told = capsys.readouterr().out
    assert "normscope report results/density.paper.json --out density.html" in told
    assert "\\b" not in told


def embeddings(rows: int, seed: int) -> np.ndarray:
    random = np.random.default_rng(seed)
    return (random.standard_normal((rows, 8)) * random.gamma(9, 1, (rows, 1))).astype(np.float32)


def test_score_leaves_a_page_beside_the_scores(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    z = embeddings(1000, seed=1)
    z[3], z[4] = np.nan, 0
    z[7] *= 1000
    np.savez("new.npz", embeddings=z, id=np.array([f"<b>{i}</b>" for i in range(1000)]))
    np.save("known.npy", embeddings(500, seed=0))
    words = ["score", "new.npz", "--reference", "known.npy", "--out", "scores.csv", "--html"]
    app(words, standalone_mode=False)
    page = tmp_path / "scores.html"
    assert f"Open {page.resolve().as_uri()}" in capsys.readouterr().out
    text = page.read_text()
    assert text.count("<img") == 2
    assert '<td class="number">998</td>' in text
    assert "NaN in the embedding, no score" in text
    least = text[text.index("<h2>Rows to trust least") :]
    first = least[least.index("<tbody>") : least.index("</tr>\n<tr>", least.index("<tbody>"))]
    assert "&lt;b&gt;7&lt;/b&gt;" in first
    assert "<b>" not in text


def test_score_never_writes_over_a_page_unasked(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("new.npy", embeddings(100, seed=1))
    Path("new.scores.html").write_text("old")
    words = ["score", "new.npy", "--reference", "new.npy", "--html"]
    assert "--html must make a new file" in refused(words, capsys)
    assert {p.name for p in tmp_path.iterdir()} == {"new.npy", "new.scores.html"}
    app([*words, "--force"], standalone_mode=False)
    assert is_page(Path("new.scores.html"))


def test_score_page_names_covariates_and_warnings(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    length = np.random.default_rng(2).uniform(1, 10, 2000)
    z = embeddings(2000, seed=0)
    z *= (length / np.linalg.norm(z, axis=1))[:, None]
    z *= np.random.default_rng(3).uniform(0.9, 1.1, (2000, 1))
    np.savez("z.npz", embeddings=z.astype(np.float32), length=length)
    words = ["score", "z.npz", "--reference", "z.npz", "--covariate", "length", "--html"]
    app([*words, "--parts", "norm", "--save-reference", "fit.npz"], standalone_mode=False)
    text = next(tmp_path.glob("*.html")).read_text()
    assert "length explains 9" in text
    assert "compared given covariates" in text


@pytest.mark.parametrize("parts", [1, 3])
def test_what_is_kept_of_a_stream_is_what_all_its_rows_give(tmp_path: Path, parts: int) -> None:
    rows = 65_536 * (parts - 1) + 5000
    z = embeddings(rows, seed=1)
    z[11] = 0
    np.save(tmp_path / "z.npy", z)
    known = np.linalg.norm(embeddings(20_000, seed=0), axis=1) * 1.3
    reference = FittedReference(NormConfidence.from_norms(known))
    source = open_embeddings(tmp_path / "z.npy")
    found = score_file(source, reference, tmp_path / "scores.npz")
    with np.load(tmp_path / "scores.npz") as file:
        norm, score, order = file["norm"], file["score"], np.argsort(file["norm"], kind="stable")
    assert [row.id for row in found.lowest] == order[:20].tolist()
    assert [row.id for row in found.highest] == order[: rows - 1][::-1][:20].tolist()
    assert found.lowest[0].score == score[order[0]]
    assert found.scores.sum() == rows - 1
    np.testing.assert_array_equal(found.scores, np.histogram(score[order[:-1]], 20, (0, 1))[0])
    shown = found.norms
    assert shown is not None
    assert len(shown.shares) <= 60
    counts = np.histogram(norm[order[:-1]], shown.edges)[0]
    np.testing.assert_allclose(shown.shares, counts / (rows - 1), atol=1e-3)
    assert shown.shares.sum() > 0.99
    expected = np.histogram(known, shown.edges)[0] / len(known)
    np.testing.assert_allclose(shown.reference, expected, atol=1e-3)
    assert shown.edges[0] < np.quantile(norm[order[:-1]], 0.001)
    assert shown.edges[-1] > np.quantile(known, 0.999)


def test_a_file_without_any_score_has_a_page_too(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("z.npy", np.zeros((50, 8), np.float32))
    np.save("known.npy", embeddings(100, seed=0))
    words = ["score", "z.npy", "--reference", "known.npy", "--out", "z.csv", "--html"]
    app(words, standalone_mode=False)
    text = Path("z.html").read_text()
    assert "all zero, no score" in text
    assert "<img" not in text


def test_unfinished_runs_and_second_spellings_are_left_out(runs: Path, tmp_path, capsys) -> None:
    for name in ("first", "begun"):
        shutil.copytree(runs / "first", tmp_path / name)
    (tmp_path / "begun" / "result.json").unlink()
    words = [str(tmp_path / name) for name in ("first", "begun", "begun/../first")]
    app(["report", *words, "--out", str(tmp_path / "page.html")], standalone_mode=False)
    assert "left out, not finished" in capsys.readouterr().err
    assert "<h1>simclr on digits</h1>" in (tmp_path / "page.html").read_text()


def test_runs_that_differ_say_in_what(runs: Path, tmp_path: Path) -> None:
    words = ["train", "simclr", "--epochs", "1", "--seed", "7", "--device", "cpu", "--quiet"]
    app([*words, "--out", str(tmp_path / "other")], standalone_mode=False)
    folders = [str(runs / "first"), str(tmp_path / "other")]
    app(["report", *folders, "--out", str(tmp_path / "page.html")], standalone_mode=False)
    text = (tmp_path / "page.html").read_text()
    part = text[text.index("<h2>What differs") :]
    part = part[: part.index("</table>")]
    assert "seed" in part
    assert ">7</td>" in part
    assert "epochs" not in part


def test_a_diverged_run_is_not_the_best(runs: Path, tmp_path: Path) -> None:
    for name, knn in (("lost", None), ("good", 0.5)):
        shutil.copytree(runs / "first", tmp_path / name)
        path = tmp_path / name / "result.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"knn": knn}))
    folders = [str(tmp_path / name) for name in ("lost", "good")]
    app(["report", *folders, "--out", str(tmp_path / "page.html")], standalone_mode=False)
    assert "The best by kNN is good, with 50.0%." in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize("value", ["a", [1], {"a": 1}, True, 10**400])
def test_a_result_that_is_no_number_is_one_line(runs: Path, tmp_path, capsys, value) -> None:
    shutil.copytree(runs / "first", tmp_path / "run")
    path = tmp_path / "run" / "result.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"seconds": value}))
    assert "must be as train wrote it" in refused(["report", str(tmp_path / "run")], capsys)


def test_a_fitted_reference_knows_its_covariates(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    length = random.uniform(1, 9, 500)
    z = random.normal(size=(500, 4)) * length[:, None]
    np.savez("all.npz", embeddings=z, length=length)
    words = ["score", "all.npz", "--out", "first.csv", "--reference", "all.npz"]
    options = ["--covariate", "length", "--parts", "norm", "--save-reference", "fit.npz"]
    app([*words, *options], standalone_mode=False)
    words = ["score", "all.npz", "--out", "second.csv", "--reference", "fit.npz"]
    app(words, standalone_mode=False)
    assert Path("first.csv").read_text() == Path("second.csv").read_text()
    (tmp_path / "folder.npz").mkdir()
    words = ["score", "all.npz", "--reference", "all.npz", "--save-reference", "folder.npz"]
    capsys.readouterr()
    assert "--save-reference must be" in refused([*words, "--force"], capsys)


def test_versions_that_are_no_text_are_shown_as_they_are(runs: Path, tmp_path: Path) -> None:
    run_folder = Path(shutil.copytree(runs / "first", tmp_path / "run"))
    about = json.loads((run_folder / "spec.json").read_text())
    about["versions"] = {"normscope": 3, "torch": ["a", None]}
    (run_folder / "spec.json").write_text(json.dumps(about))
    assert RunFolder(run_folder).made()["versions"] == {"normscope": "3", "torch": "['a', None]"}
    app(["report", str(run_folder)], standalone_mode=False)
    assert "normscope 3" in (run_folder / "report.html").read_text()


@pytest.mark.parametrize("version", [1, None, ["1.0"]])
def test_results_whose_version_is_no_text_are_refused_by_name(
    stored: Path, tmp_path: Path, capsys, version: object
) -> None:
    (path,) = stored.glob("fig1.*.json")
    values = json.loads(path.read_text())
    values["provenance"]["versions"]["normscope"] = version
    (tmp_path / path.name).write_text(json.dumps(values))
    line = refused(["report", str(tmp_path / path.name)], capsys)
    assert "it.provenance.versions.normscope must be a text" in line
