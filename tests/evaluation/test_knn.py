"""knn: against plain loops and scikit-learn, whatever the tiles, labels and formats."""

import json
import math
import subprocess
import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import load_digits
from sklearn.neighbors import KNeighborsClassifier
from torch import Tensor

from normscope.evaluation import KnnResult, knn

# One process: what a small call loads is loaded before the peak is counted.
PEAK = """
import json, sys, torch
from normscope.evaluation import knn

def status(key):
    line = next(line for line in open("/proc/self/status") if line.startswith(key))
    return 1024 * int(line.split()[1])

m, n, d, k = json.loads(sys.argv[1])
bank, queries, labels = torch.randn(m, d), torch.randn(n, d), torch.arange(m) % 10
knn(bank[:64], labels[:64], queries[:64], 3)
open("/proc/self/clear_refs", "w").write("5")  # forget the high-water mark
before = status("VmRSS")
result = knn(bank, labels, queries, k)
print(status("VmHWM") - before - 4 * result.scores.numel())
"""


def sample(m: int, n: int, d: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    bank = torch.randn(m, d, generator=generator, dtype=torch.float64)
    queries = torch.randn(n, d, generator=generator, dtype=torch.float64)
    return bank, torch.randint(-2, 3, (m,), generator=generator) * 10, queries


def loop(bank: Tensor, labels: Tensor, queries: Tensor, k: int, tau: float) -> list[list[float]]:
    """Scores by the definition: one query, one neighbour at a time."""
    classes = sorted(set(labels.tolist()))
    rows = []
    for q in queries:
        cosines = [((q @ b) / (q.norm() * b.norm())).item() for b in bank]
        nearest = sorted(range(len(bank)), key=lambda i: -cosines[i])[:k]
        votes = dict.fromkeys(classes, 0.0)
        for i in nearest:
            votes[int(labels[i])] += math.exp(cosines[i] / tau)
        rows.append([votes[c] / sum(votes.values()) for c in classes])
    return rows


@given(
    st.integers(1, 30), st.integers(1, 5), st.integers(2, 6), st.integers(0, 99), st.integers(1, 40)
)
def test_knn_equals_plain_loop_whatever_the_tiles(m, n, d, seed, block) -> None:
    bank, labels, queries = sample(m, n, d, seed)
    k = 1 + seed % m
    expected = torch.tensor(loop(bank, labels, queries, k, 0.3), dtype=torch.float64)
    for size in (block, None):
        result = knn(bank, labels, queries, k, 0.3, block=size)
        torch.testing.assert_close(result.scores, expected)
        assert torch.equal(result.classes, labels.unique())
        assert torch.equal(result.predictions, result.classes[expected.argmax(1)])


@given(st.integers(0, 99), st.integers(1, 60), st.integers(1, 70))
def test_knn_takes_any_of_equally_near_rows(seed: int, k: int, block: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    kinds = torch.eye(3)[torch.randint(3, (60,), generator=generator)]
    labels, queries = kinds.argmax(1), torch.tensor([[3.0, 2.0, 1.0]])
    near = (queries @ kinds.T / 14**0.5).squeeze(0).sort(descending=True, stable=True)
    votes = torch.zeros(3).index_add_(0, labels[near.indices[:k]], near.values[:k].exp())
    result = knn(kinds, labels, queries, k, 1.0, block=block)
    expected = (votes / votes.sum())[result.classes]  # a class may be in no row
    torch.testing.assert_close(result.scores[0], expected)


def test_knn_finds_the_same_in_several_default_tiles_as_in_one_matrix() -> None:
    bank, labels, queries = sample(40_000, 600, 8, 0)  # some 200 queries at a time, in float64
    u, v = (torch.nn.functional.normalize(x, dim=1) for x in (queries, bank))
    near = (u @ v.T).topk(50)
    votes = (near.values / 0.1).exp()
    column = torch.searchsorted(labels.unique(), labels)[near.indices]
    expected = torch.zeros(600, 5, dtype=torch.float64).scatter_add_(1, column, votes)
    result = knn(bank, labels, queries, 50)
    torch.testing.assert_close(result.scores, expected / votes.sum(1, keepdim=True))


def test_knn_at_high_temperature_is_scikit_learns_uniform_vote() -> None:
    x, y = load_digits(return_X_y=True)
    train = torch.arange(len(x)) % 4 != 0
    theirs = KNeighborsClassifier(11, metric="cosine").fit(x[train], y[train])
    features, labels = torch.tensor(x), torch.tensor(y)
    ours = knn(features[train], labels[train], features[~train], 11, 1e9)
    expected = torch.tensor(theirs.predict_proba(x[~train]))
    torch.testing.assert_close(ours.scores, expected, rtol=0, atol=1e-6)
    truth = labels[~train]
    # beyond the few even votes, which fall to either class
    even = (expected.sort(1).values[:, -1] - expected.sort(1).values[:, -2]) < 1e-6
    assert torch.equal(ours.predictions[~even], torch.tensor(theirs.predict(x[~train]))[~even])
    assert ours.accuracy(truth) > 0.97


def test_knn_feels_no_norms_even_extreme_ones() -> None:
    bank, labels, queries = (t.float() if t.is_floating_point() else t for t in sample(20, 4, 5, 0))
    plain = knn(bank, labels, queries, 5)
    scale = torch.logspace(-30, 30, 20)[:, None]
    scaled = knn(bank * scale, labels, queries * 1e-30, 5)
    torch.testing.assert_close(scaled.scores, plain.scores)


def test_knn_at_tiny_temperature_is_the_nearest_neighbour() -> None:
    bank, labels, queries = sample(20, 6, 5, 0)
    nearest = knn(bank, labels, queries, 1)
    for tau in (1e-6, 5e-324):
        sharp = knn(bank.float(), labels, queries.float(), 10, tau)
        assert torch.equal(sharp.predictions, nearest.predictions)
        torch.testing.assert_close(sharp.scores.sum(1), torch.ones(6))


def test_knn_takes_zero_rows_at_similarity_zero() -> None:
    bank = torch.tensor([[1.0, 0.0], [0.0, 0.0], [-1.0, 0.0]])
    labels = torch.tensor([0, 1, 2])
    result = knn(bank, labels, torch.tensor([[2.0, 0.0], [0.0, 0.0]]), 3, 1.0)
    expected = torch.tensor([[1.0, 0.0, -1.0], [0.0, 0.0, 0.0]]).softmax(1)
    torch.testing.assert_close(result.scores, expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_knn_works_on_half_features_in_float32(dtype: torch.dtype) -> None:
    bank, labels, queries = sample(40, 6, 8, 0)
    bank, queries = bank.to(dtype), queries.to(dtype)
    half, exact = knn(bank, labels, queries, 7), knn(bank.double(), labels, queries.double(), 7)
    assert half.scores.dtype == torch.float32
    torch.testing.assert_close(half.scores.double(), exact.scores, rtol=1e-4, atol=1e-5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(knn(bank, labels, queries, 7).scores, half.scores)


def test_knn_default_tiles_bound_memory_for_wide_rows_and_many_neighbours() -> None:
    for m, d, k in ((3000, 4, 3000), (40, 100_000, 3)):
        bank, labels, queries = sample(m, 5, d, 0)
        result = knn(bank, labels, queries, k)
        torch.testing.assert_close(result.scores.sum(1), torch.ones(5, dtype=torch.float64))


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
@pytest.mark.parametrize("sizes", [(100_000, 1500, 128, 200), (60_000, 1500, 64, 3000)])
def test_knn_stays_below_256_mib_beyond_its_result(sizes: tuple[int, ...]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PEAK, json.dumps(sizes)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert 32 << 20 < int(done.stdout) < 256 << 20


def test_accuracy_counts_the_truth_among_the_highest_scores() -> None:
    scores = torch.tensor([[0.5, 0.3, 0.2], [0.1, 0.3, 0.6], [0.4, 0.5, 0.1]])
    classes = torch.tensor([3, 5, 9])
    result = KnnResult(classes[scores.argmax(1)], scores, classes)
    truth = torch.tensor([5, 9, 4])  # second, first, not among the bank's
    assert [result.accuracy(truth, top) for top in (1, 2, 3)] == [1 / 3, 2 / 3, 2 / 3]


def in_a_cone(device: str) -> float:
    """The share of 1-NN votes as in float64 on digits as far off the origin as 10,000 spreads.

    Every fourth row of the bank is zero.
    """
    digits = load_digits()
    x = torch.from_numpy(digits.data)
    x = ((x - x.mean(0)) / x.std()).float() + 10_000.0
    queries, bank, labels = x[:300], x[300:], torch.from_numpy(digits.target)[300:]
    bank[::4] = 0
    exact = knn(bank.double(), labels, queries.double(), k=1)
    return knn(bank.to(device), labels.to(device), queries.to(device), k=1).accuracy(
        exact.predictions
    )


def test_knn_finds_neighbours_in_a_narrow_cone() -> None:
    assert in_a_cone("cpu") > 0.99


@pytest.mark.gpu
def test_knn_finds_neighbours_in_a_narrow_cone_when_products_are_in_tf32() -> None:
    torch.set_float32_matmul_precision("high")
    try:
        assert in_a_cone("cuda") > 0.99
    finally:
        torch.set_float32_matmul_precision("highest")


@pytest.mark.gpu
def test_knn_on_a_gpu_equals_the_cpu() -> None:
    bank, labels, queries = sample(5000, 300, 32, 0)
    cpu, cuda = knn(bank, labels, queries), knn(bank.cuda(), labels.cuda(), queries.cuda())
    assert cuda.scores.is_cuda
    torch.testing.assert_close(cuda.scores.cpu(), cpu.scores)
    assert cuda.accuracy(cpu.predictions) == 1


@pytest.mark.gpu
def test_knn_on_a_gpu_stays_below_2_gib_beyond_its_result() -> None:
    for m, n, d, k in ((1_000_000, 5000, 512, 200), (60_000, 5000, 2048, 50_000)):
        bank = torch.randn(m, d, device="cuda")
        queries = torch.randn(n, d, device="cuda")
        labels = torch.arange(m, device="cuda") % 10
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        knn(bank, labels, queries, k)
        assert torch.cuda.max_memory_allocated() - before < 2 << 30


def test_knn_refuses_wrong_arguments_in_one_line() -> None:
    z, labels = torch.ones(4, 3), torch.arange(4)
    nan = torch.full((1, 3), math.nan)
    inf = torch.tensor([[math.inf, 0.0, 0.0]])
    result = knn(z, labels, z, 2)
    cases = [
        (lambda: knn(z, labels, z), "k must be an integer from 1 to 4, the rows of the bank, got"),
        (lambda: knn(z, labels, z, 0), "k must be an integer from 1 to 4"),
        (lambda: knn(z, labels[:3], z, 2), "labels must be an integer tensor of shape"),
        (lambda: knn(z, labels, z[:, :2], 2), "queries must be of 3 columns on cpu"),
        (lambda: knn(z[0], labels, z, 2), "bank must be a floating-point tensor"),
        (lambda: knn(z, labels, z[:0], 2), "queries must be at least one row"),
        (lambda: knn(z, labels, nan, 2), "bank and queries must be finite"),
        (lambda: knn(torch.cat([z, inf]), torch.arange(5), z, 2), "bank and queries must be"),
        (lambda: knn(z, labels, z, 2, -1.0), "temperature must be a positive finite number"),
        (lambda: knn(z, labels, z, 2, block=0), "block must be a positive integer, got 0"),
        (lambda: result.accuracy(labels[:2]), r"truth must be of shape \(4,\)"),
        (lambda: result.accuracy(labels, 5), "top must be from 1 to the 4 classes, got 5"),
    ]
    for call, message in cases:
        with pytest.raises(ValueError, match=message) as error:
            call()
        assert "\n" not in str(error.value)
