"""SupCon's step against Equation 2 of its paper as a plain loop."""

import torch
from torch import Tensor

from normscope.losses import info_nce
from normscope.methods.supcon import SupCon

from .plain import Flat, N, assert_same_gradients, online, views

TAU = 0.2


def method() -> SupCon:
    return SupCon(Flat(), dimension=4, temperature=TAU).double()


def rows(net: SupCon, x: Tensor) -> list[Tensor]:
    """The embeddings one image at a time, first views first."""
    return [net.projector(net.backbone(image[None]))[0] for image in x.flatten(0, 1)]


def plain_loop(z: list[Tensor], labels: list[int]) -> Tensor:
    """The logarithm stands inside the mean over positives (L_out)."""
    labels = labels + labels
    terms = []
    for i in range(2 * N):
        cosine = [z[i] @ other / (z[i].norm() * other.norm()) / TAU for other in z]
        everything = sum(cosine[k].exp() for k in range(2 * N) if k != i)
        positives = [j for j in range(2 * N) if j != i and labels[j] == labels[i]]
        logs = [(cosine[j].exp() / everything).log() for j in positives]
        terms.append(-sum(logs) / len(positives))
    return torch.stack(terms).mean()


def test_supcon_loss_and_gradients_equal_a_plain_loop() -> None:
    net, x = method(), views()
    classes = [2, 0, 2, 1, 0, 2]
    expected = plain_loop(rows(net, x), classes)
    value = net(x, torch.tensor(classes)).loss
    assert_same_gradients(value, expected, online(net))


def test_supcon_of_images_each_alone_in_its_class_is_simclr() -> None:
    net, x = method(), views()
    out = net(x, torch.arange(N))
    torch.testing.assert_close(out.loss, info_nce(*out.embeddings.chunk(2), temperature=TAU))


def test_supcon_loss_follows_the_labels() -> None:
    net, x = method(), views()
    losses = [net(x, labels).loss for labels in (torch.arange(N), torch.arange(N) % 2)]
    assert abs(losses[0] - losses[1]) > 0.01


def test_supcon_gives_raw_embeddings_each_drawn_to_the_other_view() -> None:
    net, x = method(), views()
    out, z = net(x, torch.arange(N) % 2), rows(net, x)
    torch.testing.assert_close(out.embeddings, torch.stack(z))
    torch.testing.assert_close(out.targets, torch.stack(z[N:] + z[:N]))
    torch.testing.assert_close(out.features, net.backbone(x.flatten(0, 1)))
