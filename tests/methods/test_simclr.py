"""SimCLR's step against NT-Xent and against the published loss, as plain loops."""

import pytest
import torch
from torch import Tensor

from normscope.methods.simclr import SimCLR

from .plain import Flat, N, assert_same_gradients, labels, online, views

TAU = 0.3


def method(**options) -> SimCLR:
    return SimCLR(Flat(), dimension=4, temperature=TAU, **options).double()


def rows(net: SimCLR, x: Tensor) -> list[Tensor]:
    """The embeddings one image at a time, first views first."""
    return [net.projector(net.backbone(image[None]))[0] for image in x.flatten(0, 1)]


def similarity(a: Tensor, b: Tensor) -> Tensor:
    return (a @ b / (a.norm() * b.norm()) / TAU).exp()


def nt_xent(z: list[Tensor]) -> Tensor:
    """SimCLR, Algorithm 1: every other row of both views is in the denominator."""
    terms = []
    for i in range(2 * N):
        everything = sum(similarity(z[i], z[k]) for k in range(2 * N) if k != i)
        terms.append(-(similarity(z[i], z[(i + N) % (2 * N)]) / everything).log())
    return torch.stack(terms).mean()


def as_coded(z: list[Tensor]) -> Tensor:
    """First views alone are anchors, and only other images' second views are in the sum."""
    terms = []
    for i in range(N):
        everything = sum(similarity(z[i], z[N + k]) for k in range(N) if k != i)
        terms.append(-(similarity(z[i], z[N + i]) / everything).log())
    return torch.stack(terms).mean()


LOOPS = {"all": nt_xent, "as_coded": as_coded}


@pytest.mark.parametrize("loss", LOOPS)
def test_simclr_loss_and_gradients_equal_a_plain_loop(loss: str) -> None:
    net, x = method(loss=loss), views()
    expected = LOOPS[loss](rows(net, x))
    value = net(x, labels()).loss
    assert_same_gradients(value, expected, online(net))


def test_simclr_takes_every_view_as_negative_unless_told() -> None:
    net, x = method(), views()
    torch.testing.assert_close(net(x, labels()).loss, nt_xent(rows(net, x)))


def test_simclr_as_coded_is_another_loss_on_the_same_embeddings() -> None:
    net, x = method(), views()
    everything = net(x, labels())
    net.loss = "as_coded"
    published = net(x, labels())
    assert torch.equal(everything.embeddings, published.embeddings)
    assert abs(everything.loss - published.loss) > 0.1


def test_simclr_gives_raw_embeddings_each_drawn_to_the_other_view() -> None:
    net, x = method(), views()
    out, z = net(x, labels()), rows(net, x)
    torch.testing.assert_close(out.embeddings, torch.stack(z))
    torch.testing.assert_close(out.targets, torch.stack(z[N:] + z[:N]))
    torch.testing.assert_close(out.features, net.backbone(x.flatten(0, 1)))


def test_simclr_does_not_look_at_labels() -> None:
    net, x = method(), views()
    assert torch.equal(net(x, labels()).loss, net(x, torch.arange(N)).loss)
