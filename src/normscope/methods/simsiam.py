"""SimSiam (Chen & He, 2021): a predictor, a stopped gradient, and no negatives."""

from __future__ import annotations

from torch import Tensor, nn

from normscope.losses import negative_cosine
from normscope.methods.base import Defaults, Method, StepOutput, Tiny, other_view, wide, width_of
from normscope.nets import mlp


class SimSiam(Method):
    """SimSiam.

    Args:
        backbone: images to features, with the attribute `width`.
        dimension: of the embeddings and of the projector's layers; 2048 (Appendix C.1).
        bottleneck: the predictor's hidden width; a quarter of it (SimSiam, Section 3).
    """

    TITLE = "SimSiam"
    TEXT = Defaults(
        batch=1024,  # Appendix C.1
        micro_batch=256,  # Appendix C.1
        lr=0.12,  # Appendix C.1
        weight_decay=5e-4,  # Appendix C.1
        warmup_epochs=10,  # Appendix C.1
        augmentation="simsiam",
    )
    AS_CODED = Defaults(
        batch=1024,
        micro_batch=128,  # the published configuration
        accumulation="sum",
        lr=0.01,  # the published .2 acts as .2 * .2 = .04 at batch 1024
        predictor_lr=0.2,  # a second optimizer, never scheduled
        weight_decay=5e-4,
        nesterov=True,
        warmup_epochs=80,  # 10, counted in optimizer steps but reckoned in micro-batches
        cosine_start="zero",
        horizon_epochs=4096,  # 512, likewise
        augmentation="as_coded",
    )
    FAST = TEXT.steady()
    TINY = Tiny(options={"dimension": 256})
    HAS_PREDICTOR = True

    def __init__(
        self, backbone: nn.Module, *, dimension: int = 2048, bottleneck: int | None = None
    ) -> None:
        super().__init__()
        d, width = dimension, width_of(backbone)
        self.backbone = backbone
        # the last norm has no scale of its own (SimSiam's code)
        self.projector = mlp([width, d, d, d], batch_norm=True, last_batch_norm="plain")
        self.predictor = mlp([d, bottleneck or d // 4, d], batch_norm=True)

    def forward(self, views: Tensor, labels: Tensor) -> StepOutput:  # noqa: ARG002
        """Each view's prediction against the other view's projection, both ways averaged."""
        h = self.backbone(views.flatten(0, 1))  # 2n f
        z = wide(self.projector(h))  # 2n d
        p = wide(self.predictor(z))
        target = other_view(z.detach())
        return StepOutput(negative_cosine(p, target), p, target, h)
