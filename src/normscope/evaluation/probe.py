"""A linear classifier on frozen features, trained to convergence."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from normscope._checks import check_floating, check_labels, check_number, invalid
from normscope._precision import in_float64

# The largest entry of the gradient at which the fit counts as converged. In float32 the line
# search stalls above it: losses that near each other are the same number.
_TOLERANCE = 1e-6
_RIDGE = 1e-8  # keeps the second moments of collinear features positive definite
_ROWS = 8192  # transformed at a time


@dataclass(frozen=True)
class ProbeResult:
    """A linear classifier's output for each test row.

    Attributes:
        predictions: the class with the highest logit, (n,).
        logits: (n, classes).
        weight: on raw features, (classes, d), so that `logits = features @ weight.T + bias`.
        bias: (classes,).
        classes: the label of each logit: those of the training rows, sorted.
        loss: the objective reached.
        converged: whether its gradient's largest entry, in the coordinates of the fit, fell to 1e-6
            within the steps allowed.
    """

    predictions: Tensor
    logits: Tensor
    weight: Tensor
    bias: Tensor
    classes: Tensor
    loss: float
    converged: bool

    def accuracy(self, truth: Tensor) -> float:
        """The share of test rows whose true label was predicted."""
        if truth.shape != self.predictions.shape:
            constraint = f"of shape {tuple(self.predictions.shape)}"
            raise invalid("truth", constraint, truth, "One label a test row.")
        return int((self.predictions == truth.to(self.predictions.device)).sum()) / len(truth)


def linear_probe(
    features: Tensor,
    labels: Tensor,
    test_features: Tensor,
    *,
    l2: float = 1e-4,
    steps: int = 1000,
) -> ProbeResult:
    r"""Multinomial logistic regression on standardised features, by full-batch L-BFGS.

    Minimises $\operatorname{mean}_i -\log \mathrm{softmax}(W x_i + b)_{y_i}
    + \frac{\lambda}{2} \|W\|^2$, which has one minimum: no learning rate, no seed. Each column of
    x is centred and scaled to unit variance over the training rows; a constant one is left out.
    The fit works in coordinates in which the features are nearly uncorrelated, which takes fewer
    steps to the same minimum. It uses float64 (on the CPU where the device has none), one copy of
    the features and three d x d matrices.
    The result is float32 or wider.

    Args:
        features: of the training rows, (m, d).
        labels: integers of at least two classes, (m,).
        test_features: (n, d).
        l2: $\lambda$; scikit-learn's C is 1 / (m $\lambda$).
        steps: of L-BFGS, at most.

    >>> x, y = torch.tensor([[0.0], [1.0], [4.0], [5.0]]), torch.tensor([3, 3, 8, 8])
    >>> linear_probe(x, y, torch.tensor([[0.5], [9.0]])).predictions
    tensor([3, 8])
    """
    _check(features, labels, test_features, steps)
    penalty = check_number("l2", l2, "The default is 1e-4.")
    x = in_float64(features.detach()).clone()
    mean, std = x.mean(0), x.std(0, correction=0)
    constant = std <= 1e-6 * torch.linalg.vector_norm(x, torch.inf, dim=0)  # up to rounding
    scale = (1 / std).masked_fill(constant, 0.0)
    x.sub_(mean).mul_(scale)
    classes, y = labels.unique(return_inverse=True)
    y = y.to(x.device)
    if x.shape[1] > len(x):  # the penalty keeps the weight in the span of the rows
        span = torch.linalg.qr(x.T).Q
        w, b, loss, slope = _fit(x @ span, y, len(classes), penalty, steps)
        w = w @ span.T
    else:
        w, b, loss, slope = _fit(x, y, len(classes), penalty, steps)
    weight = w * scale
    bias = b - (weight * mean).sum(1)
    wide = torch.promote_types(features.dtype, torch.float32)
    weight, bias = (part.to(features.device, wide) for part in (weight.to(wide), bias.to(wide)))
    with torch.no_grad(), torch.autocast(features.device.type, enabled=False):
        logits = F.linear(test_features.to(wide), weight, bias)
    predictions = classes[logits.argmax(1)]
    return ProbeResult(predictions, logits, weight, bias, classes, loss, slope <= _TOLERANCE)


@torch.enable_grad()
def _fit(
    x: Tensor, y: Tensor, classes: int, l2: float, steps: int
) -> tuple[Tensor, Tensor, float, float]:
    """Weight, bias, the loss there and the largest entry of its slope; overwrites `x`.

    Features of a network are nearly collinear, and plain L-BFGS takes many steps on them. The
    Hessian of the loss is nowhere above half the features' second moments (Böhning, 1992), plus the
    penalty's; in coordinates that make this bound the identity few steps will do.
    """
    bound = (x.T @ x).div_(2 * len(x))
    bound.diagonal().add_(max(l2, _RIDGE))
    root = torch.linalg.cholesky(bound)
    one = torch.eye(len(root), dtype=root.dtype, device=root.device)
    inverse = torch.linalg.solve_triangular(root, one, upper=False)
    for rows in x.split(_ROWS):
        rows.copy_(rows @ inverse.T)
    v = x.new_zeros(classes, x.shape[1], requires_grad=True)  # the weight is v @ inverse
    b = x.new_zeros(classes, requires_grad=True)
    optimiser = torch.optim.LBFGS(
        [v, b],
        max_iter=steps,
        max_eval=2 * steps,
        tolerance_grad=_TOLERANCE / max(1.0, l2) ** 0.5,  # a stiff penalty's coordinates are small
        tolerance_change=0.0,  # only the gradient stops it
        history_size=20,
        line_search_fn="strong_wolfe",
    )

    def closure() -> Tensor:
        optimiser.zero_grad()
        with torch.autocast(x.device.type, enabled=False):
            penalty = l2 / 2 * (v @ inverse).square().sum()
            loss = F.cross_entropy(F.linear(x, v, b), y) + penalty
            loss.backward()
        return loss

    optimiser.step(closure)  # pyright: ignore[reportArgumentType]
    loss = closure().item()
    slope = max(float(p.grad.abs().max()) for p in (v, b) if p.grad is not None)
    return v.detach() @ inverse, b.detach(), loss, slope


def _check(features: Tensor, labels: Tensor, test_features: Tensor, steps: int) -> None:
    for name, value in (("features", features), ("test_features", test_features)):
        check_floating(name, value, "(n, d)", ndim=2, advice="Pass raw features.")
        if value.numel() == 0:
            raise invalid(name, "at least one row and one column", value, "Check the split.")
        if not value.isfinite().all():
            raise invalid(name, "finite", "NaN or infinity", "Did the training diverge?")
    check_labels(labels, features)
    if len(labels.unique()) < 2:
        raise invalid("labels", "of two classes or more", labels, "One class is not enough.")
    if test_features.shape[1] != features.shape[1] or test_features.device != features.device:
        constraint = f"of {features.shape[1]} columns on {features.device}, as features is"
        raise invalid("test_features", constraint, test_features, "Both come from one network.")
    if not isinstance(steps, int) or steps < 1:
        raise invalid("steps", "a positive integer", steps, "The default is 1000.")
