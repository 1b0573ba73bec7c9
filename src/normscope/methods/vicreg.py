r"""VICReg (Bardes et al., 2022): variance, invariance, covariance, and no cosine.

With $s(x) = \sqrt{\operatorname{Var} x + \epsilon}$ over the batch, $C$ the covariance of a view's
embeddings and d their dimension,

$\mathcal L = \lambda \frac{1}{n d} \sum_i \|z_i - z_i'\|^2
+ \mu \sum_{\text{views}} \frac{1}{2d} \sum_j \max(0, 1 - s(z^j))
+ \nu \sum_{\text{views}} \frac{1}{d} \sum_{j \ne k} C_{jk}^2$.

The variance term pulls every coordinate's deviation to one, and so the norms of embeddings to
$\sqrt d$: unlike a cosine loss, this one sets the norm itself.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.distributed import is_available, is_initialized
from torch.nn import functional as F

from normscope.methods.base import Defaults, Method, StepOutput, Tiny, other_view, wide, width_of
from normscope.nets import mlp

_EPSILON = 1e-4  # VICReg, Section 4.1


class VICReg(Method):
    """VICReg.

    Args:
        backbone: images to features, with the attribute `width`.
        dimension: of the embeddings and of the projector's layers; 2048 (8192 for ImageNet in
            VICReg, Section 4.2).
        invariance: the weight of the views' distance; 25 (VICReg, Section 4.2).
        variance: of the deviations that fall short of one; 25 (likewise).
        covariance: of the correlations; 1 (likewise).
    """

    TITLE = "VICReg"
    TEXT = Defaults(
        batch=512,  # 2048 in VICReg
        optimizer="lars",  # VICReg, Section 4.2
        lr=0.2,  # VICReg, Section 4.2
        weight_decay=1e-6,  # VICReg, Section 4.2
        decay="no_bias_norm",  # VICReg's code
        warmup_epochs=10,  # VICReg, Section 4.2
        augmentation="byol",  # VICReg, Section 4.2
    )
    FAST = TEXT.steady()
    # LARS's steps are a thousandth of the weights: too few for a thousand of them
    TINY = Tiny(options={"dimension": 256}, optimizer="sgd", lr=0.05)

    def __init__(
        self,
        backbone: nn.Module,
        *,
        dimension: int = 2048,
        invariance: float = 25.0,
        variance: float = 25.0,
        covariance: float = 1.0,
    ) -> None:
        super().__init__()
        d = dimension
        self.backbone = backbone
        self.projector = mlp([width_of(backbone), d, d, d], batch_norm=True, last_bias=False)
        self.invariance, self.variance, self.covariance = invariance, variance, covariance

    def forward(self, views: Tensor, labels: Tensor) -> StepOutput:  # noqa: ARG002
        """The three terms over the batch of all processes."""
        h = self.backbone(views.flatten(0, 1))  # 2n f
        z = wide(self.projector(h))  # 2n d
        with torch.autocast(z.device.type, enabled=False):
            both = [_of_every_process(view) for view in z.chunk(2)]
            loss = self.invariance * F.mse_loss(both[0], both[1])
            for view in both:
                centred = view - view.mean(0)  # n d
                deviation = (centred.var(0) + _EPSILON).sqrt()
                square = centred.T @ centred / (len(view) - 1)  # d d
                off_diagonal = square.square().sum() - square.diagonal().square().sum()
                loss = loss + self.variance * F.relu(1 - deviation).mean() / 2
                loss = loss + self.covariance * off_diagonal / view.shape[1]
        return StepOutput(loss, z, other_view(z), h)


def _of_every_process(z: Tensor) -> Tensor:
    """The rows of all processes, through which gradients reach each process's own."""
    if not (is_available() and is_initialized()):
        return z
    from torch.distributed.nn.functional import all_gather

    return torch.cat(all_gather(z))
