"""DINO's step, centre and teacher against its paper's Algorithm 1 as plain loops."""

import math

import pytest
import torch
from torch import Tensor

from normscope.methods.dino import DINO

from .plain import Flat, N, assert_same_gradients, labels, online, views

PROTOTYPES = 9
STUDENT_TAU, TEACHER_TAU = 0.2, 0.07


def students(net: DINO) -> list[Tensor]:
    parts = (net.backbone, net.projector, net.prototypes)
    return [p for part in parts for p in part.parameters()]


def teachers(net: DINO) -> list[Tensor]:
    parts = (net.momentum_encoder, net.momentum_prototypes)
    return [p for part in parts for p in part.parameters()]


def method(**options) -> DINO:
    """As after some training: the teacher is not the student."""
    net = DINO(
        Flat(),
        dimension=4,
        hidden=7,
        prototypes=PROTOTYPES,
        temperature=STUDENT_TAU,
        teacher_temperature=TEACHER_TAU,
        **options,
    ).double()
    with torch.no_grad():
        for p in teachers(net):
            p.add_(torch.randn_like(p), alpha=0.3)
    return net


def logits(z: list[Tensor], weight: Tensor) -> list[Tensor]:
    return [torch.stack([row @ w / (row.norm() * w.norm()) for w in weight]) for row in z]


def student(net: DINO, x: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    """Bottleneck and logits one image at a time, first views first."""
    z = [net.projector(net.backbone(image[None]))[0] for image in x.flatten(0, 1)]
    return z, logits(z, net.prototypes.weight)


def teacher(net: DINO, x: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    z = [net.momentum_encoder(image[None])[0] for image in x.flatten(0, 1)]
    return z, logits(z, net.momentum_prototypes.weight)


def algorithm(s: list[Tensor], t: list[Tensor], center: Tensor) -> Tensor:
    """H(t1, s2) / 2 + H(t2, s1) / 2."""
    terms = []
    for i in range(2 * N):
        target = ((t[(i + N) % (2 * N)] - center) / TEACHER_TAU).exp()
        own = (s[i] / STUDENT_TAU).exp()
        terms.append(-(target / target.sum() * (own / own.sum()).log()).sum())
    return torch.stack(terms).mean()


def test_dino_loss_and_gradients_equal_a_plain_loop_from_the_first_batchs_center() -> None:
    net, x = method(), views()
    t = teacher(net, x)[1]
    expected = algorithm(student(net, x)[1], t, sum(t) / len(t))
    value = net(x, labels()).loss
    assert_same_gradients(value, expected, online(net))


def test_dino_center_moves_a_tenth_of_the_way_after_each_loss() -> None:
    net = method()
    center = torch.zeros(PROTOTYPES, dtype=torch.float64)
    for step in range(4):
        x = views() + step  # batches whose means differ
        t = teacher(net, x)[1]
        mean = sum(t) / len(t)
        if step == 0:
            center = mean
        expected = algorithm(student(net, x)[1], t, center)
        torch.testing.assert_close(net(x, labels()).loss, expected, rtol=1e-10, atol=1e-10)
        assert step == 0 or (mean - center).abs().max() > 0.01
        center = 0.9 * center + 0.1 * mean
        torch.testing.assert_close(net.center, center)


def test_dino_center_goes_on_from_a_loaded_state() -> None:
    net, x = method(), views()
    net(x, labels())
    loaded = method()
    loaded.load_state_dict(net.state_dict())
    later = views() + 1
    assert torch.equal(loaded(later, labels()).loss, net(later, labels()).loss)


def test_dino_teacher_gets_no_gradient() -> None:
    net = method()
    net(views(), labels()).loss.backward()
    assert not any(p.requires_grad for p in teachers(net))
    assert all(p.grad is None for p in teachers(net))
    assert not net.center.requires_grad


def test_dino_gives_bottlenecks_drawn_to_the_teachers_of_the_other_view() -> None:
    net, x = method(), views()
    out, z = net(x, labels()), teacher(net, x)[0]
    torch.testing.assert_close(out.embeddings, torch.stack(student(net, x)[0]))
    torch.testing.assert_close(out.targets, torch.stack(z[N:] + z[:N]))
    torch.testing.assert_close(out.features, net.backbone(x.flatten(0, 1)))


def test_dino_teacher_begins_as_a_copy_of_the_student() -> None:
    net = DINO(Flat(), dimension=4, hidden=7, prototypes=PROTOTYPES)
    for theirs, ours in zip(teachers(net), students(net), strict=True):
        assert torch.equal(theirs, ours)
        assert theirs is not ours


@pytest.mark.parametrize("progress", [0.0, 0.25, 0.5, 0.9, 1.0])
def test_dino_teacher_follows_with_a_momentum_that_rises_to_one(progress: float) -> None:
    net = method(momentum=0.9)
    m = 1 - (1 - 0.9) * (math.cos(math.pi * progress) + 1) / 2
    expected = [
        m * theirs + (1 - m) * ours
        for theirs, ours in zip(teachers(net), students(net), strict=True)
    ]
    before = [p.clone() for p in students(net)]
    net.after_step(progress)
    for got, reference in zip(teachers(net), expected, strict=True):
        torch.testing.assert_close(got, reference, rtol=1e-12, atol=1e-12)
    assert all(torch.equal(a, b) for a, b in zip(students(net), before, strict=True))


def test_dino_teacher_that_follows_with_no_momentum_equals_the_student() -> None:
    net = method()
    net.follow(0.0)
    for theirs, ours in zip(teachers(net), students(net), strict=True):
        assert torch.equal(theirs, ours)
