"""What every method shares: the shape of a step, momentum copies, and training defaults."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor, nn

Recipe = Literal["text", "as_coded", "fast"]


class StepOutput(NamedTuple):
    """Output of a forward pass: n images, m = 2n rows (n if only one view is embedded)."""

    loss: Tensor  # scalar
    embeddings: Tensor  # m d, raw, float32 or wider: where the loss acts
    targets: Tensor  # m d: what each row is pulled to
    features: Tensor  # m f: the backbone's


@dataclass(frozen=True)
class Defaults:
    """A method's default training settings; each value has its source where it is set."""

    batch: int
    lr: float  # for 256 images; multiplied by batch / 256
    weight_decay: float
    warmup_epochs: int
    augmentation: str
    optimizer: str = "sgd"
    nesterov: bool = False
    decay: Literal["all", "no_bias_norm"] = "all"
    net: str = "resnet50"  # Appendix C.1
    micro_batch: int | None = None  # what the network sees at a time; the batch unless given
    accumulation: Literal["mean", "sum"] = "mean"
    predictor_lr: float | None = None
    grad_scale_lr: float | None = None  # with GradScale at power one
    cosine_start: Literal["warmup", "zero"] = "warmup"
    horizon_epochs: int | None = None
    options: Mapping[str, object] = field(default_factory=dict)

    def steady(self, **values: Any) -> Defaults:
        """These with steps of a known angle, and what `values` says otherwise.

        The angle and the batch are from a probe of SimCLR, SimSiam and BYOL (ResNet-18, CIFAR-10,
        four angles, one or two seeds). Of these a run of BYOL is stored; those of the others are at
        .05, which 8 epochs preferred. The other methods take them as they are.
        """
        usual = {"optimizer": "angular", "lr": 0.02, "weight_decay": 0.0, "micro_batch": None}
        return replace(self, **{**usual, "batch": 512, **values})


@dataclass(frozen=True)
class Tiny:
    """Other defaults for tiny datasets such as digits: sizes for a laptop's CPU."""

    options: Mapping[str, object]
    net: str = "resnet10_narrow"
    optimizer: str | None = None  # None: as elsewhere
    lr: float | None = None
    batch: int = 64
    augmentation: str = "digits"
    epochs: int = 60
    knn_k: int = 20  # a class of digits has 135 training images


class Method(nn.Module):
    """A network and a loss on two views of a batch.

    Subclasses set `backbone`, `projector` and, if they have them, `predictor` and
    `momentum_encoder`, and the training defaults below. They know no intervention: layers between
    the network and the loss are appended to `embedder`.
    """

    TITLE: ClassVar[str]  # as its authors write it
    TEXT: ClassVar[Defaults]  # what the paper says, or where it is silent the method's own paper
    AS_CODED: ClassVar[Defaults | None] = None  # what the paper's published code does
    FAST: ClassVar[Defaults]  # our own: steps of a known angle
    TINY: ClassVar[Tiny]
    HAS_PREDICTOR: ClassVar[bool] = False
    USES_CLASSES: ClassVar[bool] = False
    SPANS_RUN: ClassVar[bool] = False  # whether `after_step` depends on the run's length

    backbone: nn.Module
    projector: nn.Sequential
    predictor: nn.Sequential
    momentum_encoder: nn.Module

    @property
    def embedder(self) -> nn.Sequential:
        """The last layers before the loss; their output is `StepOutput.embeddings`."""
        return self.predictor if self.HAS_PREDICTOR else self.projector

    @property
    def splits_over_processes(self) -> bool:
        """Whether processes that each have a part of the batch take the step of a single one."""
        return True

    def forward(self, views: Tensor, labels: Tensor) -> StepOutput:
        """The loss of one batch; views 2 n 3 s s, labels n (only supervised methods look)."""
        raise NotImplementedError

    def layers(self, x: Tensor) -> dict[str, Tensor]:
        """Every output that can be evaluated, by name, for images n 3 s s; the last is z."""
        h = self.backbone(x)
        return {"backbone": h, **self.heads(h)}

    def heads(self, h: Tensor) -> dict[str, Tensor]:
        """The heads' outputs, for the backbone's features n f."""
        z = self.projector(h)
        return {"projector": z} | ({"predictor": self.predictor(z)} if self.HAS_PREDICTOR else {})

    def after_step(self, progress: float) -> None:
        """Called after each optimizer step with the share of the training that is done."""

    def follow(self, momentum: float) -> None:
        """Move the momentum encoder, if there is one; at 0 it becomes a copy of the online one."""
        target = getattr(self, "momentum_encoder", None)
        if target is not None:
            follow_(target, nn.Sequential(self.backbone, self.projector), momentum)


def width_of(backbone: nn.Module) -> int:
    """How many features a backbone gives."""
    return int(backbone.width)  # pyright: ignore[reportArgumentType]


def momentum_copy(module: nn.Module) -> nn.Module:
    """A copy that no gradient reaches."""
    return copy.deepcopy(module).requires_grad_(False)


@torch.no_grad()
def follow_(target: nn.Module, online: nn.Module, momentum: float) -> None:
    r"""$\xi \leftarrow m \xi + (1 - m) \theta$ for every parameter, in a few kernels."""
    theirs, ours = list(target.parameters()), list(online.parameters())
    torch._foreach_lerp_(theirs, ours, 1 - momentum)  # pyright: ignore


def rising(start: float, progress: float) -> float:
    r"""$1 - (1 - m_0) (\cos \pi t + 1) / 2$: a momentum that grows from $m_0$ to 1.

    BYOL (Grill et al., 2020, Section 3.2).

    >>> rising(0.99, 0.0), rising(0.99, 1.0)
    (0.99, 1.0)
    """
    return 1 - (1 - start) * (math.cos(math.pi * progress) + 1) / 2


def other_view(z: Tensor) -> Tensor:
    """The rows with the two halves exchanged: each row's counterpart in the other view, 2n d."""
    return z.roll(len(z) // 2, 0)


def wide(z: Tensor) -> Tensor:
    """The embeddings in float32 or wider, also under autocast."""
    return z.to(torch.promote_types(z.dtype, torch.float32))
