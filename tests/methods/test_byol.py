"""BYOL's step and its target against Sections 3.1 and 3.2 of its paper as plain loops."""

import math

import pytest
import torch
from torch import Tensor, nn

from normscope.methods.byol import BYOL

from .plain import Flat, N, assert_same_gradients, labels, online, views


def method(**options) -> BYOL:
    """As after some training: the target is not the online network, nor are its statistics."""
    net = BYOL(Flat(), dimension=4, hidden=7, **options).double()
    with torch.no_grad():
        for p in net.momentum_encoder.parameters():
            p.add_(torch.randn_like(p), alpha=0.3)
    for layer in net.modules():
        if isinstance(layer, nn.BatchNorm1d):
            layer.running_mean.normal_(std=0.3)
            layer.running_var.uniform_(0.2, 1)
    return net.eval()


def predictions(net: BYOL, x: Tensor) -> list[Tensor]:
    """q(z) one image at a time, first views first."""
    images = x.flatten(0, 1)
    return [net.predictor(net.projector(net.backbone(image[None])))[0] for image in images]


def target_projections(net: BYOL, x: Tensor) -> list[Tensor]:
    return [net.momentum_encoder(image[None])[0] for image in x.flatten(0, 1)]


def squared_distance(q: Tensor, z: Tensor) -> Tensor:
    return (q / q.norm() - z / z.norm()).square().sum()


def equation(q: list[Tensor], z: list[Tensor]) -> Tensor:
    """The mean over images and directions of Equation 2."""
    terms = [squared_distance(q[i], z[(i + N) % (2 * N)]) for i in range(2 * N)]
    return torch.stack(terms).mean()


def test_byol_loss_and_gradients_equal_a_plain_loop() -> None:
    net, x = method(), views()
    # 2 - 2 cos, of which the loss is -cos
    expected = (equation(predictions(net, x), target_projections(net, x)) - 2) / 2
    value = net(x, labels()).loss
    assert_same_gradients(value, expected, online(net))


def test_byol_target_gets_no_gradient() -> None:
    net = method()
    net(views(), labels()).loss.backward()
    assert not any(p.requires_grad for p in net.momentum_encoder.parameters())
    assert all(p.grad is None for p in net.momentum_encoder.parameters())


def test_byol_gives_predictions_drawn_to_the_targets_of_the_other_view() -> None:
    net, x = method(), views()
    out, z = net(x, labels()), target_projections(net, x)
    torch.testing.assert_close(out.embeddings, torch.stack(predictions(net, x)))
    torch.testing.assert_close(out.targets, torch.stack(z[N:] + z[:N]))
    torch.testing.assert_close(out.features, net.backbone(x.flatten(0, 1)))


def test_byol_target_begins_as_a_copy_of_backbone_and_projector() -> None:
    net = BYOL(Flat(), dimension=4, hidden=7)
    online = [*net.backbone.parameters(), *net.projector.parameters()]
    for theirs, ours in zip(net.momentum_encoder.parameters(), online, strict=True):
        assert torch.equal(theirs, ours)
        assert theirs is not ours


@pytest.mark.parametrize("progress", [0.0, 0.25, 0.5, 0.9, 1.0])
def test_byol_target_follows_with_a_momentum_that_rises_to_one(progress: float) -> None:
    net = method(momentum=0.9)
    m = 1 - (1 - 0.9) * (math.cos(math.pi * progress) + 1) / 2
    online = [*net.backbone.parameters(), *net.projector.parameters()]
    expected = [
        m * theirs + (1 - m) * ours
        for theirs, ours in zip(net.momentum_encoder.parameters(), online, strict=True)
    ]
    before = [p.clone() for p in online]
    net.after_step(progress)
    for got, reference in zip(net.momentum_encoder.parameters(), expected, strict=True):
        torch.testing.assert_close(got, reference, rtol=1e-12, atol=1e-12)
    assert all(torch.equal(a, b) for a, b in zip(online, before, strict=True))


def test_byol_target_that_follows_with_no_momentum_equals_backbone_and_projector() -> None:
    net = method()
    net.follow(0.0)
    online = [*net.backbone.parameters(), *net.projector.parameters()]
    for theirs, ours in zip(net.momentum_encoder.parameters(), online, strict=True):
        assert torch.equal(theirs, ours)
