"""A bank's neighbours are those of a plain search, without the row itself, in every way."""

import pytest
import torch
from torch.nn.functional import normalize

from normscope.evaluation import bank as module
from normscope.evaluation.bank import Bank, chosen_search
from normscope.evaluation.mahalanobis import Cluster


def directions(n: int, d: int = 6, seed: int = 0) -> torch.Tensor:
    return normalize(torch.randn(n, d, generator=torch.Generator().manual_seed(seed)))


def test_neighbours_are_those_of_a_plain_search(monkeypatch) -> None:
    monkeypatch.setattr(module, "_AT_ONCE", 7)
    known, asked, seen = directions(50), directions(20, seed=1), []
    found = Bank.of(known, way="exact").nearest(
        asked, k=4, progress=lambda done, total: seen.append((done, total))
    )
    cosine, rows = (asked @ known.T).topk(4)
    torch.testing.assert_close(found.distance, 1 - cosine, atol=1e-6, rtol=1e-5)
    assert torch.equal(found.rows, rows)
    assert seen == [(7, 20), (14, 20), (20, 20)]


@pytest.mark.parametrize("way", ["exact", "faiss"])
def test_no_row_is_its_own_neighbour_and_its_copies_are(way) -> None:
    once = directions(60)
    known = torch.cat([once, once[:30]])
    own = torch.arange(90)
    found = Bank.of(known, way=way).nearest(known, k=5, own=own)
    assert not (found.rows == own[:, None]).any()
    copied = torch.cat([own[:30], own[60:]])
    assert found.distance[copied, 0].max() < 1e-6
    assert found.distance[30:60, 0].min() > 1e-4
    assert (found.distance.diff(dim=1) >= -1e-6).all()
    many = directions(1).repeat(8, 1)  # its equals may crowd a row out of its own neighbours
    assert Bank.of(many, way="exact").nearest(many, k=3, own=torch.arange(8)).rows.shape == (8, 3)


def test_faiss_finds_nearly_all_neighbours() -> None:
    known, asked = directions(4000, 16), directions(50, 16, seed=1)
    exact = Bank.of(known, way="exact").nearest(asked, k=10)
    near = Bank.of(known, way="faiss").nearest(asked, k=10)
    shared = (exact.rows[:, :, None] == near.rows[:, None, :]).any(2)
    assert shared.double().mean() > 0.8
    assert (near.distance >= exact.distance - 1e-6).all()


def test_missing_neighbours_are_as_far_as_can_be(monkeypatch) -> None:
    monkeypatch.setattr(module, "_PROBED", 1)
    known = torch.cat([directions(78), -directions(2)])
    found = Bank.of(known, way="faiss").nearest(known[:3], k=79)
    assert found.distance.max() == 2
    assert found.rows.min() >= 0


def test_the_search_is_chosen_by_size(monkeypatch) -> None:
    assert chosen_search("auto", rows=module.MOST) == ("exact", module.MOST)
    assert chosen_search("auto", rows=module.MOST + 1) == ("faiss", module.MOST + 1)
    assert chosen_search("sample", rows=10**6) == ("exact", module.MOST)
    assert chosen_search("exact", rows=10**6) == ("exact", 10**6)
    monkeypatch.setattr(module.importlib.util, "find_spec", {}.get)
    assert chosen_search("auto", rows=module.MOST + 1) == ("exact", module.MOST)


@pytest.mark.parametrize(("rows", "columns"), [(40, 5), (20, 60)])
def test_left_out_distance_is_that_to_the_other_rows(rows: int, columns: int) -> None:
    torch.manual_seed(0)
    z = torch.randn(rows, columns, dtype=torch.float64) @ torch.randn(columns, columns).double()
    cluster = Cluster.of(z)
    expected = []
    for i in range(rows):
        others = z[torch.arange(rows) != i]
        x = others - others.mean(0)
        shrunk = (1 - cluster.share) * x.T @ x / len(x)
        shrunk += cluster.share * cluster.level * torch.eye(columns).double()
        away = z[i] - others.mean(0)
        expected.append(away @ torch.linalg.solve(shrunk, away))
    torch.testing.assert_close(cluster.left_out(z), torch.stack(expected), rtol=1e-8, atol=0)
