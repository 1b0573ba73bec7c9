"""The other losses against the paper's sums as plain loops."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from normscope.losses import dino, negative_cosine, supervised_info_nce, triplet, updated_center

sizes = st.integers(2, 8)
dims = st.integers(2, 8)
seeds = st.integers(0, 2**31)


def random_tensors(seed: int, *shapes: tuple[int, ...]) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [
        torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()
        for shape in shapes
    ]


def cosine(a: Tensor, b: Tensor) -> float:
    return (a.dot(b) / (a.norm() * b.norm())).item()


@given(sizes, dims, seeds)
def test_negative_cosine_equals_plain_loop(n: int, d: int, seed: int) -> None:
    p, z = random_tensors(seed, (n, d), (n, d))
    expected = -sum(cosine(p[i].detach(), z[i].detach()) for i in range(n)) / n
    assert negative_cosine(p, z).item() == pytest.approx(expected, abs=1e-12)


@given(sizes, dims, seeds, st.floats(-1, 2))
def test_triplet_equals_plain_loop_of_squared_distances(
    n: int, d: int, seed: int, margin: float
) -> None:
    tensors = random_tensors(seed, (n, d), (n, d), (n, d))
    expected = 0.0
    for a, p, q in zip(*[t.detach() for t in tensors], strict=True):
        a, p, q = a / a.norm(), p / p.norm(), q / q.norm()
        gap = (a - p).square().sum() - (a - q).square().sum() + margin
        expected += max(0.0, gap.item()) / n
    assert triplet(*tensors, margin=margin).item() == pytest.approx(expected, abs=1e-12)


def supervised_loop(z: Tensor, positives: list[list[int]], tau: float) -> float:
    terms = []
    for i, chosen in enumerate(positives):
        if chosen:
            s = [math.exp(cosine(z[i], z[k]) / tau) for k in range(len(z)) if k != i]
            pull = sum(cosine(z[i], z[j]) / tau for j in chosen) / len(chosen)
            terms.append(math.log(sum(s)) - pull)
    return sum(terms) / max(len(terms), 1)


@given(sizes, dims, seeds, st.floats(-2, 1).map(lambda x: 10**x))
def test_supervised_info_nce_over_all_positives_equals_plain_loop(
    n: int, d: int, seed: int, tau: float
) -> None:
    (z,) = random_tensors(seed, (n, d))
    labels = torch.randint(3, (n,), generator=torch.Generator().manual_seed(seed))
    same = [[j for j in range(n) if j != i and labels[j] == labels[i]] for i in range(n)]
    value = supervised_info_nce(z, labels, temperature=tau, positives="all")
    expected = supervised_loop(z.detach(), same, tau)
    assert value.item() == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_supervised_info_nce_one_positive_averages_to_all_positives() -> None:
    (z,) = random_tensors(3, (12, 4))
    labels = torch.tensor([0] * 6 + [1] * 3 + [2] * 2 + [3])
    generator = torch.Generator().manual_seed(0)
    draws = torch.stack(
        [supervised_info_nce(z, labels, generator=generator).detach() for _ in range(4000)]
    )
    everything = supervised_info_nce(z, labels, positives="all")
    standard_error = draws.std() / math.sqrt(len(draws))
    assert standard_error > 0
    assert abs(draws.mean() - everything) < 4 * standard_error


def test_supervised_info_nce_one_positive_is_a_loop_over_the_only_choice() -> None:
    (z,) = random_tensors(5, (6, 4))
    labels = torch.tensor([7, 2, 7, 2, 9, 9])
    value = supervised_info_nce(z, labels, temperature=0.2)
    expected = supervised_loop(z.detach(), [[2], [3], [0], [1], [5], [4]], 0.2)
    assert value.item() == pytest.approx(expected, rel=1e-12)


def test_supervised_info_nce_gradients_equal_autograds() -> None:
    (z,) = random_tensors(1, (9, 4))
    labels = torch.tensor([0, 0, 0, 1, 1, 2, 2, 2, 3])
    u = torch.nn.functional.normalize(z, dim=1)
    log_p = (u @ u.T / 0.1).fill_diagonal_(-math.inf).log_softmax(1)
    mask = (labels[:, None] == labels).fill_diagonal_(False)
    per_row = -log_p.masked_fill(~mask, 0).sum(1)[:8] / mask.sum(1)[:8]
    (expected,) = torch.autograd.grad(per_row.mean(), z)
    loss = supervised_info_nce(z, labels, temperature=0.1, positives="all")
    (value,) = torch.autograd.grad(loss, z)
    torch.testing.assert_close(value, expected, rtol=1e-9, atol=1e-12)


def test_supervised_info_nce_differentiates_the_drawn_positive_too() -> None:
    (z,) = random_tensors(5, (4, 3))
    u = torch.nn.functional.normalize(z, dim=1)
    log_p = (u @ u.T).fill_diagonal_(-math.inf).log_softmax(1)
    (expected,) = torch.autograd.grad(-log_p[torch.arange(4), [1, 0, 3, 2]].mean(), z)
    (value,) = torch.autograd.grad(supervised_info_nce(z, torch.tensor([0, 0, 1, 1])), z)
    torch.testing.assert_close(value, expected)


def test_supervised_info_nce_draws_from_the_generator_given() -> None:
    (z,) = random_tensors(5, (40, 3))
    labels = torch.arange(40) % 2

    def draw(seed: int) -> float:
        generator = torch.Generator().manual_seed(seed)
        return supervised_info_nce(z, labels, generator=generator).item()

    assert draw(1) == draw(1) != draw(2)


def test_triplet_gradients_equal_autograds_on_squared_distances() -> None:
    tensors = random_tensors(2, (6, 4), (6, 4), (6, 4))
    a, p, q = (torch.nn.functional.normalize(t, dim=1) for t in tensors)
    gap = (a - p).square().sum(1) - (a - q).square().sum(1) + 0.2
    expected = torch.autograd.grad(gap.clamp_min(0).mean(), tensors)
    value = torch.autograd.grad(triplet(*tensors), tensors)
    for got, reference in zip(value, expected, strict=True):
        torch.testing.assert_close(got, reference)


def test_losses_stay_in_float32_under_autocast() -> None:
    a, b = (t.detach().float() for t in random_tensors(0, (6, 8), (6, 8)))
    student, teacher = torch.stack([a, b]), torch.stack([b, a])
    labels = torch.tensor([0, 0, 1, 1, 2, 2])
    for loss in (
        lambda: negative_cosine(a, b),
        lambda: triplet(a, b, b.roll(1, 0)),
        lambda: supervised_info_nce(a, labels, temperature=0.1),
        lambda: dino(student, teacher, torch.zeros(8)),
    ):
        plain = loss()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert torch.equal(loss(), plain)


def test_supervised_info_nce_without_any_positive_is_zero_with_zero_gradient() -> None:
    (z,) = random_tensors(0, (4, 3))
    loss = supervised_info_nce(z, torch.arange(4))
    (grad,) = torch.autograd.grad(loss, z)
    assert loss.item() == 0
    assert grad.abs().max() == 0


@given(st.integers(2, 4), st.integers(1, 3), sizes, dims, seeds)
def test_dino_equals_plain_loop(v: int, w: int, n: int, m: int, seed: int) -> None:
    w = min(v, w)
    student, teacher, center = random_tensors(seed, (v, n, m), (w, n, m), (m,))
    terms = []
    for a in range(w):
        for b in range(v):
            if a != b:
                for i in range(n):
                    target = ((teacher[a, i] - center) / 0.04).softmax(0)
                    log_p = (student[b, i] / 0.1).log_softmax(0)
                    terms.append(-(target * log_p).sum().item())
    value = dino(student, teacher, center).item()
    assert value == pytest.approx(sum(terms) / len(terms), rel=1e-9)


def test_dino_sends_no_gradient_to_teacher_or_center() -> None:
    student, teacher, center = random_tensors(0, (3, 4, 5), (2, 4, 5), (5,))
    dino(student, teacher, center).backward()
    assert student.grad is not None
    assert teacher.grad is None
    assert center.grad is None


def test_updated_center_is_an_exponential_average_of_the_teachers_mean() -> None:
    teacher, center = random_tensors(0, (2, 4, 5), (5,))
    expected = 0.9 * center + 0.1 * teacher.reshape(-1, 5).mean(0)
    torch.testing.assert_close(updated_center(center, teacher), expected.detach())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_losses_work_in_float32_on_half_inputs(dtype: torch.dtype) -> None:
    a, b, c = (t.detach().to(dtype) for t in random_tensors(0, (6, 8), (6, 8), (6, 8)))
    labels = torch.tensor([0, 0, 1, 1, 2, 2])
    for loss in (
        lambda f: negative_cosine(f(a), f(b)),
        lambda f: triplet(f(a), f(b), f(c)),
        lambda f: supervised_info_nce(f(a), labels, temperature=0.1),
        lambda f: dino(f(a)[:, None].expand(6, 2, 8), f(b)[:, None].expand(6, 2, 8), f(c)[0]),
    ):
        half, exact = loss(lambda t: t), loss(lambda t: t.double())
        assert half.dtype == torch.float32
        assert half.item() == pytest.approx(exact.item(), rel=1e-5)


def test_losses_give_zero_rows_zero_gradients() -> None:
    z = torch.zeros(4, 3, requires_grad=True)
    other = torch.randn(4, 3)
    labels = torch.tensor([0, 0, 1, 1])
    for loss in (
        negative_cosine(z, other),
        negative_cosine(other, z),
        triplet(z, other, other.roll(1, 0)),
        supervised_info_nce(z, labels),
    ):
        (grad,) = torch.autograd.grad(loss, z)
        assert torch.equal(grad, torch.zeros(4, 3))


def test_losses_refuse_wrong_arguments_in_one_line() -> None:
    z = torch.ones(4, 3)
    labels = torch.zeros(4, dtype=torch.int64)
    center = torch.zeros(3)
    cases = [
        (lambda: negative_cosine(z, z[:2]), "z must be like p, a float32 tensor of shape"),
        (lambda: triplet(z, z, z[:, :2]), "negative must be like anchor"),
        (lambda: triplet(z, z, z, margin=math.nan), "margin must be a finite number, got nan"),
        (lambda: supervised_info_nce(z, labels[:2]), r"labels must be an integer tensor of shape"),
        (lambda: supervised_info_nce(z, labels.float()), "labels must be an integer tensor"),
        (lambda: supervised_info_nce(z[:1], labels[:1]), "z must be at least two rows"),
        (lambda: supervised_info_nce(z, labels, temperature=-1), "temperature must be a positive"),
        (lambda: supervised_info_nce(z, labels, positives="two"), "positives must be 'one' or"),
        (lambda: dino(z, z, center), "student must be a floating-point tensor"),
        (lambda: dino(z[None], z[None], center), "teacher must be"),
        (lambda: dino(z[None].repeat(2, 1, 1), z[None], center[:2]), "center must be of shape"),
        (lambda: dino(z[None].repeat(2, 1, 1)[:, :0], z[None, :0], center), "student must be at"),
        (lambda: updated_center(center, z), "teacher must be a floating-point tensor"),
        (lambda: updated_center(center, z[None], momentum=7.0), "momentum must be between 0 and 1"),
    ]
    for call, message in cases:
        with pytest.raises(ValueError, match=message) as error:
            call()
        assert "\n" not in str(error.value)
