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
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
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
