"""ResNets without their classifier, under torchvision's parameter names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from normscope._checks import invalid
from normscope.nets.layers import fused_features, fuses

Stem = Literal["cifar", "imagenet"]


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut (He et al., 2016), (n, c, h, w) -> (n, c', h', w').

    The last norm starts at weight zero, so that a fresh block passes its shortcut on.
    """

    expansion = 1

    def __init__(self, channels: int, width: int, *, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = _conv(channels, width, 3, stride=stride)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = _conv(width, width, 3)
        self.bn2 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = _shortcut(channels, width, stride=stride)
        nn.init.zeros_(self.bn2.weight)

    def pairs(self) -> list[tuple[nn.Conv2d, nn.BatchNorm2d]]:
        """Convolutions with the norms that follow them, in order."""
        return [(self.conv1, self.bn1), (self.conv2, self.bn2)]

    def forward(self, x: Tensor) -> Tensor:
        """The shortcut plus what the convolutions add, through a ReLU."""
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        return self.relu(out + (x if self.downsample is None else self.downsample(x)))


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions and a shortcut, the stride on the 3x3 as in torchvision.

    The last norm starts at weight zero, so that a fresh block passes its shortcut on.
    """

    expansion = 4

    def __init__(self, channels: int, width: int, *, stride: int = 1) -> None:
        super().__init__()
        out_channels = width * self.expansion
        self.conv1 = _conv(channels, width, 1)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = _conv(width, width, 3, stride=stride)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = _conv(width, out_channels, 1)
        self.bn3 = nn.BatchNorm2d(out_channels)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = _shortcut(channels, out_channels, stride=stride)
        nn.init.zeros_(self.bn3.weight)

    def pairs(self) -> list[tuple[nn.Conv2d, nn.BatchNorm2d]]:
        """Convolutions with the norms that follow them, in order."""
        return [(self.conv1, self.bn1), (self.conv2, self.bn2), (self.conv3, self.bn3)]

    def forward(self, x: Tensor) -> Tensor:
        """The shortcut plus what the convolutions add, through a ReLU."""
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        return self.relu(out + (x if self.downsample is None else self.downsample(x)))


Block = type[BasicBlock] | type[Bottleneck]


class ResNet(nn.Module):
    """A residual network (He et al., 2016) up to its average pool, (n, 3, h, w) -> (n, width).

    Args:
        block: what the four stages are made of.
        depths: blocks of each stage.
        stem: `"imagenet"` starts with a 7x7 convolution of stride 2 and a max-pool; `"cifar"`
            with a 3x3 of stride 1 and no pool, for small images (SimCLR, Appendix B.9).
        widths: inner channels of each stage's blocks; the first is the stem's too.
        strides: of each stage's first block.

    Attributes:
        width: features per image.
    """

    def __init__(
        self,
        block: Block,
        depths: Sequence[int],
        *,
        stem: Stem,
        widths: Sequence[int] = (64, 128, 256, 512),
        strides: Sequence[int] = (1, 2, 2, 2),
    ) -> None:
        super().__init__()
        if stem not in ("cifar", "imagenet"):
            raise invalid("stem", "'cifar' or 'imagenet'", stem, "Up to 32 pixels take 'cifar'.")
        large = stem == "imagenet"
        self.conv1 = _conv(3, widths[0], 7, stride=2) if large else _conv(3, widths[0], 3)
        self.bn1 = nn.BatchNorm2d(widths[0])
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1) if large else nn.Identity()
        inputs = [widths[0], *(width * block.expansion for width in widths[:3])]
        self.layer1 = _stage(block, inputs[0], widths[0], depth=depths[0], stride=strides[0])
        self.layer2 = _stage(block, inputs[1], widths[1], depth=depths[1], stride=strides[1])
        self.layer3 = _stage(block, inputs[2], widths[2], depth=depths[2], stride=strides[2])
        self.layer4 = _stage(block, inputs[3], widths[3], depth=depths[3], stride=strides[3])
        self.width = widths[3] * block.expansion

    def forward(self, x: Tensor) -> Tensor:
        """Images to features, (n, 3, h, w) -> (n, width)."""
        if fuses(self, (BasicBlock, Bottleneck), x):
            return fused_features(self, x)
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))  # n width h w
        return x.mean((2, 3))


def resnet18(*, stem: Stem) -> ResNet:
    """ResNet-18: 512 features, 11,176,512 parameters with the ImageNet stem."""
    return ResNet(BasicBlock, (2, 2, 2, 2), stem=stem)


def resnet50(*, stem: Stem) -> ResNet:
    """ResNet-50: 2048 features, 23,508,032 parameters with the ImageNet stem."""
    return ResNet(Bottleneck, (3, 4, 6, 3), stem=stem)


def resnet10_narrow() -> ResNet:
    """One BasicBlock a stage, 16 to 128 channels, CIFAR stem: for 8x8 digits on a CPU.

    The last stages keep 2 x 2 places. A block begins as its shortcut, which looks at one place in
    four where it strides: after three strides a fresh network would see a corner of the digit.

    >>> net = resnet10_narrow()
    >>> net(torch.zeros(2, 3, 8, 8)).shape, net.width
    (torch.Size([2, 128]), 128)
    """
    widths, strides = (16, 32, 64, 128), (1, 2, 2, 1)
    return ResNet(BasicBlock, (1, 1, 1, 1), stem="cifar", widths=widths, strides=strides)


@torch.no_grad()
def load_torchvision_(net: ResNet, state_dict: Mapping[str, Tensor]) -> ResNet:
    """Load published torchvision weights in place, without their classifier; returns the network.

    Args:
        net: of the same depth, with the ImageNet stem.
        state_dict: of torchvision's `resnet18` or `resnet50`. Its `fc.*` is left out; all else
            must fit, and nothing is loaded if it does not.
    """
    own = net.state_dict()
    if "cut_init_c" in own:
        advice = "They replace what the cut divided: load them into a network that is not cut."
        raise invalid("net", "uncut, to load published weights", "one after cut_init_", advice)
    given = {name: v for name, v in state_dict.items() if not name.startswith("fc.")}
    shapes = [{name: v.shape for name, v in part.items()} for part in (own, given)]
    # older files do not count batches; torch fills that in
    every = sorted(n for n in own.keys() | given.keys() if not n.endswith("num_batches_tracked"))
    wrong = [name for name in every if shapes[0].get(name) != shapes[1].get(name)]
    if wrong:
        got = f"{len(wrong)} names or shapes that differ, such as {wrong[0]}"
        advice = "Published weights have the ImageNet stem and one depth."
        raise invalid("state_dict", "the weights of this network", got, advice)
    net.load_state_dict(given)
    return net


def _stage(block: Block, channels: int, width: int, *, depth: int, stride: int) -> nn.Sequential:
    """Blocks of one width; the first takes the stride."""
    first = block(channels, width, stride=stride)
    return nn.Sequential(first, *(block(width * block.expansion, width) for _ in range(depth - 1)))


def _conv(channels: int, out_channels: int, size: int, *, stride: int = 1) -> nn.Conv2d:
    """A convolution before a norm: no bias, He's initialisation over the outputs."""
    conv = nn.Conv2d(channels, out_channels, size, stride=stride, padding=size // 2, bias=False)
    nn.init.kaiming_normal_(conv.weight, mode="fan_out", nonlinearity="relu")
    return conv


def _shortcut(channels: int, out_channels: int, *, stride: int) -> nn.Sequential | None:
    """A 1x1 convolution where the shape changes, nothing where it stays."""
    if stride == 1 and channels == out_channels:
        return None
    conv = _conv(channels, out_channels, 1, stride=stride)
    return nn.Sequential(conv, nn.BatchNorm2d(out_channels))
