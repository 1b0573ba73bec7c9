"""The page of a run that the real commands trained and evaluated, in a real browser."""

import json
import shutil
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.main import get_command

from normscope.cli import app
from normscope.cli.spec_options import spec_from
from normscope.cli.train import train
from normscope.engine import RunFolder, RunSpec, evaluate_norms
from normscope.report.run_page import command, run_page

from .conftest import needs_browser

WORDS = ["--epochs", "2", "--cut", "3", "--set", "temperature=0.2", "--set", "momentum=0.8"]


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    trained = ["train", "simclr", *WORDS, "--device", "cpu", "--quiet", "--out", str(folder)]
    for words in (trained, ["evaluate", str(folder), "--device", "cpu"], ["report", str(folder)]):
        app(words, standalone_mode=False)
    return folder


@pytest.fixture
def copied(run: Path, tmp_path: Path) -> Callable[..., Path]:
    """The run's folder again, without some of its files."""

    def copy(*without: str) -> Path:
        folder = tmp_path / "copy"
        shutil.copytree(run, folder, ignore=shutil.ignore_patterns("checkpoint.pt", *without))
        return folder

    return copy


@needs_browser
@pytest.mark.parametrize("width", [1200, 390])
def test_the_page_shows_everything_and_asks_for_nothing(run: Path, browser, width: int) -> None:
    with browser(run / "report.html", width=width) as (tab, requests, problems):
        drawn = tab.evaluate("[...document.images].map((i) => i.naturalWidth)")
        overflow = tab.evaluate("document.documentElement.scrollWidth - window.innerWidth")
        titles = tab.locator("h2").all_inner_texts()
        gallery = tab.get_by_alt_text("Ten images of highest and of lowest norm").bounding_box()
        lead = tab.locator(".lead").inner_text()
    assert (requests, problems) == ([], [])
    assert overflow <= 0
    assert len(drawn) == 11
    assert min(drawn) > 0
    assert gallery["width"] > 600  # its box scrolls on a phone
    assert titles == [
        "Training",
        "Layers",
        "Norms of known and new images",
        "Norm as confidence",
        "Novelty",
        "Answering only when confident",
        "Images of highest and lowest norm",
        "Spec and command",
    ]
    for told in ("simclr on digits", "2 epochs", "cut by 3", "kNN", "on photographs", "AUROC"):
        assert told in lead


@needs_browser
def test_the_novelty_table_sorts_both_ways(run: Path, browser) -> None:
    with browser(run / "report.html") as (tab, _, problems):
        table = tab.locator("table").filter(has_text="AUPR in")
        found = []
        for _ in range(2):
            table.get_by_role("button", name="AUROC").click()
            cells = table.locator("tbody td:nth-child(4)").all_inner_texts()
            found.append([float(cell.split()[0]) for cell in cells])
        code = """(t) => [...t.tBodies[0].rows].map((r) => [r.cells[0].innerText, ...[3, 6].flatMap(
            (i) => [parseFloat(r.cells[i].innerText), r.cells[i].classList.contains("best")])])"""
        rows = table.evaluate(code)
    assert len(found[0]) == 36
    assert found == [sorted(found[0]), sorted(found[0], reverse=True)]
    for name in ("photographs", "negatives", "overlaid"):
        of_set = [row[1:] for row in rows if row[0] == name]
        assert {auroc for auroc, bold, _, _ in of_set if bold} == {max(r[0] for r in of_set)}
        assert {fpr for _, _, fpr, bold in of_set if bold} == {min(r[2] for r in of_set)}
    assert problems == []


def test_the_command_on_the_page_makes_the_same_run(run: Path) -> None:
    spec = RunFolder(run).spec()
    words = command(spec).split()
    assert f"<pre>{' '.join(words)}</pre>" in (run / "report.html").read_text()
    line = typer.Typer()
    line.command()(train)
    typed = get_command(line).make_context("train", words[2:]).params
    names = {f.name for f in fields(RunSpec)}
    options = {k: v for k, v in typed.items() if k in names}
    assert spec_from(options, typed["set_"], device="cpu").spec.hash == spec.hash


def test_a_run_that_was_not_evaluated_says_how_to(copied) -> None:
    folder = copied("evaluation.json", "gallery.npz", "embeddings.npz")
    text = run_page(folder).render()
    assert f"normscope evaluate {folder} adds the rest" in text
    assert text.count("<img") == 5


