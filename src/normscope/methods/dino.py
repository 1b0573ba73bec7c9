"""DINO (Caron et al., 2021): a student classifies as its own moving average does."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor, nn

from normscope.losses import dino, updated_center
from normscope.methods.base import (
    Defaults,
    Method,
    StepOutput,
    Tiny,
    follow_,
    momentum_copy,
    other_view,
    rising,
    wide,
    width_of,
)
from normscope.nets import Prototypes, mlp


class DINO(Method):
    """DINO with two global views and no local ones: at 32 pixels a local crop shows nothing.

    Its loss is a cross-entropy, not a cosine: the paper's counter-example. Only the bottleneck
    before the prototypes is normalised, so that is where `embeddings` are taken.

    Args:
        backbone: images to features, with the attribute `width`.
        dimension: of the bottleneck; 256 (DINO, Section 3.1).
        hidden: of the head; 2048 (DINO, Section 3.1).
        prototypes: how many classes to invent; 4096 (65,536 for ImageNet in DINO).
        temperature: of the student; .1 (DINO, Section 3.2).
        teacher_temperature: .04 (DINO, Section 3.2, before its warm-up to .07).
        momentum: of the teacher at the start, rising to one; .996 (DINO, Section 3.2).
    """

    TITLE = "DINO"
    TEXT = Defaults(
        net="vit_small",  # DINO, Section 3.2
        batch=512,  # 1024 in DINO
        optimizer="adamw",
        lr=5e-4,  # DINO, Section 3.2
        weight_decay=0.04,  # DINO, Section 3.2, where it then rises to .4
        decay="no_bias_norm",  # DINO's code
        warmup_epochs=10,  # DINO, Section 3.2, and Appendix C.1
        augmentation="byol",  # DINO, Section 3.2
    )
    FAST = TEXT.steady()
    TINY = Tiny(
        options={"dimension": 64, "hidden": 256, "prototypes": 256},
        net="vit_micro",
        lr=4e-3,  # .001 at batch 64: a thousand steps are few for Adam
    )
    SPANS_RUN = True

    def __init__(
        self,
        backbone: nn.Module,
        *,
        dimension: int = 256,
        hidden: int = 2048,
        prototypes: int = 4096,
        temperature: float = 0.1,
        teacher_temperature: float = 0.04,
        momentum: float = 0.996,
    ) -> None:
        super().__init__()
        width = width_of(backbone)
        self.backbone = backbone
        self.projector = mlp(
            [width, hidden, hidden, dimension], batch_norm=False, activation="gelu"
        )
        self.prototypes = Prototypes(dimension, prototypes)
        self.momentum_encoder = momentum_copy(nn.Sequential(backbone, self.projector))
        self.momentum_prototypes = momentum_copy(self.prototypes)
        self.temperature, self.teacher_temperature = temperature, teacher_temperature
        self.momentum = momentum
        self.center: Tensor
        self.started: Tensor
        self.register_buffer("center", torch.zeros(prototypes))
        self.register_buffer("started", torch.zeros((), dtype=torch.bool))

    def forward(self, views: Tensor, labels: Tensor) -> StepOutput:  # noqa: ARG002
        """Cross-entropy of each view's student against the other view's teacher."""
        x = views.flatten(0, 1)
        h = self.backbone(x)  # 2n f
        z = wide(self.projector(h))  # 2n d
        student = self.prototypes(z)  # 2n m
        with torch.no_grad():
            their_z = wide(self.momentum_encoder(x))
            teacher = self.momentum_prototypes(their_z)
        student, teacher = student.unflatten(0, (2, -1)), teacher.unflatten(0, (2, -1))  # 2 n m
        self._start_center(teacher)
        loss = dino(
            student,
            teacher,
            self.center,
            student_temperature=self.temperature,
            teacher_temperature=self.teacher_temperature,
        )
        self.center.copy_(_mean_over_processes(updated_center(self.center, teacher)))
        return StepOutput(loss, z, other_view(their_z), h)

    @torch.no_grad()
    def _start_center(self, teacher: Tensor) -> None:
        """Start at the first batch's mean: from zero, the loss would rise at first."""
        mean = _mean_over_processes(teacher.mean((0, 1)))
        self.center.copy_(self.center.where(self.started, mean))
        self.started.fill_(True)

    def after_step(self, progress: float) -> None:
        """Let the teacher follow."""
        self.follow(rising(self.momentum, progress))

    def follow(self, momentum: float) -> None:
        """Move the teacher towards the student."""
        super().follow(momentum)
        follow_(self.momentum_prototypes, self.prototypes, momentum)


def _mean_over_processes(x: Tensor) -> Tensor:
    if dist.is_available() and dist.is_initialized():
        dist.all_reduce(x)
        x /= dist.get_world_size()
    return x
