"""MoCo v2 (Chen et al., 2020b) with its queue, and v3 (Chen et al., 2021) with its predictor."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor, nn

from normscope._sphere import unit
from normscope.losses import cross_info_nce
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


class MoCoV2(Method):
    """MoCo v2: queries against a queue of earlier keys.

    Batch statistics are over the whole batch of all processes, without MoCo's shuffling. Queries
    and keys of a batch share them, which the network could use to cheat.

    Args:
        backbone: images to features, with the attribute `width`.
        dimension: of the embeddings; 128 (MoCo, Section 4).
        queue: how many keys are kept; 4096 for CIFAR (MoCo's own demonstration; 65,536 for
            ImageNet).
        temperature: .2 (MoCo v2, Section 3).
        momentum: of the key encoder; .99 for CIFAR (as above; .999 for ImageNet).
    """

    TITLE = "MoCo v2"
    TEXT = Defaults(
        batch=512,  # MoCo's CIFAR demonstration
        lr=0.03,  # MoCo, Section 4
        weight_decay=5e-4,  # MoCo's CIFAR demonstration (1e-4 for ImageNet)
        warmup_epochs=10,  # Appendix C.1
        augmentation="simsiam",  # MoCo v2's, which SimSiam took over
    )
    FAST = TEXT.steady()
    TINY = Tiny(options={"dimension": 64, "queue": 512})

    def __init__(
        self,
        backbone: nn.Module,
        *,
        dimension: int = 128,
        queue: int = 4096,
        temperature: float = 0.2,
        momentum: float = 0.99,
    ) -> None:
        super().__init__()
        width = width_of(backbone)
        self.backbone = backbone
        self.projector = mlp([width, width, dimension], batch_norm=False)
        self.momentum_encoder = momentum_copy(nn.Sequential(backbone, self.projector))
        self.temperature, self.momentum = temperature, momentum
        self.queue: Tensor
        self.oldest: Tensor
        self.register_buffer("queue", unit(torch.randn(queue, dimension))[0])
        self.register_buffer("oldest", torch.zeros((), dtype=torch.long))

    def forward(self, views: Tensor, labels: Tensor) -> StepOutput:  # noqa: ARG002
        """The first views as queries, the second as keys."""
        h = self.backbone(views[0])  # n f
        q = wide(self.projector(h))  # n d
        with torch.no_grad():
            k = wide(self.momentum_encoder(views[1]))
        loss = cross_info_nce(q, k, self.queue, temperature=self.temperature)
        self._enqueue(unit(k)[0])
        return StepOutput(loss, q, k, h)

    @torch.no_grad()
    def _enqueue(self, keys: Tensor) -> None:
        """Replace the oldest keys by those of every process."""
        if dist.is_available() and dist.is_initialized():
            parts = [torch.empty_like(keys) for _ in range(dist.get_world_size())]
            dist.all_gather(parts, keys)
            keys = torch.cat(parts)
        keys = keys[-len(self.queue) :]
        place = torch.arange(len(keys), device=keys.device) + self.oldest
        self.queue.index_copy_(0, place % len(self.queue), keys)
        self.oldest.add_(len(keys)).remainder_(len(self.queue))

    def after_step(self, progress: float) -> None:  # noqa: ARG002
        """Let the key encoder follow."""
        self.follow(self.momentum)


class MoCoV3(Method):
    """MoCo v3: no queue, a predictor, both directions; made for vision transformers.

    Args:
        backbone: images to features, with the attribute `width`; a transformer's patch
            projection stays as it was drawn (MoCo v3, Section 4.2).
        dimension: of the embeddings; 256 (MoCo v3, Section 3).
        hidden: of projector and predictor; 4096 (MoCo v3, Section 3).
        temperature: .2 (MoCo v3's code for ViT).
        momentum: of the key encoder at the start, rising to one; .99 (MoCo v3, Section 3).
    """

    TITLE = "MoCo v3"
    TEXT = Defaults(
        net="vit_small_fixed",  # MoCo v3, Section 5
        batch=1024,  # 4096 in MoCo v3
        optimizer="adamw",
        lr=1.5e-4,  # MoCo v3, Section 5
        weight_decay=0.1,  # MoCo v3, Section 5
        warmup_epochs=10,  # Appendix C.1 (40 in MoCo v3)
        augmentation="byol",  # MoCo v3, Section 3
    )
    FAST = TEXT.steady()
    TINY = Tiny(
        options={"dimension": 64, "hidden": 256},
        net="vit_micro",
        lr=4e-3,  # .001 at batch 64: a thousand steps are few for Adam
    )
    HAS_PREDICTOR = True
    SPANS_RUN = True

    def __init__(
        self,
        backbone: nn.Module,
        *,
        dimension: int = 256,
        hidden: int = 4096,
        temperature: float = 0.2,
        momentum: float = 0.99,
    ) -> None:
        super().__init__()
        width, d = width_of(backbone), dimension
        patches = getattr(backbone, "patch_embed", None)
        if patches is not None:
            patches.requires_grad_(False)
        self.backbone = backbone
        self.projector = mlp([width, hidden, hidden, d], batch_norm=True, last_batch_norm="plain")
        self.momentum_encoder = momentum_copy(nn.Sequential(backbone, self.projector))
        self.predictor = mlp([d, hidden, d], batch_norm=True, last_batch_norm="plain")
        self.temperature, self.momentum = temperature, momentum

    def forward(self, views: Tensor, labels: Tensor) -> StepOutput:  # noqa: ARG002
        """Each view's queries against the other view's keys."""
        x = views.flatten(0, 1)
        h = self.backbone(x)  # 2n f
        q = wide(self.predictor(self.projector(h)))  # 2n d
        with torch.no_grad():
            k = other_view(wide(self.momentum_encoder(x)))
        (q1, q2), (k1, k2) = q.chunk(2), k.chunk(2)
        tau = self.temperature
        both = cross_info_nce(q1, k1, temperature=tau) + cross_info_nce(q2, k2, temperature=tau)
        return StepOutput(2 * tau * both, q, k, h)  # 2 tau: MoCo v3, Algorithm 1

    def after_step(self, progress: float) -> None:
        """Let the key encoder follow."""
        self.follow(rising(self.momentum, progress))
