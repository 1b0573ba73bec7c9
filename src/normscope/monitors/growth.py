"""How the embeddings grow: what a step would do to them alone, and what was seen."""

from __future__ import annotations

import torch
from torch import Tensor

from normscope._sphere import norm_factor, safe_norm, unit
from normscope.monitors.observation import Observation


@torch.no_grad()
def growth(seen: Observation) -> dict[str, Tensor]:
    r"""Growth of the mean of $\|z\|^2$ in one step, as predicted and as seen.

    A free embedding under plain SGD goes to $\|z'\|^2 = \|z\|^2 + \gamma^2 \|g\|^2$, where g is
    what reaches it, after GradScale: the gradient of a cosine loss is orthogonal to z.

    Returns:
        With a gradient, `growth_predicted`, $\frac1n \sum_i \gamma^2 \|g_i\|^2$, of the coming
        step, and `radial_share`, the mean of $|g_i \cdot \hat z_i| / \|g_i\|$ (a zero gradient
        counts as zero): zero up to rounding if the loss is cosine-based. With a previous
        observation, `growth_seen`, the change of the mean of $\|z\|^2$ since then, per step.

    So compare one observation's prediction with the growth seen in the next. They are equal if z
    itself is trained. In a network they differ: it moves weights that all rows share, weight decay
    shrinks them, momentum adds steps up, and the next batch holds other examples. In float32 the
    growth seen is good to 1e-7 of the mean of $\|z\|^2$.

    Paper: Corollary "embeddings_grow".

    >>> seen = Observation(torch.tensor([[2.0, 0.0]]), lr=0.5, grad=torch.tensor([[0.0, -4.0]]))
    >>> growth(seen)
    {'growth_predicted': tensor(4.), 'radial_share': tensor(0.)}
    """
    values = {}
    if seen.grad is not None:
        reach = safe_norm(seen.grad).squeeze(-1)
        if seen.power != 0:
            reach = reach * norm_factor(seen.norm, seen.power, seen.power_of)
        values["growth_predicted"] = (seen.lr * reach).square().mean()
        values["radial_share"] = (unit(seen.grad)[0] * seen.z_hat).sum(-1).abs().mean()
    if seen.previous_square is not None:
        change = seen.norm.square().mean() - seen.previous_square
        values["growth_seen"] = change / seen.steps
    return values
