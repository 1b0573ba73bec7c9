"""SimCLR (Chen et al., 2020): a projector, and InfoNCE between all views of the batch."""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn

from normscope.losses import cross_info_nce, info_nce
from normscope.methods.base import Defaults, Method, StepOutput, Tiny, other_view, wide, width_of
from normscope.nets import mlp


class SimCLR(Method):
    """SimCLR.

    Args:
        backbone: images to features, with the attribute `width`.
        dimension: of the embeddings; the paper takes 256 (its code 128).
        hidden: the projector's hidden width; the backbone's unless given (SimCLR, Section 4.2).
        temperature: .5, SimCLR's best on CIFAR-10 (Appendix B.9).
        loss: `"all"` views are negatives (Equation 1), or `"as_coded"`: one direction, negatives
            from the other view alone, the positive left out of the denominator.
    """

    TITLE = "SimCLR"
    TEXT = Defaults(
        batch=256,  # Appendix C.1
        lr=0.18,  # Appendix C.1
        weight_decay=1e-6,  # Appendix C.1
        warmup_epochs=10,  # Appendix C.1
        augmentation="simclr",
    )
    AS_CODED = Defaults(
        batch=256,
        lr=0.36,  # the published .6, which its scheduler multiplies by itself
        grad_scale_lr=0.01,  # the published .1, likewise
        weight_decay=1e-6,
        warmup_epochs=10,
        cosine_start="zero",
        horizon_epochs=512,
        augmentation="as_coded",
        options={"dimension": 128, "hidden": 128, "loss": "as_coded"},
    )
    # from the probe that `Defaults.steady` names; no stored run yet
    FAST = TEXT.steady(options={"temperature": 0.2})
    TINY = Tiny(options={"dimension": 64})

    def __init__(
        self,
        backbone: nn.Module,
        *,
        dimension: int = 256,
        hidden: int | None = None,
        temperature: float = 0.5,
        loss: Literal["all", "as_coded"] = "all",
    ) -> None:
        super().__init__()
        width = width_of(backbone)
        self.backbone = backbone
        self.projector = mlp([width, hidden or width, dimension], batch_norm=False)
        self.temperature, self.loss = temperature, loss

    @property
    def splits_over_processes(self) -> bool:
        """False for the published code's loss."""
        return self.loss == "all"

    def forward(self, views: Tensor, labels: Tensor) -> StepOutput:  # noqa: ARG002
        """InfoNCE of both views' projections."""
        h = self.backbone(views.flatten(0, 1))  # 2n f
        z = wide(self.projector(h))  # 2n d
        z1, z2 = z.chunk(2)
        if self.loss == "all":
            loss = info_nce(z1, z2, temperature=self.temperature, gather=True)
        else:
            loss = cross_info_nce(z1, z2, temperature=self.temperature, decoupled=True)
        return StepOutput(loss, z, other_view(z), h)
