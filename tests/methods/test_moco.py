"""MoCo v2 and v3 against Algorithm 1 of their papers as plain loops."""

import math
from collections import deque

import pytest
import torch
from torch import Tensor, nn

from normscope.methods.moco import MoCoV2, MoCoV3

from .plain import Flat, N, assert_same_gradients, labels, online, views

TAU = 0.3


class Patched(nn.Module):
    """A backbone with a patch projection, as transformers have."""

    width = 5

    def __init__(self) -> None:
        super().__init__()
        self.patch_embed = nn.Conv2d(3, 2, 4, 4)
        self.linear = nn.Linear(8, self.width)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(self.patch_embed(x).flatten(1))


def apart(net: MoCoV2 | MoCoV3) -> None:
    """As after some training: keys and queries differ, and so do their batch statistics."""
    with torch.no_grad():
        for p in net.momentum_encoder.parameters():
            p.add_(torch.randn_like(p), alpha=0.3)
    for layer in net.modules():
        if isinstance(layer, nn.BatchNorm1d):
            layer.running_mean.normal_(std=0.3)
            layer.running_var.uniform_(0.2, 1)


def v2(queue: int = 8, **options) -> MoCoV2:
    net = MoCoV2(Flat(), dimension=4, queue=queue, temperature=TAU, **options).double()
    apart(net)
    return net


def v3(backbone: nn.Module | None = None, **options) -> MoCoV3:
    backbone = backbone or Flat()
    net = MoCoV3(backbone, dimension=4, hidden=7, temperature=TAU, **options).double()
    apart(net)
    return net.eval()


def keys(net: MoCoV2 | MoCoV3, images: Tensor) -> list[Tensor]:
    return [net.momentum_encoder(image[None])[0] for image in images]


def v2_queries(net: MoCoV2, images: Tensor) -> list[Tensor]:
    return [net.projector(net.backbone(image[None]))[0] for image in images]


def v3_queries(net: MoCoV3, images: Tensor) -> list[Tensor]:
    return [net.predictor(net.projector(net.backbone(image[None])))[0] for image in images]


def similarity(a: Tensor, b: Tensor) -> Tensor:
    return (a @ b / (a.norm() * b.norm()) / TAU).exp()


def v2_algorithm(q: list[Tensor], k: list[Tensor], queue: list[Tensor]) -> Tensor:
    """Its own key, and the queue, in the denominator; not the other keys of the batch."""
    terms = []
    for ours, theirs in zip(q, k, strict=True):
        positive = similarity(ours, theirs)
        everything = positive + sum(similarity(ours, old) for old in queue)
        terms.append(-(positive / everything).log())
    return torch.stack(terms).mean()


def v3_algorithm(q: list[Tensor], k: list[Tensor]) -> Tensor:
    """ctr(q1, k2) + ctr(q2, k1), where ctr is the cross-entropy times 2 tau."""

    def contrast(q: list[Tensor], k: list[Tensor]) -> Tensor:
        logs = [
            -(similarity(q[i], k[i]) / sum(similarity(q[i], k[j]) for j in range(N))).log()
            for i in range(N)
        ]
        return 2 * TAU * torch.stack(logs).mean()

    return contrast(q[:N], k[N:]) + contrast(q[N:], k[:N])


def test_moco_v2_loss_and_gradients_equal_a_plain_loop() -> None:
    net, x = v2(), views()
    expected = v2_algorithm(v2_queries(net, x[0]), keys(net, x[1]), [*net.queue.clone()])
    value = net(x, labels()).loss
    assert_same_gradients(value, expected, online(net))


# one that the batch divides, one that it does not, and one smaller than it
@pytest.mark.parametrize("size", [12, 8, 4])
def test_moco_v2_queue_is_first_in_first_out_and_filled_after_the_loss(size: int) -> None:
    net = v2(queue=size)
    queue = deque(net.queue.clone(), maxlen=size)
    for _ in range(4):
        x = views()
        k = keys(net, x[1])
        expected = v2_algorithm(v2_queries(net, x[0]), k, [*queue])
        torch.testing.assert_close(net(x, labels()).loss, expected, rtol=1e-10, atol=1e-10)
        queue.extend(row / row.norm() for row in k)
        oldest_first = net.queue.roll(-int(net.oldest), 0)
        torch.testing.assert_close(oldest_first, torch.stack([*queue]))


