"""How fast the embeddings and the weights can turn: effective learning rates."""

from __future__ import annotations

import torch
from torch import Tensor

from normscope.monitors.norm_moments import quantile
from normscope.monitors.observation import Observation


@torch.no_grad()
def rates(seen: Observation) -> dict[str, Tensor]:
    r"""The learning rate over the norms that divide it.

    Returns:
        `lr_over_norm`, $\gamma / \frac1n \sum_i \|z_i\|$, the paper's effective learning rate
        (a cosine's gradient is inversely proportional to the norm); `lr_over_norm_squared`,
        $\gamma / \frac1n \sum_i \|z_i\|^2$, how far a step turns an embedding (the step is
        divided by the norm once more). With weights, the median, least and largest over them of
        $\gamma / \|w\|^2$, $\|w\|$ over all entries of one tensor: `lr_over_weight_squared`,
        `lr_over_weight_squared_min` and `lr_over_weight_squared_max`.

    None counts GradScale in: at power p both rates of z stand for $\|z\|^p$ times as much.

    Paper: Figure "weight_decay_imbalanced", bottom row; Theorem "convergence_rate".

    >>> rates(Observation(torch.tensor([[3.0, 4.0], [0.0, 1.0]]), lr=0.6))
    {'lr_over_norm': tensor(0.2000), 'lr_over_norm_squared': tensor(0.0462)}
    """
    values = {
        "lr_over_norm": seen.lr / seen.norm.mean(),
        "lr_over_norm_squared": seen.lr / seen.norm.square().mean(),
    }
    if seen.weights:
        lengths = torch.stack([_length(w) for w in seen.weights.values()])
        ordered = (seen.lr / lengths.square()).sort().values
        values["lr_over_weight_squared"] = quantile(ordered, 0.5)
        values["lr_over_weight_squared_min"] = ordered[0]
        values["lr_over_weight_squared_max"] = ordered[-1]
    return values


def _length(w: Tensor) -> Tensor:
    """Norm over all entries, in float32 or wider and without a copy in it."""
    return torch.linalg.vector_norm(w, dtype=torch.promote_types(w.dtype, torch.float32))
