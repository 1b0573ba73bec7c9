"""Heads: what layers they have, and prototypes that know no norm."""

import pytest
import torch
from torch import nn

from normscope.nets import NETS, Prototypes, backbone, mlp


def test_mlp_with_batch_norm_is_simsiams_projector() -> None:
    head = mlp([8, 6, 6, 4], batch_norm=True, last_batch_norm="plain")
    kinds = [nn.Linear, nn.BatchNorm1d, nn.ReLU] * 2 + [nn.Linear, nn.BatchNorm1d]
    assert [type(layer) for layer in head] == kinds
    assert all(layer.bias is None for layer in head if isinstance(layer, nn.Linear))
    assert head[1].affine
    assert not head[-1].affine
    z = head(torch.randn(32, 8))
    torch.testing.assert_close(z.mean(0), torch.zeros(4), rtol=0, atol=1e-5)
    torch.testing.assert_close(z.var(0, correction=0), torch.ones(4), rtol=1e-2, atol=0)


def test_mlp_without_batch_norm_is_moco_v2s_head() -> None:
    head = mlp([8, 8, 4], batch_norm=False)
    assert [type(layer) for layer in head] == [nn.Linear, nn.ReLU, nn.Linear]
    assert all(layer.bias is not None for layer in head if isinstance(layer, nn.Linear))


def test_mlp_last_layer_keeps_its_bias_only_where_nothing_takes_it_out() -> None:
    assert mlp([4, 2], batch_norm=True)[-1].bias is not None
    assert mlp([4, 2], batch_norm=True, last_bias=False)[-1].bias is None
    assert mlp([4, 2], batch_norm=False, last_batch_norm="plain")[0].bias is None


def test_mlp_of_two_widths_is_one_linear_layer() -> None:
    head = mlp([4, 2], batch_norm=True)
    assert [type(layer) for layer in head] == [nn.Linear]


def test_mlp_takes_gelu_for_dino() -> None:
    head = mlp([4, 4, 4, 2], batch_norm=False, activation="gelu")
    assert [type(layer) for layer in head][1::2] == [nn.GELU, nn.GELU]


def test_prototypes_feel_no_norm_of_input_or_weight() -> None:
    head = Prototypes(6, 5).double()
    z = torch.randn(3, 6, dtype=torch.float64)
    logits = head(z)
    assert logits.abs().max() <= 1
    with torch.no_grad():
        head.weight.mul_(torch.rand(5, 1, dtype=torch.float64) + 0.5)
    torch.testing.assert_close(head(7 * z), logits)


def test_prototypes_gradient_is_orthogonal_to_each_weight() -> None:
    head = Prototypes(6, 5).double()
    (head(torch.randn(3, 6, dtype=torch.float64)) ** 3).sum().backward()
    grad = head.weight.grad
    assert grad is not None
    assert grad.norm(dim=1).min() > 1e-3
    inner = (grad * head.weight.detach()).sum(1)
    torch.testing.assert_close(inner, torch.zeros_like(inner), rtol=0, atol=1e-12)


def test_prototypes_work_in_float32_on_half_input() -> None:
    logits = Prototypes(6, 5)(torch.randn(3, 6, dtype=torch.bfloat16))
    assert logits.dtype == torch.float32


@pytest.mark.parametrize("name", ["resnet10_narrow", "vit_micro"])
def test_backbone_says_its_width(name: str) -> None:
    net = backbone(name, side=8)
    assert net(torch.rand(2, 3, 8, 8)).shape == (2, net.width)


def test_backbone_chooses_the_stem_and_the_patch_by_the_side() -> None:
    assert backbone("resnet18", side=32).conv1.kernel_size == (3, 3)
    assert backbone("resnet18", side=64).conv1.kernel_size == (7, 7)
    assert backbone("vit_tiny", side=64).patch_embed.proj.kernel_size == (8, 8)


def test_backbone_knows_every_name_of_the_registry() -> None:
    with torch.device("meta"):
        for name in NETS:
            assert isinstance(backbone(name, side=32).width, int)


def test_nets_refuse_wrong_arguments_in_one_line() -> None:
    cases = [
        (lambda: backbone("resnet19", side=32), f"'resnet19'. There are {', '.join(NETS)}"),
        (lambda: backbone("resnet18", side=0), "side must be a positive integer, got 0"),
        (lambda: mlp([4], batch_norm=True), "widths must be at least two numbers"),
        (lambda: mlp([4, 2], batch_norm=True, last_batch_norm="x"), "last_batch_norm must be"),
        (lambda: mlp([4, 2], batch_norm=True, activation="x"), "activation must be"),
    ]
    for call, message in cases:
        with pytest.raises(ValueError, match=message) as error:
            call()
        assert "\n" not in str(error.value)