def test_moco_v2_queue_begins_with_directions_and_needs_no_gradient() -> None:
    net = MoCoV2(Flat(), dimension=4, queue=50)
    torch.testing.assert_close(net.queue.norm(dim=1), torch.ones(50))
    assert net.queue.std(0).min() > 0.2
    net(views().float(), labels()).loss.backward()
    assert not net.queue.requires_grad


def test_moco_v2_queue_goes_on_from_a_loaded_state() -> None:
    net = v2()
    net(views(), labels())
    loaded = v2()
    loaded.load_state_dict(net.state_dict())
    for _ in range(2):
        x = views()
        assert torch.equal(loaded(x, labels()).loss, net(x, labels()).loss)


def test_moco_v2_gives_first_views_queries_drawn_to_second_views_keys() -> None:
    net, x = v2(), views()
    out = net(x, labels())
    torch.testing.assert_close(out.embeddings, torch.stack(v2_queries(net, x[0])))
    torch.testing.assert_close(out.targets, torch.stack(keys(net, x[1])))
    torch.testing.assert_close(out.features, net.backbone(x[0]))


def test_moco_v3_loss_and_gradients_equal_a_plain_loop() -> None:
    net, x = v3(), views()
    images = x.flatten(0, 1)
    expected = v3_algorithm(v3_queries(net, images), keys(net, images))
    value = net(x, labels()).loss
    assert_same_gradients(value, expected, online(net))


def test_moco_v3_gives_predictions_drawn_to_the_keys_of_the_other_view() -> None:
    net, x = v3(), views()
    out, k = net(x, labels()), keys(net, x.flatten(0, 1))
    torch.testing.assert_close(out.embeddings, torch.stack(v3_queries(net, x.flatten(0, 1))))
    torch.testing.assert_close(out.targets, torch.stack(k[N:] + k[:N]))
    torch.testing.assert_close(out.features, net.backbone(x.flatten(0, 1)))


def test_moco_v3_leaves_the_patch_projection_as_it_was_drawn() -> None:
    net = v3(Patched())
    net(views(), labels()).loss.backward()
    names = dict(net.named_parameters())
    without = {n for n, p in names.items() if p.grad is None}
    frozen = {"backbone.patch_embed.weight", "backbone.patch_embed.bias"}
    assert without == frozen | {n for n in names if n.startswith("momentum_encoder.")}


@pytest.mark.parametrize("make", [v2, v3])
def test_moco_key_encoder_gets_no_gradient(make) -> None:
    net = make()
    net(views(), labels()).loss.backward()
    assert not any(p.requires_grad for p in net.momentum_encoder.parameters())
    assert all(p.grad is None for p in net.momentum_encoder.parameters())


@pytest.mark.parametrize("kind", [MoCoV2, MoCoV3])
def test_moco_key_encoder_begins_as_a_copy_of_backbone_and_projector(kind) -> None:
    net = kind(Flat(), dimension=4, **({"hidden": 7} if kind is MoCoV3 else {}))
    online = [*net.backbone.parameters(), *net.projector.parameters()]
    for theirs, ours in zip(net.momentum_encoder.parameters(), online, strict=True):
        assert torch.equal(theirs, ours)
        assert theirs is not ours


@pytest.mark.parametrize("progress", [0.0, 0.25, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("make", [v2, v3])
def test_moco_key_encoder_follows_evenly_in_v2_and_ever_slower_in_v3(make, progress: float) -> None:
    net = make(momentum=0.9)
    m = 0.9 if make is v2 else 1 - (1 - 0.9) * (math.cos(math.pi * progress) + 1) / 2
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


@pytest.mark.parametrize("make", [v2, v3])
def test_moco_key_encoder_that_follows_with_no_momentum_equals_backbone_and_projector(make) -> None:
    net = make()
    net.follow(0.0)
    online = [*net.backbone.parameters(), *net.projector.parameters()]
    for theirs, ours in zip(net.momentum_encoder.parameters(), online, strict=True):
        assert torch.equal(theirs, ours)
