"""Measurements on a network by running it with other weights."""

from __future__ import annotations

import copy
import math

import torch
from torch import Tensor, nn

from normscope._checks import check_number, invalid
from normscope._precision import has_float64, widened
from normscope.interventions.cut_init import refuse_second_cut
from normscope.interventions.scope import Scope, is_normalisation, selected_parameters

# c is searched between 2**-20 and 2**20, up to this relative error of the norm.
_WIDEST = 20
_PRECISION = 1e-4


@torch.no_grad()
def suggest_cut(
    module: nn.Module, batch: Tensor, target_norm: float = 1.0, *, scope: Scope = "all"
) -> float:
    """The c for `cut_init_` that brings the mean embedding norm of a fresh network to a target.

    A target norm is no target rate: how fast weights turn depends on the learning rate and on the
    norms of the weights, and embeddings of one norm may come from slow or fast networks. For the
    cut that trains well, take `range_test`'s.

    Bisects on a copy, in the module's mode (train or eval). The module, its buffers and torch's
    random state stay as they were.

    Args:
        module: maps `batch` to embeddings, (..., d).
        batch: some inputs, on the module's device.
        target_norm: the mean norm wanted; reached to one part in ten thousand.
        scope: what `cut_init_` will cut.

    Raises:
        ValueError: if no c from 1e-6 to 1e6 reaches the target, or only one so large that the eps
            of a normalisation layer outweighs its input.

    >>> layer = nn.Linear(2, 2, bias=False)
    >>> _ = nn.init.eye_(layer.weight)
    >>> print(f"{suggest_cut(layer, torch.tensor([[6.0, 8.0]]), target_norm=2.0):.2f}")
    5.00
    """
    target = check_number("target_norm", target_norm, "The default is 1.")
    _check_batch(batch)
    refuse_second_cut(module)
    probe = copy.deepcopy(module)
    parameters = list(selected_parameters(probe, scope).values())
    fresh = [p.clone() for p in parameters]

    def mean_norm(log_c: float) -> float:
        for p, start in zip(parameters, fresh, strict=True):
            p.copy_(start / 2**log_c)
        z = _output(probe, batch)
        return float(torch.linalg.vector_norm(widened(z), dim=-1).mean())

    def unreachable(why: str) -> ValueError:
        return invalid("target_norm", "a mean norm that some cut gives", target, why)

    at_one = norm = mean_norm(0.0)
    too_large = at_one > target
    low = high = middle = 0.0
    while abs(norm / target - 1) > _PRECISION and (norm > target) == too_large:
        low, high = high, high + (1 if too_large else -1)  # double or halve c
        if abs(high) > _WIDEST:
            raise unreachable(
                f"It is {at_one:.4g} at c = 1 and still {norm:.4g} at c = 2**{low:.0f}. Does a "
                "normalisation layer or a bias that the scope leaves out hold it there?"
            )
        norm, middle = mean_norm(high), high
    while abs(norm / target - 1) > _PRECISION and abs(high - low) > 1e-9:
        middle = (low + high) / 2
        norm = mean_norm(middle)
        low, high = (middle, high) if (norm > target) == too_large else (low, middle)

    _remove_eps_(probe)
    # what eps takes off the norm, as a factor: more after the cut than before?
    if (mean_norm(middle) / norm) > 1.1 * (mean_norm(0.0) / at_one):
        raise unreachable(
            f"Only at c = {2**middle:.3g} are the weights so small that the eps of a "
            "normalisation layer outweighs its input. Choose a scope that comes after it."
        )
    return 2.0**middle


@torch.no_grad()
def scale_invariant_parameters(module: nn.Module, batch: Tensor) -> set[str]:
    r"""Names of the parameters whose scale does not change the output.

    A normalisation after such a weight removes its scale, also through ReLU and further linear
    layers if no bias comes between. Dividing the weight by c leaves every embedding as it was and
    multiplies its effective learning rate, $\gamma / \|w\|^2$, by $c^2$. That is all that
    cut-initialisation does to these weights.

    Tests a float64 copy (on the CPU where the device has none) in train mode with random weights,
    since zeros from an initialisation would hide later layers. Takes one forward pass per
    parameter, so a small batch is best. A parameter without any effect, such as a bias before
    batch normalisation, is not named.

    Args:
        module: maps `batch` to one tensor.
        batch: at least two inputs, on the module's device.

    >>> net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))
    >>> scale_invariant_parameters(net, torch.randn(16, 4))
    {'0.weight'}
    """
    _check_batch(batch)
    probe = copy.deepcopy(module)
    parameters = selected_parameters(probe, "all")
    if not has_float64(batch.device):
        probe, batch = probe.cpu(), batch.cpu()
    probe.double().train()
    _remove_eps_(probe)
    batch = batch.double() if batch.is_floating_point() else batch
    generator = torch.Generator(batch.device).manual_seed(0)
    for p in parameters.values():
        _randomise_(p, generator)
    reference = _output(probe, batch)

    def change() -> float:
        return float((_output(probe, batch) - reference).norm() / reference.norm())

    # Sixteen times the weight changes the output, unless its scale is removed: then only rounding
    # is left, or some 1e-5 from the eps of a normalisation layer that is not named a norm.
    factor, tolerance = 16.0, 1e-3
    names = set()
    for name, p in parameters.items():
        value = p.clone()
        p.mul_(factor)
        if change() < tolerance:
            _randomise_(p, generator)
            if change() > tolerance:
                names.add(name)
        p.copy_(value)
    return names


def _randomise_(p: Tensor, generator: torch.Generator) -> None:
    """Random values that keep activations of order one, in any layer."""
    fan_in = max(1, math.prod(p.shape[1:]))
    p.normal_(std=(2 / fan_in) ** 0.5, generator=generator)


def _remove_eps_(module: nn.Module) -> None:
    """Make the eps of every normalisation layer negligible."""
    for part in module.modules():
        if is_normalisation(part) and isinstance(getattr(part, "eps", None), float):
            part.eps = 1e-30  # pyright: ignore[reportArgumentType]


def _output(module: nn.Module, batch: Tensor) -> Tensor:
    """The module's output; batch, buffers and torch's random state do not change.

    The batch is copied because layers may work in place.
    """
    buffers = [(b, b.clone()) for b in module.buffers()]
    with torch.random.fork_rng(devices=[batch.device] if batch.is_cuda else []):
        z = module(batch.clone())
    for b, before in buffers:
        b.copy_(before)
    if not isinstance(z, Tensor) or z.ndim < 1 or z.numel() == 0:
        raise invalid("module", "a network that returns one tensor (..., d)", z, "Wrap it.")
    if z.isnan().any():
        raise invalid("module", "a network whose output is a number", "NaN", "Check the batch.")
    return z


def _check_batch(batch: Tensor) -> None:
    if not isinstance(batch, Tensor) or batch.ndim < 1 or len(batch) == 0:
        raise invalid("batch", "a tensor of inputs", batch, "Pass what the module is called with.")
