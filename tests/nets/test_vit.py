"""Vision transformers: names, attention against loops, positions, and odd formats."""

import math

import pytest
import torch
from torch import nn

from normscope.nets import VisionTransformer, vit_micro, vit_small, vit_tiny
from normscope.nets.vit import Attention, Block, sincos_positions

BLOCK = {
    "norm1.weight": (192,),
    "norm1.bias": (192,),
    "attn.qkv.weight": (576, 192),
    "attn.qkv.bias": (576,),
    "attn.proj.weight": (192, 192),
    "attn.proj.bias": (192,),
    "norm2.weight": (192,),
    "norm2.bias": (192,),
    "mlp.fc1.weight": (768, 192),
    "mlp.fc1.bias": (768,),
    "mlp.fc2.weight": (192, 768),
    "mlp.fc2.bias": (192,),
}
TINY = {
    "cls_token": (1, 1, 192),
    "pos_embed": (1, 197, 192),
    "patch_embed.proj.weight": (192, 3, 16, 16),
    "patch_embed.proj.bias": (192,),
    **{f"blocks.{i}.{name}": shape for i in range(12) for name, shape in BLOCK.items()},
    "norm.weight": (192,),
    "norm.bias": (192,),
}


@pytest.mark.parametrize("positions", ["learned", "sincos"])
def test_vit_tiny_has_timms_names_and_shapes(positions) -> None:
    net = vit_tiny(side=224, positions=positions)
    assert {name: tuple(v.shape) for name, v in net.state_dict().items()} == TINY
    assert ("pos_embed" in dict(net.named_parameters())) == (positions == "learned")


def test_vit_small_has_the_published_size_and_six_heads() -> None:
    net = vit_small(side=224)
    assert sum(p.numel() for p in net.parameters()) == 21_665_664  # DINO's, head left out
    assert net.blocks[0].attn.heads == 6


@pytest.mark.parametrize(("side", "patches"), [(8, 16), (32, 64), (64, 64), (128, 64), (224, 196)])
def test_vit_takes_the_patch_that_goes_with_the_side(side: int, patches: int) -> None:
    net = vit_micro(side=side)
    assert net.pos_embed.shape == (1, 1 + patches, 48)
    assert net(torch.zeros(2, 3, side, side)).shape == (2, net.width) == (2, 48)


def test_attention_equals_plain_loops() -> None:
    layer = Attention(6, heads=2).double()
    x = torch.randn(2, 5, 6, dtype=torch.float64)
    for i in range(2):
        q, k, v = layer.qkv(x[i]).split(6, dim=1)
        rows = []
        for a in range(5):
            row = []
            for columns in (slice(0, 3), slice(3, 6)):
                logits = [q[a, columns] @ k[b, columns] / math.sqrt(3) for b in range(5)]
                weights = torch.stack(logits).softmax(0)
                row.append(sum(weights[b] * v[b, columns] for b in range(5)))
            rows.append(layer.proj(torch.cat(row)))
        torch.testing.assert_close(layer(x)[i], torch.stack(rows))


def test_block_equals_torchs_pre_norm_encoder_layer() -> None:
    block = Block(8, heads=2).double()
    theirs = nn.TransformerEncoderLayer(
        8, 2, 32, dropout=0, activation="gelu", layer_norm_eps=1e-6, batch_first=True,
        norm_first=True, dtype=torch.float64,
    )  # fmt: skip
    for part in (block.norm1, block.norm2):
        nn.init.normal_(part.weight)
    names = {
        "attn.qkv.": "self_attn.in_proj_",
        "attn.proj.": "self_attn.out_proj.",
        "mlp.fc1.": "linear1.",
        "mlp.fc2.": "linear2.",
    }
    state = {}
    for name, value in block.state_dict().items():
        for ours, other in names.items():
            name = name.replace(ours, other)
        state[name] = value
    theirs.load_state_dict(state)
    x = 0.01 * torch.randn(2, 5, 8, dtype=torch.float64)  # small, so that eps is felt
    torch.testing.assert_close(block(x), theirs(x))


