"""Supervised contrastive learning (Khosla et al., 2020): SimCLR that knows the classes."""

from __future__ import annotations

from torch import Tensor, nn

from normscope.losses import supervised_info_nce
from normscope.methods.base import Defaults, Method, StepOutput, Tiny, other_view, wide, width_of
from normscope.nets import mlp


class SupCon(Method):
    """Supervised contrastive learning, on one process.

    Args:
        backbone: images to features, with the attribute `width`.
        dimension: of the embeddings; 128 (SupCon, Section 3.1).
        temperature: .1 (SupCon, Section 4).
    """

    TITLE = "SupCon"
    TEXT = Defaults(
        batch=1024,  # SupCon's code for CIFAR
        lr=0.125,  # .5 at batch 1024, likewise
        weight_decay=1e-4,  # likewise
        warmup_epochs=10,  # likewise
        augmentation="simsiam",  # likewise: crop .2-1, jitter .4 .4 .4 .1
    )
    FAST = TEXT.steady()
    TINY = Tiny(options={"dimension": 64})
    USES_CLASSES = True

    def __init__(
        self, backbone: nn.Module, *, dimension: int = 128, temperature: float = 0.1
    ) -> None:
        super().__init__()
        width = width_of(backbone)
        self.backbone = backbone
        self.projector = mlp([width, width, dimension], batch_norm=False)
        self.temperature = temperature

    @property
    def splits_over_processes(self) -> bool:
        """Positives are sought within one process."""
        return False

    def forward(self, views: Tensor, labels: Tensor) -> StepOutput:
        """All rows of the batch that share a class are positives."""
        h = self.backbone(views.flatten(0, 1))  # 2n f
        z = wide(self.projector(h))  # 2n d
        loss = supervised_info_nce(
            z, labels.repeat(2), temperature=self.temperature, positives="all"
        )
        return StepOutput(loss, z, other_view(z), h)
