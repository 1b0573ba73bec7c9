"""Vision transformers without their classifier, under timm's parameter names."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from normscope._checks import invalid

Positions = Literal["learned", "sincos"]

# 4x4 patches of 8 pixels, 8x8 of 32 to 128, 14x14 of 224: sequences that a small GPU bears.
_PATCH = {8: 2, 32: 4, 64: 8, 128: 16, 224: 16}
_EPS = 1e-6  # of every LayerNorm, as in timm and DINO
_STD = 0.02  # of the truncated normal that weights start from


class PatchEmbed(nn.Module):
    """Each patch through one linear map, (n, 3, side, side) -> (n, patches, width)."""

    def __init__(self, *, patch: int, width: int) -> None:
        super().__init__()
        self.proj = nn.Conv2d(3, width, patch, stride=patch)

    def forward(self, x: Tensor) -> Tensor:
        """Patches row by row."""
        return self.proj(x).flatten(2).transpose(1, 2)


class Attention(nn.Module):
    """Multi-head self-attention (Vaswani et al., 2017), (n, t, width) -> (n, t, width)."""

    def __init__(self, width: int, *, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Each token's mean of the values, weighted by softmax of query and keys."""
        n, t, width = x.shape
        qkv = self.qkv(x).reshape(n, t, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # n heads t width/heads
        x = F.scaled_dot_product_attention(q, k, v)
        return self.proj(x.transpose(1, 2).reshape(n, t, width))


class Mlp(nn.Module):
    """Two linear layers with a GELU between, four times as wide inside."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(width, 4 * width)
        self.fc2 = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Token by token, (n, t, width) -> (n, t, width)."""
        return self.fc2(F.gelu(self.fc1(x)))


class Block(nn.Module):
    """A pre-norm transformer block: attention, then the MLP, each added to what came in."""

    def __init__(self, width: int, *, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width, eps=_EPS)
        self.attn = Attention(width, heads=heads)
        self.norm2 = nn.LayerNorm(width, eps=_EPS)
        self.mlp = Mlp(width)

    def forward(self, x: Tensor) -> Tensor:
        """(n, t, width) -> (n, t, width)."""
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class VisionTransformer(nn.Module):
    """ViT (Dosovitskiy et al., 2021) up to its class token, (n, 3, side, side) -> (n, width).

    Args:
        side: pixels of an image's side.
        patch: pixels of a patch's side; divides `side`.
        width: of every token; a multiple of `heads`, and of 4.
        heads: of every attention.
        depth: blocks.
        positions: `"learned"`, as in DeiT and DINO, or `"sincos"`, fixed (`sincos_positions`), as
            in MoCo v3.

    Attributes:
        width: features per image.
    """

    def __init__(
        self,
        *,
        side: int,
        patch: int,
        width: int,
        heads: int,
        depth: int,
        positions: Positions = "learned",
    ) -> None:
        super().__init__()
        if side % patch:
            raise invalid("patch", f"a divisor of side {side}", patch, "Resize the images.")
        rows = side // patch
        self.side, self.width = side, width
        self.patch_embed = PatchEmbed(patch=patch, width=width)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, width))
        if positions == "learned":
            self.pos_embed = nn.Parameter(torch.zeros(1, 1 + rows**2, width))
            nn.init.trunc_normal_(self.pos_embed, std=_STD)
        elif positions == "sincos":
            fixed = torch.cat([torch.zeros(1, width), sincos_positions(rows, width)])
            self.register_buffer("pos_embed", fixed[None])
        else:
            raise invalid("positions", "'learned' or 'sincos'", positions, "DINO learns them.")
        self.blocks = nn.Sequential(*(Block(width, heads=heads) for _ in range(depth)))
        self.norm = nn.LayerNorm(width, eps=_EPS)
        nn.init.trunc_normal_(self.cls_token, std=_STD)
        for layer in self.modules():
            if isinstance(layer, nn.Linear):
                nn.init.trunc_normal_(layer.weight, std=_STD)
                nn.init.zeros_(layer.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Images to the class token after the last norm, (n, 3, side, side) -> (n, width)."""
        if x.shape[-2:] != (self.side, self.side):
            raise invalid("x", f"images of side {self.side}", x, "Build the network for its side.")
        x = self.patch_embed(x)  # n t width
        n = x.shape[0]  # `len(x)` would make a constant of it in an export
        x = torch.cat([self.cls_token.expand(n, -1, -1), x], dim=1)  # n 1+t width
        return self.norm(self.blocks(x + self.pos_embed)[:, 0])


def sincos_positions(rows: int, width: int) -> Tensor:
    r"""Fixed 2-d positions of a square grid of patches, (rows^2, width).

    A patch in column x and row y gets $\sin(\omega x), \cos(\omega x), \sin(\omega y),
    \cos(\omega y)$ at width/4 frequencies $\omega$ from 1 towards 1/10000.

    Source: MoCo v3 (Chen, Xie and He, 2021), "Implementation Details".

    >>> sincos_positions(2, 4)[0]
    tensor([0., 1., 0., 1.])
    """
    if width % 4:
        raise invalid("width", "a multiple of 4", width, "Two axes, a sine and a cosine each.")
    omega = 10000.0 ** -(torch.arange(width // 4, dtype=torch.float64) / (width // 4))
    index = torch.arange(rows**2)[:, None]
    x, y = index % rows * omega, index // rows * omega  # rows^2 width/4
    return torch.cat([x.sin(), x.cos(), y.sin(), y.cos()], dim=1).float()


def vit_tiny(*, side: int, positions: Positions = "learned") -> VisionTransformer:
    """ViT-Tiny (DeiT): 192 wide, 3 heads, 12 blocks."""
    return _vit(side, width=192, heads=3, depth=12, positions=positions)


def vit_small(*, side: int, positions: Positions = "learned") -> VisionTransformer:
    """ViT-Small with 6 heads, as in DeiT and DINO (MoCo v3 takes 12): 384 wide, 12 blocks."""
    return _vit(side, width=384, heads=6, depth=12, positions=positions)


def vit_micro(*, side: int, positions: Positions = "learned") -> VisionTransformer:
    """48 wide, 3 heads, 2 blocks: for 8x8 digits on a CPU.

    >>> net = vit_micro(side=8)
    >>> net(torch.zeros(2, 3, 8, 8)).shape, net.width
    (torch.Size([2, 48]), 48)
    """
    return _vit(side, width=48, heads=3, depth=2, positions=positions)


def _vit(
    side: int, *, width: int, heads: int, depth: int, positions: Positions
) -> VisionTransformer:
    """A transformer with the patch that goes with the side."""
    if side not in _PATCH:
        advice = "Resize, or build VisionTransformer with a patch of your own."
        raise invalid("side", f"one of {sorted(_PATCH)}", side, advice)
    return VisionTransformer(
        side=side,
        patch=_PATCH[side],
        width=width,
        heads=heads,
        depth=depth,
        positions=positions,
    )
