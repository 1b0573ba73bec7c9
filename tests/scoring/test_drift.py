"""Drift: false alarms are as rare as stated, real changes are found, and the command says so."""

import datetime
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from normscope.cli import app, run
from normscope.scoring import as_source, drift, drift_by, open_embeddings

from .conftest import WITH_COLUMNS, embeddings, write_file


def test_false_alarms_without_drift_are_as_rare_as_stated() -> None:
    runs, alarms, p = 150, 0, []
    for seed in range(runs):
        random = np.random.default_rng(seed)
        sizes = {"old": 240, "new": 120, "newer": 120}
        rows = {name: random.normal(size=(n, 4)) for name, n in sizes.items()}
        given = {name: {"length": random.normal(size=n)} for name, n in sizes.items()}
        found = drift(rows, covariates=given)
        alarms += found.drifts
        p += [q.p for window in found.windows[1:] for q in window.quantities.values()]
    assert alarms / runs <= 0.05 + 2.6 * np.sqrt(0.05 * 0.95 / runs)  # Holm's: any of eight
    each = np.mean(np.array(p) < 0.05)  # of one test: neither more often nor hardly ever
    assert 0.02 < each < 0.065


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("norm", lambda z: 1.2 * z),
        ("neighbours", lambda z: np.where(np.arange(8) < 4, z, 0.2 * z)),
        ("direction", lambda z: z + 0.4),
    ],
)
def test_a_change_of_one_kind_is_found(name: str, change) -> None:
    old, new = embeddings(600, seed=0).astype(float), embeddings(600, seed=1).astype(float)
    old, new = (z / np.linalg.norm(z, axis=1, keepdims=True) for z in (old, new))
    scale = np.random.default_rng(0).uniform(0.5, 2, (2, 600, 1))
    found = drift({"old": old * scale[0], "new": change(new) * scale[1]})
    assert found.windows[1].quantities[name].drifts
    assert name in found.verdict


def test_normalised_rows_are_compared_without_their_norms() -> None:
    z = embeddings(800, seed=0)
    unit = z / np.linalg.norm(z, axis=1, keepdims=True)
    found = drift({"old": unit[:400], "new": unit[400:]})
    assert set(found.windows[1].quantities) == {"neighbours", "direction"}
    assert "Norms are not compared" in found.notes[0]
    mixed = drift({"old": z[:400], "new": unit[400:]})
    assert mixed.drifts
    assert mixed.notes == ("Rows of new were normalised, and others were not.",)


def test_windows_of_time_find_when_a_change_came() -> None:
    z = embeddings(3000, seed=0)
    z[2000:] *= 2
    time = np.random.default_rng(0).permutation(3000)
    found = drift_by(as_source(z[time], covariates={"t": time}), "t", windows=3)
    assert [window.name for window in found.windows] == [
        "t 0 to 999",
        "t 1000 to 1999",
        "t 2000 to 2999",
    ]
    assert [window.rows for window in found.windows] == [1000] * 3
    assert [window.drifts for window in found.windows] == [False, False, True]


def test_rows_that_cannot_be_compared_are_counted_and_left_out() -> None:
    z = embeddings(300, seed=0)
    z[3], z[4] = np.nan, 0
    found = drift({"old": z, "new": embeddings(300, seed=1)})
    assert found.windows[0].left_out == {"nan": 1, "zero": 1}
    assert not found.drifts
    with pytest.raises(ValueError, match="new must be at least 20 rows that are finite"):
        drift({"old": z, "new": z[:15]})
    with pytest.raises(ValueError, match="new must be of 8 columns, as old is"):
        drift({"old": z, "new": z[:, :4]})


def test_the_same_rows_give_the_same_drift_however_they_are_read(tmp_path: Path) -> None:
    z, ids = embeddings(1500, seed=0), np.arange(1500)
    z[1000:] *= 1.3
    expected = None
    for kind in WITH_COLUMNS:
        path = write_file(
            tmp_path / f"{kind}{'.stream' * (kind == 'arrow-list')}.{kind.split('-')[0]}",
            z,
            kind,
            t=ids,
            length=ids % 7,
        )
        source = open_embeddings(path, covariates=["t", "length"])
        found = drift_by(source, "t", windows=3)
        expected = expected or found
        for one, other in zip(expected.windows, found.windows, strict=True):
            assert one.name == other.name
            for name, quantity in one.quantities.items():
                np.testing.assert_allclose(
                    quantity.levels, other.quantities[name].levels, rtol=1e-5, atol=1e-6
                )
                assert quantity.drifts == other.quantities[name].drifts


