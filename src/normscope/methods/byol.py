"""BYOL (Grill et al., 2020): predict a slowly moving copy of oneself."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from normscope.losses import negative_cosine
from normscope.methods.base import (
    Defaults,
    Method,
    StepOutput,
    Tiny,
    momentum_copy,
    other_view,
    rising,
    wide,
    width_of,
)
from normscope.nets import mlp


class BYOL(Method):
    """BYOL.

    Args:
        backbone: images to features, with the attribute `width`.
        dimension: of the embeddings; 256 (BYOL, Section 3.2).
        hidden: of projector and predictor; 4096 (BYOL, Section 3.2).
        momentum: of the target at the start, rising to one; .99 (the paper's code; BYOL takes
            .996 at a thousand epochs and larger batches).
    """

    TITLE = "BYOL"
    # Appendix C gives none for BYOL: SimSiam's, whose loss it shares. There is no `as_coded`:
    # the published loop for BYOL stops at an undefined name.
    TEXT = Defaults(
        batch=1024,
        micro_batch=256,
        lr=0.12,
        weight_decay=5e-4,
        warmup_epochs=10,
        augmentation="byol",
    )
    FAST = TEXT.steady()
    TINY = Tiny(options={"dimension": 128, "hidden": 256})
    HAS_PREDICTOR = True
    SPANS_RUN = True

    def __init__(
        self,
        backbone: nn.Module,
        *,
        dimension: int = 256,
        hidden: int = 4096,
        momentum: float = 0.99,
    ) -> None:
        super().__init__()
        width = width_of(backbone)
        self.backbone = backbone
        self.projector = mlp([width, hidden, dimension], batch_norm=True, last_bias=False)
        self.momentum_encoder = momentum_copy(nn.Sequential(backbone, self.projector))
        self.predictor = mlp([dimension, hidden, dimension], batch_norm=True, last_bias=False)
        self.momentum = momentum

    def forward(self, views: Tensor, labels: Tensor) -> StepOutput:  # noqa: ARG002
        """Each view's prediction against the target's projection of the other."""
        x = views.flatten(0, 1)
        h = self.backbone(x)  # 2n f
        p = wide(self.predictor(self.projector(h)))  # 2n d
        with torch.no_grad():
            target = other_view(wide(self.momentum_encoder(x)))
        return StepOutput(negative_cosine(p, target), p, target, h)

    def after_step(self, progress: float) -> None:
        """Let the target follow."""
        self.follow(rising(self.momentum, progress))
