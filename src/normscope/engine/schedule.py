"""The learning rate at every step."""

from __future__ import annotations

import math

from normscope.engine.spec import RunSpec
from normscope.optim import OPTIMIZERS


def peak_lr(spec: RunSpec) -> float:
    """The learning rate at the end of the warm-up: linear in the batch (Appendix C.1).

    An optimizer whose rate is an angle takes it as it is.
    """
    return spec.lr * (1 if OPTIMIZERS[spec.optimizer].is_angle else spec.batch / 256)


def lr_share(spec: RunSpec, epoch: float) -> float:
    r"""The share of the peak learning rate at a time in epochs.

    Linear up to the warm-up's end, then $\frac12 (1 + \cos \pi t)$, t from the warm-up's end (or
    from the run's start, as the published code has it) to the horizon.

    >>> spec = RunSpec(epochs=100)  # ten epochs of warm-up
    >>> [round(lr_share(spec, t), 3) for t in (0, 5, 10, 55, 100)]
    [0.0, 0.5, 1.0, 0.5, 0.0]
    """
    if epoch < spec.warmup_epochs:
        return epoch / spec.warmup_epochs
    start = spec.warmup_epochs if spec.cosine_start == "warmup" else 0.0
    t = min(1.0, (epoch - start) / max(spec.horizon_epochs - start, 1e-12))
    return (1 + math.cos(math.pi * t)) / 2