def test_the_command_writes_numbers_and_a_page(tmp_path: Path, monkeypatch, capsys) -> None:
    z = embeddings(2000, seed=0)
    z[1500:] *= 2
    start = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    time = [start + datetime.timedelta(hours=i) for i in range(2000)]
    pq.write_table(pa.table({"time": time, "embedding": list(z)}), tmp_path / "log.parquet")
    monkeypatch.chdir(tmp_path)
    words = ["drift", "log.parquet", "--by", "time", "--windows", "4"]
    app([*words, "--out", "drift.json", "--html", "drift.html"], standalone_mode=False)
    told = capsys.readouterr().out.splitlines()
    assert told[0].startswith(
        "Drift: norm moved strongly in 1 of 3 windows, most in 2026-03-04 12:00"
    )
    stored = json.loads(Path("drift.json").read_text())
    assert stored["verdict"] == told[0]
    assert [window["drift"] for window in stored["windows"]] == [False, False, False, True]
    page = Path("drift.html").read_text()
    assert "Drift was found in 1 of 3 later windows." in page
    parts = ("Drift: norm moved strongly", "<h2>Over the windows", "<table>")
    assert sorted(parts, key=page.index) == list(parts)
    assert "Holm" in page


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["a.npy"], "OLD NEW must be two sources or more"),
        (["a.npy", "a.npy"], "different sources"),
        (["a.npy", "./a.npy"], "different sources"),
        (["a.npz", "--by", "flat", "--windows", "0"], "windows must be at least two, got 0"),
        (["a.npz", "--by", "word"], "word of a.npz must be a number or a time for each of the 100"),
        (["a.npy", "b.npy", "--by", "t"], "--by must be given with one source, got 2"),
        (["a.npy", "b.npy", "--windows", "3"], "--windows must be given with --by"),
        (["a.npz", "--by", "none"], "a.npz must be a file with 'none'"),
        (["a.npz", "--by", "flat"], "flat must be a column of at least two times"),
        (["a.npy", "b.npy", "--out", "x.csv"], "--out must be a .json in a folder that exists"),
        (["a.npy", "b.npy", "--out", "old.json"], "--out must be a new file"),
        (["a.npy", "b.npy", "--html", "old.html"], "--html must make a new file"),
        (["a.npy", "narrow.npy"], "narrow.npy must be of 8 columns, as a.npy is"),
        (["a.npy", "few.npy"], "few.npy must be at least 20 rows"),
        (["a.npy", "missing.npy"], "No such file"),
    ],
)
def test_what_cannot_be_compared_is_one_line(
    tmp_path: Path, monkeypatch, capsys, words: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    z = embeddings(100, seed=0)
    for name, rows in (("a", z), ("b", z), ("narrow", z[:, :3].copy()), ("few", z[:9])):
        np.save(f"{name}.npy", rows)
    np.savez("a.npz", embeddings=z, flat=np.ones(100), word=np.full(100, "x"))
    for name in ("old.json", "old.html"):
        Path(name).write_text("old")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(SystemExit, match="2"):
        run(lambda: app(["drift", *words]))
    told = capsys.readouterr().err
    assert message in told
    assert told.count("\n") == 1
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("rows", [2000, 15_000])  # all of them are tested, and two thirds
def test_the_rows_of_the_first_window_are_refused_as_another(rows: int) -> None:
    z = embeddings(rows, seed=0, d=4)
    for again in (z.copy(), z[500:1900].copy()):
        with pytest.raises(ValueError, match="new must be of other rows than old, got 'the same"):
            drift({"old": z, "new": again})


def test_rows_that_are_in_both_windows_are_counted_and_do_not_drift() -> None:
    z = embeddings(2000, seed=0, d=4)
    found = drift({"old": z[:1500], "new": z[1000:]})
    assert not found.drifts
    assert "500 of the 1,000 tested rows of new are tested rows of old too." in found.notes[0]
    assert drift({"old": z, "new": np.abs(z)}).windows[1].quantities["neighbours"].drifts


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_times_are_the_same_in_every_unit_and_far_away(tmp_path: Path, unit: str) -> None:
    z = embeddings(4, seed=0)
    ticks = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    far = 2**62 // 10**9 * 10**9
    raw = np.array([0, 3 * ticks // 2, -86_400 * ticks, far])
    np.savez(tmp_path / "z.npz", embeddings=z, t=raw.view(f"M8[{unit}]"))
    table = pa.table({"t": pa.array(raw, pa.timestamp(unit)), "embedding": list(z)})
    with pa.ipc.new_file(tmp_path / "z.arrow", table.schema) as writer:
        writer.write_table(table)
    for name in ("z.npz", "z.arrow"):
        (block,) = open_embeddings(tmp_path / name, covariates=["t"]).blocks()
        np.testing.assert_array_equal(block.covariates["t"], raw / ticks)


def test_dates_have_the_seconds_of_their_first_hour(tmp_path: Path) -> None:
    days = np.array([0, 1, 20_000])
    for kind, raw in (("date32", days), ("date64", days * 86_400_000)):
        column = pa.array(raw).cast("int32" if kind == "date32" else "int64").cast(kind)
        table = pa.table({"t": column, "embedding": list(embeddings(3, seed=0))})
        pq.write_table(table, tmp_path / "z.parquet")
        (block,) = open_embeddings(tmp_path / "z.parquet", covariates=["t"]).blocks()
        np.testing.assert_array_equal(block.covariates["t"], days * 86_400.0)
