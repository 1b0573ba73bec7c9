"""Rows that are kept while a file of embeddings is not complete."""

import os
from pathlib import Path

import pytest
import torch

from normscope.engine import Embedded
from normscope.engine.begun_embeddings import BegunEmbeddings

ABOUT = {"encoder": "e", "images": "i", "batch": 2, "device": "cpu"}
ROWS = Embedded(torch.tensor([[3.0, 4.0], [0.0, 1.0]]), torch.tensor([5.0, 1.0]))


def begun(target: Path, *, resume: bool = True) -> BegunEmbeddings:
    return BegunEmbeddings(target, ABOUT, n=6, d=2, resume=resume, force=False)


def test_a_batch_that_is_on_the_disk_is_kept_though_ctrl_c_came_before_it_was_counted(
    tmp_path: Path, monkeypatch
) -> None:
    rows = begun(tmp_path / "x.npz")
    synced = list[int]()

    def interrupted(file: int) -> None:
        synced.append(file)
        if len(synced) == 2:  # the first was of what is broken
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", interrupted)
        with pytest.raises(KeyboardInterrupt):
            rows.append(ROWS, {1: "broken"})
    rows.close()
    again = begun(tmp_path / "x.npz")
    assert (again.done, again.broken) == (2, {1: "broken"})
    assert again.rows().tolist() == [[3.0, 4.0, 5.0], [0.0, 1.0, 1.0]]
    again.close()


def test_half_a_batch_is_computed_again(tmp_path: Path) -> None:
    rows = begun(tmp_path / "x.npz")
    rows.append(ROWS, {})
    rows.append(Embedded(ROWS.embeddings[:1], ROWS.norms[:1]), {2: "broken"})
    rows.close()
    again = begun(tmp_path / "x.npz")
    assert (again.done, again.broken) == (2, {})
    again.close()
    assert (tmp_path / "x.npz.begun" / "rows.f32").stat().st_size == 2 * 12


def test_nothing_is_left_where_nothing_was_done(tmp_path: Path) -> None:
    begun(tmp_path / "x.npz", resume=False).close()
    assert not list(tmp_path.iterdir())


def test_a_line_that_was_cut_is_not_added_to(tmp_path: Path) -> None:
    rows = begun(tmp_path / "x.npz")
    rows.append(ROWS, {1: "first"})
    rows.close()
    with (rows.folder / "broken.jsonl").open("a") as file:
        file.write('[3, "sec')  # as a crash may leave it, before the rows are there
    for row in (2, 4):
        again = begun(tmp_path / "x.npz")
        assert again.done == row
        again.append(ROWS, {row: "next"})
        again.close()
    again = begun(tmp_path / "x.npz")
    again.close()
    assert again.broken == {1: "first", 2: "next", 4: "next"}


@pytest.mark.parametrize("force", [False, True])
def test_two_processes_cannot_write_one_file(tmp_path: Path, force: bool) -> None:
    rows = begun(tmp_path / "x.npz", resume=False)
    rows.append(ROWS, {})
    with pytest.raises(ValueError, match="unused by other processes"):
        BegunEmbeddings(tmp_path / "x.npz", ABOUT, n=6, d=2, resume=not force, force=force)
    rows.append(ROWS, {})
    rows.close()
    again = begun(tmp_path / "x.npz")
    again.close()
    assert again.done == 4


def test_what_is_removed_when_it_is_complete_is_left_to_the_next_process(tmp_path: Path) -> None:
    rows = begun(tmp_path / "x.npz")
    rows.append(ROWS, {})
    rows.remove()
    other = begun(tmp_path / "x.npz")
    rows.close()
    other.append(ROWS, {})
    assert other.rows().tolist() == [[3.0, 4.0, 5.0], [0.0, 1.0, 1.0]]
    other.close()


def test_half_a_file_of_a_killed_process_is_removed(tmp_path: Path) -> None:
    partial, other = (tmp_path / f".{name}.npz.123.partial" for name in ("x[1]", "x1"))
    partial.touch()
    other.touch()
    begun(tmp_path / "x[1].npz").close()
    assert not partial.exists()
    assert other.exists()
