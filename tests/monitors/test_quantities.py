"""Each quantity against a plain loop in float64."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from normscope import grad_scale
from normscope.losses import info_nce, negative_cosine
from normscope.monitors import MONITORS, Observation
from normscope.monitors.geometry import geometry, rank_me
from normscope.monitors.growth import growth
from normscope.monitors.norm_moments import norms
from normscope.monitors.rates import rates

sizes = st.integers(2, 12)
dims = st.integers(2, 6)
seeds = st.integers(0, 2**31)


def random_embeddings(seed: int, *shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def length(row: Tensor) -> float:
    return math.sqrt(sum(x * x for x in row.tolist()))


def cosine(a: Tensor, b: Tensor) -> float:
    dot = sum(x * y for x, y in zip(a.tolist(), b.tolist(), strict=True))
    return dot / (length(a) * length(b))


def pairs(n: int) -> list[tuple[int, int]]:
    return [(i, j) for i in range(n) for j in range(i)]


def assert_shows(values: dict[str, Tensor], expected: dict[str, float]) -> None:
    for name, number in expected.items():
        assert values[name].item() == pytest.approx(number, rel=1e-9, abs=1e-12), name


@given(st.integers(1, 12), dims, seeds)
def test_norms_equal_plain_loop(n: int, d: int, seed: int) -> None:
    z = random_embeddings(seed, n, d)
    lengths = [length(row) for row in z]
    mean = sum(lengths) / n
    expected = {
        "norm_mean": mean,
        "norm_std": math.sqrt(sum((x - mean) ** 2 for x in lengths) / n),
        "norm_square_mean": sum(x * x for x in lengths) / n,
        "nonfinite": 0.0,
        **{f"norm_q{q:02d}": float(np.quantile(lengths, q / 100)) for q in (5, 25, 50, 75, 95)},
    }
    values = norms(Observation(z, lr=0.1))
    assert_shows(values, expected)
    assert set(values) == set(expected)


def test_norm_by_class_is_nan_where_a_class_is_absent_and_forgets_unknown_labels() -> None:
    z = torch.diag(torch.tensor([1.0, 2.0, 4.0, 9.0, 7.0]))
    labels = torch.tensor([0, 2, 2, -1, 4])
    values = norms(Observation(z, lr=0.1, labels=labels, classes=4))["norm_by_class"]
    expected = torch.tensor([1.0, math.nan, 3.0, math.nan])
    torch.testing.assert_close(values, expected, equal_nan=True)


def test_a_nan_row_stays_within_its_class() -> None:
    z = torch.diag(torch.tensor([1.0, math.nan, 4.0]))
    seen = Observation(z, lr=0.1, labels=torch.tensor([0, 1, 0]), classes=2)
    by_class = norms(seen)["norm_by_class"]
    torch.testing.assert_close(by_class, torch.tensor([2.5, math.nan]), equal_nan=True)


@given(sizes, dims, seeds, st.floats(0, 10))
def test_rates_equal_plain_loop(n: int, d: int, seed: int, lr: float) -> None:
    z = random_embeddings(seed, n, d)
    weights = {str(i): random_embeddings(seed + i, 3, i + 1, 2) for i in range(n)}
    lengths = [length(row) for row in z]
    of_weights = sorted(lr / sum(x * x for x in w.flatten().tolist()) for w in weights.values())
    expected = {
        "lr_over_norm": lr / (sum(lengths) / n),
        "lr_over_norm_squared": lr / (sum(x * x for x in lengths) / n),
        "lr_over_weight_squared": (of_weights[(n - 1) // 2] + of_weights[n // 2]) / 2,
        "lr_over_weight_squared_min": of_weights[0],
        "lr_over_weight_squared_max": of_weights[-1],
    }
    assert_shows(rates(Observation(z, lr=lr, weights=weights)), expected)


@given(sizes, dims, seeds)
def test_geometry_equals_plain_loop(n: int, d: int, seed: int) -> None:
    z, t = random_embeddings(seed, 2, n, d)
    cosines = [cosine(z[i], z[j]) for i, j in pairs(n)]
    towards = [cosine(a, b) for a, b in zip(z, t, strict=True)]
    kernel = [math.exp(-2 * (2 - 2 * c)) for c in cosines]  # |a - b|^2 = 2 - 2 cos
    expected = {
        "mean_cosine": sum(cosines) / len(cosines),
        "uniformity": math.log(sum(kernel) / len(kernel)),
        "alignment": sum(2 - 2 * c for c in towards) / n,
        "opposite_halves": sum(c < 0 for c in towards) / n,
    }
    assert_shows(geometry(Observation(z, lr=0.1, targets=t)), expected)


def test_uniformity_reads_512_rows_and_mean_cosine_all() -> None:
    spread, one_way = random_embeddings(0, 512, 4), torch.ones(500, 4, dtype=torch.float64)
    first = geometry(Observation(spread, lr=0.1))
    both = geometry(Observation(torch.cat([spread, one_way]), lr=0.1))
    assert both["uniformity"] == first["uniformity"]
    assert both["mean_cosine"] > first["mean_cosine"] + 0.1


@given(sizes, dims, seeds)
def test_rank_me_is_the_exponential_of_the_entropy_of_singular_values(
    n: int, d: int, seed: int
) -> None:
    z = random_embeddings(seed, n, d)
    sigma = np.linalg.svd(z.numpy(), compute_uv=False)
    p = sigma / sigma.sum()
    expected = math.exp(-sum(x * math.log(x) for x in p if x > 0))
    assert rank_me(z).item() == pytest.approx(expected, rel=1e-6)


def test_rank_me_leaves_torchs_threads_as_they_were(monkeypatch) -> None:
    during = []
    eigenvalues = torch.linalg.eigvalsh
    monkeypatch.setattr(
        torch.linalg,
        "eigvalsh",
        lambda x: (during.append(torch.get_num_threads()), eigenvalues(x))[1],
    )
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        rank_me(torch.eye(3))
        assert during == [1]
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_rank_me_keeps_its_digits_in_half_precision_and_one_direction() -> None:
    z = torch.randn(300, 1) @ torch.ones(1, 200)
    assert rank_me(z).item() == pytest.approx(1, abs=1e-3)
    z = z.to(torch.bfloat16)
    assert rank_me(z).item() == pytest.approx(1, abs=1e-3)
    assert rank_me(torch.eye(64, dtype=torch.float16)).item() == pytest.approx(64)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_rank_me_of_a_broken_batch_is_nan(value: float) -> None:
    z = torch.randn(5, 3)
    z[1, 2] = value
    assert rank_me(z).isnan()


@given(sizes, dims, seeds, st.floats(0, 3), st.floats(-2, 2))
def test_growth_equals_plain_loop(n: int, d: int, seed: int, lr: float, power: float) -> None:
    z, grad = random_embeddings(seed, 2, n, d)
    previous = torch.tensor(0.7, dtype=torch.float64)
    reach = [lr * length(g) * length(row) ** power for g, row in zip(grad, z, strict=True)]
    expected = {
        "growth_predicted": sum(x * x for x in reach) / n,
        "radial_share": sum(abs(cosine(g, row)) for g, row in zip(grad, z, strict=True)) / n,
        "growth_seen": (sum(length(row) ** 2 for row in z) / n - 0.7) / 3,
    }
    seen = Observation(z, lr=lr, grad=grad, power=power, previous_square=previous, steps=3)
    assert_shows(growth(seen), expected)


@pytest.mark.parametrize("power", [0.0, 1.0, -0.5])
def test_growth_predicted_is_what_one_step_of_free_embeddings_adds(power: float) -> None:
    free = nn.Parameter(random_embeddings(1, 16, 6))
    lr = 2.0
    z = grad_scale(free, power) if power else free * 1
    z.retain_grad()
    info_nce(z[:8], z[8:]).backward()
    before = Observation(z, lr=lr, grad=z.grad, power=power)
    shown = growth(before)
    torch.optim.SGD([free], lr=lr).step()
    after = Observation(free, lr=lr, previous_square=norms(before)["norm_square_mean"])
    assert shown["growth_predicted"] > 1e-4
    assert growth(after)["growth_seen"].item() == pytest.approx(
        shown["growth_predicted"].item(), rel=1e-6
    )
    assert shown["radial_share"] < 1e-12


def test_radial_share_finds_a_loss_that_is_not_cosine_based() -> None:
    z = random_embeddings(2, 8, 4)
    assert growth(Observation(z, lr=0.1, grad=2 * z))["radial_share"].item() == pytest.approx(1)


def test_a_zero_row_gets_no_growth_through_grad_scale() -> None:
    z, grad = torch.zeros(2, 3), torch.ones(2, 3)
    for power in (1.0, -1.0):
        assert growth(Observation(z, lr=1.0, grad=grad, power=power))["growth_predicted"] == 0


@pytest.mark.parametrize("name", MONITORS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_every_monitor_gives_detached_numbers_of_float32_or_wider(name: str, dtype) -> None:
    z = torch.randn(6, 4).to(dtype).requires_grad_()
    t = torch.randn(6, 4, requires_grad=True)
    (grad,) = torch.autograd.grad(negative_cosine(z.to(t.dtype), t), z, create_graph=True)
    assert grad.requires_grad
    seen = Observation(
        z,
        lr=0.1,
        targets=t,
        grad=grad,
        labels=torch.tensor([0, 1, 1, 0, 1, 2]),
        classes=3,
        power=1.0,
        weights={"w": nn.Parameter(torch.randn(3, 3).to(dtype))},
        previous_square=torch.tensor(1.0),
    )
    for value in MONITORS[name](seen).values():
        assert not value.requires_grad
        assert value.isfinite().all()
        assert value.dtype == torch.promote_types(dtype, torch.float32)


@pytest.mark.parametrize("name", MONITORS)
def test_every_monitor_says_the_same_under_autocast(name: str) -> None:
    z, t = torch.randn(2, 20, 8)
    seen = Observation(z, lr=0.1, targets=t, grad=t, power=1.0, weights={"w": t})
    plain = MONITORS[name](seen)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert MONITORS[name](replace(seen)) == plain


def test_observation_names_what_cannot_be_one_step() -> None:
    z = torch.randn(4, 3)
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"z": z[0]}, "z must be a floating-point tensor"),
        ({"lr": -1.0}, "lr must be zero or more, got -1.0"),
        ({"lr": math.nan}, "lr must be a finite number"),
        ({"targets": z[:2]}, "targets must be of the shape and on the device of z"),
        ({"grad": z.T}, "grad must be of the shape"),
        ({"labels": torch.zeros(4)}, "labels must be an integer tensor"),
    ]
    for arguments, message in wrong:
        with pytest.raises(ValueError, match=message):
            Observation(**{"z": z, "lr": 0.1, **arguments})