def test_human_labels_names_and_alarms_are_shown_and_escaped(copied) -> None:
    folder = copied()
    random = np.random.default_rng(0)
    norms, agree = random.gamma(9, 1, 2000), random.random(2000)
    found = json.loads((folder / "evaluation.json").read_text())
    found["confidence"]["consensus"] = evaluate_norms.against(norms, (agree < 0.9).astype(float))
    found["confidence"]["entropy"] = evaluate_norms.against(norms, agree)
    found["splits"] = {**found["splits"], "<i>new</i>": found["splits"]["test"]}
    (folder / "evaluation.json").write_text(json.dumps(found))
    pixels = random.integers(0, 256, (100, 10, 32, 32, 3), dtype=np.uint8)
    names = np.array([f"<b>class {i}</b>" for i in range(100)])
    right = np.ones((100, 10))
    np.savez(
        folder / "gallery.npz",
        highest=pixels,
        lowest=pixels,
        highest_correct=right,
        lowest_correct=right / 2,
        classes=names,
    )
    with (folder / "metrics.jsonl").open("a") as log:
        log.write(json.dumps({"kind": "alarm", "line": "step 7: <u>too long</u>"}) + "\n")
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    step = next(record for record in reversed(records) if record["kind"] == "step")
    with (folder / "metrics.jsonl").open("a") as log:
        log.write(json.dumps({**step, "rad_per_step": 0.75}) + "\n")
    text = run_page(folder).render()
    assert "Layers turned by at most 0.75 rad per step." in text
    assert text.count("<img") == 5 + 2 + 3 + 2 + 5  # twenty classes to a figure
    assert "human entropy, nats" in text
    assert "classes &lt;b&gt;class 80&lt;/b&gt; to &lt;b&gt;class 99" in text
    assert "step 7: &lt;u&gt;too long" in text
    assert "classifies 100% of those of highest norm right, 50% of those of lowest" in text
    assert not [mark for mark in ("<b>", "<u>", "<i>") if mark in text]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("evaluation.json", None, "as evaluate wrote it"),
        ("evaluation.json", b"{}", "evaluate .*copy again"),
        ("gallery.npz", None, "as evaluate wrote it"),
        ("gallery.npz", b"", "as evaluate wrote it"),
        ("metrics.jsonl", None, "as train wrote it"),
        ("metrics.jsonl", b"", "as train wrote it"),
        ("result.json", None, "as train wrote it"),
        ("spec.json", b"[]", "the folder of a run"),
    ],
)
def test_a_damaged_file_is_named(copied, name: str, content: bytes | None, message: str) -> None:
    folder = copied()
    whole = (folder / name).read_bytes()
    (folder / name).write_bytes(whole[: len(whole) // 2] if content is None else content)
    with pytest.raises(ValueError, match=f"must be.*{message}|{message}") as told:
        run_page(folder)
    assert (name if name != "spec.json" else str(folder)) in str(told.value)


@pytest.mark.parametrize("part", ["splits", "confidence", "layers", "novelty"])
@pytest.mark.parametrize("value", [None, "abc"])
def test_an_evaluation_without_its_parts_is_named(copied, part: str, value: object) -> None:
    folder = copied()
    path = folder / "evaluation.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {part: value}))
    with pytest.raises(ValueError, match=r"evaluation\.json must be as evaluate wrote it"):
        run_page(folder)


def test_names_that_look_like_formulas_and_environments_that_are_unknown(copied) -> None:
    folder = copied()
    with np.load(folder / "gallery.npz") as stored:
        arrays = dict(stored)
    arrays["classes"] = np.array([r"$\frac$"] * len(arrays["classes"]))
    np.savez(folder / "gallery.npz", **arrays)
    about = json.loads((folder / "spec.json").read_text())
    for name in ("versions", "hardware", "device"):
        del about[name]
    (folder / "spec.json").write_text(json.dumps(about))
    assert "Run on unknown, unknown" in run_page(folder).render()


def test_few_test_images_leave_the_calibration_out(copied) -> None:
    folder = copied()
    path = folder / "evaluation.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"calibration": None}))
    assert "Answering only" not in run_page(folder).render()


def test_a_run_that_is_not_finished_is_refused(copied) -> None:
    with pytest.raises(ValueError, match="run must be finished"):
        run_page(copied("result.json"))