def test_vit_is_blind_to_the_order_of_patches_but_for_their_positions() -> None:
    net = vit_micro(side=8).double()
    x = torch.randn(2, 3, 8, 8, dtype=torch.float64)
    swapped = x.roll(4, dims=3)
    assert (net(x) - net(swapped)).abs().max() > 1e-6
    with torch.no_grad():
        net.pos_embed.zero_()
    torch.testing.assert_close(net(x), net(swapped))


def test_vit_reads_patches_row_by_row() -> None:
    net = vit_micro(side=8)
    x = torch.zeros(1, 3, 8, 8)
    x[..., 0:2, 2:4] = 1.0
    tokens = net.patch_embed(x)[0]
    assert (tokens - net.patch_embed.proj.bias).abs().sum(1).nonzero().tolist() == [[1]]


def test_every_part_of_a_vit_reaches_the_output() -> None:
    net = vit_micro(side=8).double()
    net(torch.randn(4, 3, 8, 8, dtype=torch.float64))[:, :5].square().sum().backward()
    for name, p in net.named_parameters():
        assert p.grad.abs().max() > 0, name


def test_vit_starts_from_a_truncated_normal_of_a_fiftieth() -> None:
    net = vit_tiny(side=32)
    for p in (net.blocks[5].mlp.fc1.weight, net.pos_embed, net.cls_token):
        assert p.std().item() == pytest.approx(0.02, rel=0.15)
    assert net.blocks[5].mlp.fc1.bias.abs().max() == 0


@pytest.mark.parametrize("width", [48, 192])
def test_sincos_positions_are_distinct_and_nearest_to_their_neighbours(width: int) -> None:
    positions = sincos_positions(8, width)
    distance = torch.cdist(positions, positions).fill_diagonal_(torch.inf)
    assert distance.min() > 0.1
    rows, columns = torch.arange(64) // 8, torch.arange(64) % 8
    nearest = distance.argmin(1)
    steps = (rows[nearest] - rows).abs() + (columns[nearest] - columns).abs()
    assert (steps == 1).all()


def test_sincos_positions_equal_their_formula() -> None:
    value = sincos_positions(3, 8)[1 * 3 + 2]  # row 1, column 2
    angles = [2, 2 / 100, 1, 1 / 100]
    x, y = angles[:2], angles[2:]
    expected = [f(a) for axis in (x, y) for f in (math.sin, math.cos) for a in axis]
    torch.testing.assert_close(value, torch.tensor(expected))


def test_vit_under_autocast_stays_close() -> None:
    net = vit_micro(side=8)
    x = torch.rand(4, 3, 8, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        low = net(x)
    torch.testing.assert_close(low.float(), net(x), rtol=0.05, atol=0.05)


def test_vit_in_channels_last_gives_the_same_features() -> None:
    net = vit_micro(side=8).double()
    x = torch.randn(4, 3, 8, 8, dtype=torch.float64)
    torch.testing.assert_close(net(x.to(memory_format=torch.channels_last)), net(x))


def test_vit_refuses_wrong_arguments_in_one_line() -> None:

    def small(*, side: int) -> VisionTransformer:
        return VisionTransformer(side=side, patch=2, width=8, heads=2, depth=1)

    cases = [
        (lambda: vit_micro(side=30), r"side must be one of \[8, 32, 64, 128, 224\], got 30"),
        (lambda: vit_micro(side=8, positions="no"), "positions must be 'learned' or 'sincos'"),
        (lambda: small(side=9), "patch must be a divisor of side 9"),
        (lambda: vit_micro(side=8)(torch.zeros(1, 3, 8, 16)), "x must be images of side 8"),
        (lambda: sincos_positions(2, 6), "width must be a multiple of 4, got 6"),
    ]
    for call, message in cases:
        with pytest.raises(ValueError, match=message) as error:
            call()
        assert "\n" not in str(error.value)
