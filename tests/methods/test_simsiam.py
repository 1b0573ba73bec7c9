"""SimSiam's step against its paper's Algorithm 1 as a plain loop."""

import torch
from torch import Tensor, nn

from normscope.methods.simsiam import SimSiam

from .plain import Flat, N, labels, views


def method() -> SimSiam:
    """With batch statistics of their own, as after some training, that no longer move."""
    net = SimSiam(Flat(), dimension=8).double()
    for layer in net.modules():
        if isinstance(layer, nn.BatchNorm1d):
            layer.running_mean.normal_(std=0.3)
            layer.running_var.uniform_(0.2, 1)
    return net.eval()


def projections(net: SimSiam, x: Tensor) -> list[Tensor]:
    """z one image at a time, first views first."""
    return [net.projector(net.backbone(image[None]))[0] for image in x.flatten(0, 1)]


def predictions(net: SimSiam, z: list[Tensor]) -> list[Tensor]:
    return [net.predictor(row[None])[0] for row in z]


def distance(p: Tensor, z: Tensor) -> Tensor:
    """D(p, z): z counts as a constant."""
    z = z.detach()
    return -(p / p.norm()) @ (z / z.norm())


def algorithm(z: list[Tensor], p: list[Tensor]) -> Tensor:
    terms = [distance(p[i], z[N + i]) / 2 + distance(p[N + i], z[i]) / 2 for i in range(N)]
    return torch.stack(terms).mean()


def test_simsiam_loss_equals_a_plain_loop() -> None:
    net, x = method(), views()
    z = projections(net, x)
    expected = algorithm(z, predictions(net, z))
    torch.testing.assert_close(net(x, labels()).loss, expected, rtol=1e-10, atol=1e-10)


def test_simsiam_gradients_stop_at_the_projection_of_the_other_view() -> None:
    net, x = method(), views()
    z = projections(net, x)
    names, parameters = zip(*net.named_parameters(), strict=True)
    expected = torch.autograd.grad(algorithm(z, predictions(net, z)), parameters)
    value = torch.autograd.grad(net(x, labels()).loss, parameters)
    for name, got, reference in zip(names, value, expected, strict=True):
        assert reference.abs().max() > 0, name
        torch.testing.assert_close(got, reference, rtol=1e-8, atol=1e-10, msg=name)


def test_simsiam_gives_predictions_drawn_to_constant_projections_of_the_other_view() -> None:
    net, x = method(), views()
    out, z = net(x, labels()), projections(net, x)
    torch.testing.assert_close(out.embeddings, torch.stack(predictions(net, z)))
    torch.testing.assert_close(out.targets, torch.stack(z[N:] + z[:N]))
    assert not out.targets.requires_grad
    torch.testing.assert_close(out.features, net.backbone(x.flatten(0, 1)))


def test_simsiam_predictor_narrows_to_a_quarter_unless_told() -> None:
    assert method().predictor[0].out_features == 2
    assert SimSiam(Flat(), dimension=8, bottleneck=3).predictor[0].out_features == 3
