r"""Pairs of points drawn together by the cosine similarity, until they meet.

A pair has an angle $\phi$ and moving points of norm $\rho$. One step of gradient descent moves a
point by $\eta \sin\phi / \rho$ across its own direction, towards the other, and weight decay
pulls it back along it by $\delta$; so all that happens stays in the plane of the pair, and two
numbers per pair ($\rho$ and $\cos\phi$) determine the future exactly. The same dynamics on
the embeddings themselves is kept beside it as a check.

Paper: Section 4.1, Appendix B.1, Table "weight_decay_convergence".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Literal, Protocol

import numpy as np
import torch
from torch import Tensor

from normscope.extend import check_number, invalid, unit
from normscope.theory import cosine_grad

CONVERGED, ANTIPODAL, OVERSHOOTS, DIVERGES, OUT_OF_STEPS = range(5)
OUTCOMES = ("converged", "antipodal", "overshoots", "diverges", "out of steps")

# A cell in which some point has jumped over the origin in so many steps is given up: decay is
# larger than what is left of the norm, and the next step finds it so again.
_JUMPS = 1000
_STEPS_BETWEEN_SIEVES = 50

_TARGET = 0.999  # the mean cosine at which the paper calls a set converged


@dataclass(frozen=True)
class PairRule:
    r"""What moves the pairs.

    Args:
        moves: `"both"` sides, as the paper's code has it, or `"one"`, as its text.
        step: $\eta$, the step size per pair.
        pull: the decay's step per point: $\delta$ is this (`"norm"`: the penalty is the mean
            norm) or this times $2 \rho$ (`"squared"`: the mean squared norm).
        decay: which of the two.
    """

    moves: Literal["both", "one"]
    step: float
    pull: float
    decay: Literal["norm", "squared"]

    def left_of(self, norm: Tensor, unit: float = 1.0) -> Tensor:
        """What decay leaves, in one step, of norms measured in some unit."""
        if self.decay == "squared":
            return norm * (1 - 2 * self.pull)
        return norm - self.pull / unit if self.pull else norm


@dataclass(frozen=True)
class PairResult:
    """When each cell of a grid converged, and what became of those that did not.

    Args:
        steps: (seeds, norms, alphas), int64; -1 where it did not converge.
        outcomes: (seeds, norms, alphas), indices into `OUTCOMES`.
    """

    steps: np.ndarray
    outcomes: np.ndarray


class _Engine(Protocol):
    """A way of computing the dynamics of many cells (c) of n pairs each."""

    def step(self) -> Tensor | None:
        """Move every pair once; returns which jumped over the origin, (c, n), if any could."""
        ...

    def cosines(self) -> Tensor:
        """The cosine of each pair, (c, n)."""
        ...

    def keep(self, cells: Tensor) -> None:
        """Forget all other cells."""
        ...


class _Recursion:
    r"""The exact recursion on the norm and the cosine of each pair.

    In units where the step is one ($\rho / \sqrt\eta$), with $q = \sin^2\phi$, a point comes to
    lie $a = \rho - \delta$ along its old direction and $t = \sqrt q / \rho$ across it. If both
    move, the angle shrinks by twice $\arctan(t / a)$, else by once:

    $\rho'^2 = a^2 + t^2$ and $\cos\phi' = (\cos\phi\,(a^2 - t^2) + 2 a q / \rho) / \rho'^2$, or
    $(a \cos\phi + q / \rho) / \rho'$.
    """

    def __init__(self, norms: Tensor, cosines: Tensor, rule: PairRule) -> None:
        self.unit = rule.step**0.5
        self.norm, self.cos, self.rule = norms / self.unit, cosines, rule

    def step(self) -> Tensor | None:
        norm, cos = self.norm, self.cos
        across_sin = torch.addcmul(torch.ones(()), cos, cos, value=-1).div_(norm)  # q / rho
        across2 = across_sin / norm  # t^2
        along = self.rule.left_of(norm, self.unit)
        along2 = along * along
        square = along2 + across2
        self.norm = square.sqrt()
        if self.rule.moves == "both":
            cos.mul_(along2.sub_(across2)).addcmul_(along, across_sin, value=2).div_(square)
        else:
            cos.mul_(along).add_(across_sin).div_(self.norm)
        return along < 0 if self.rule.pull else None

    def cosines(self) -> Tensor:
        return self.cos

    def keep(self, cells: Tensor) -> None:
        self.norm, self.cos = self.norm[cells], self.cos[cells]


class _Embeddings:
    """The embeddings themselves, (c, n, d), moved along the closed-form gradient."""

    def __init__(self, z1: Tensor, z2: Tensor, rule: PairRule) -> None:
        self.z1, self.z2, self.rule = z1, z2, rule

    def step(self) -> Tensor:
        z1, z2, eta = self.z1, self.z2, self.rule.step
        moved, jumped = [], torch.zeros(z1.shape[:2], dtype=torch.bool)
        for z, t in ((z2, z1), (z1, z2))[: 2 if self.rule.moves == "both" else 1]:
            direction, norm = unit(z)
            left = self.rule.left_of(norm)
            moved.append(left * direction - eta * cosine_grad(z, t))
            jumped = jumped | (left < 0).squeeze(-1)
        self.z2, self.z1 = (*moved, z1)[:2]
        return jumped

    def cosines(self) -> Tensor:
        return (unit(self.z1)[0] * unit(self.z2)[0]).sum(-1)

    def keep(self, cells: Tensor) -> None:
        self.z1, self.z2 = self.z1[cells], self.z2[cells]


def converge_pairs(
    norms: Sequence[float],
    alphas: Sequence[float],
    *,
    moves: Literal["both", "one"] = "both",
    n: int = 500,
    d: int = 20,
    lr: float = 10.0,
    weight_decay: float = 0.0,
    decay: Literal["norm", "squared"] = "norm",
    seeds: Sequence[int] = (0,),
    engine: Literal["recursion", "embeddings"] = "recursion",
    most_steps: int = 200_000,
) -> PairResult:
    r"""Gradient descent on $-\operatorname{mean} \cos + \gamma \operatorname{mean} \|z\|$.

    n pairs of random directions in d dimensions move until their mean cosine passes .999. The
    second point of a pair is turned beforehand to $(1 - |\alpha|) x_2 + \alpha x_1$, and the
    moving points are scaled to the given norm.

    Args:
        norms: initial norms, each positive.
        alphas: angle factors in [-1, 1]: 1 aligned, 0 random, -1 antipodal.
        moves: which side is scaled and moved: `"both"` as the paper's code, `"one"` as its text.
        n: pairs.
        d: dimension.
        lr: learning rate; the loss is a mean, so a pair moves by `lr / n`.
        weight_decay: $\gamma$; the penalty is the mean over all 2n points.
        decay: of the norm (`"norm"`, which gives the paper's table) or of its square.
        seeds: each draws its own pairs.
        engine: `"recursion"` on norm and angle, or the `"embeddings"` themselves; they agree
            step for step.
        most_steps: where to give up; such cells are `"out of steps"`.

    >>> result = converge_pairs([1.0, 2.0], [0.0, -1.0], n=50)
    >>> result.steps[0].tolist(), [OUTCOMES[o] for o in result.outcomes[0, :, 1]]
    ([[9, -1], [38, -1]], ['antipodal', 'antipodal'])
    """
    norm, alpha = _check_grid(norms, alphas)
    check_number("lr", lr, "The paper takes 10.")
    if check_number("weight_decay", weight_decay, "0 is none.", positive=False) < 0:
        raise invalid("weight_decay", "at least 0", weight_decay, "0 is none.")
    if len(seeds) == 0 or not all(isinstance(s, Integral) and 0 <= s < 2**63 for s in seeds):
        raise invalid("seeds", "whole numbers of at least 0", seeds, "One draw of pairs each.")
    for name, count in (("n", n), ("d", d), ("most_steps", most_steps)):
        if not isinstance(count, Integral) or isinstance(count, bool) or count < 1:
            raise invalid(name, "a whole number of at least 1", count, "See the defaults.")
    for name, value, allowed in (
        ("moves", moves, ("both", "one")),
        ("decay", decay, ("norm", "squared")),
        ("engine", engine, ("recursion", "embeddings")),
    ):
        if value not in allowed:
            raise invalid(name, f"one of {allowed}", value, "The first is the default.")
    rule = PairRule(moves, step=lr / n, pull=lr * weight_decay / (2 * n), decay=decay)
    cells, antipodal = _initial_cells(norm, alpha, seeds, n, d, rule, engine)
    steps, outcomes = _run(cells, antipodal, most_steps)
    shape = (len(seeds), len(norm), len(alpha))
    return PairResult(steps.view(shape).numpy(), outcomes.view(shape).numpy())


def steps_to_convergence(
    norms: Sequence[float],
    alphas: Sequence[float],
    moves: Literal["both", "one"] = "both",
    n: int = 500,
    d: int = 20,
    lr: float = 10.0,
    weight_decay: float = 0.0,
    decay: Literal["norm", "squared"] = "norm",
    seed: int = 0,
) -> np.ndarray:
    """`converge_pairs` for one seed: steps, (norms, alphas), -1 where it does not converge.

    >>> steps_to_convergence([0.5, 1.0], [0.0])
    array([[24],
           [97]])
    """
    return converge_pairs(
        norms,
        alphas,
        moves=moves,
        n=n,
        d=d,
        lr=lr,
        weight_decay=weight_decay,
        decay=decay,
        seeds=[seed],
    ).steps[0]


def _check_grid(norms: Sequence[float], alphas: Sequence[float]) -> tuple[Tensor, Tensor]:
    norm = torch.as_tensor(norms, dtype=torch.float64)
    alpha = torch.as_tensor(alphas, dtype=torch.float64)
    if norm.ndim != 1 or not bool(((norm > 0) & norm.isfinite()).all()):
        raise invalid("norms", "a list of positive numbers", norms, "One row of the grid each.")
    if alpha.ndim != 1 or not bool((alpha.abs() <= 1).all()):
        raise invalid("alphas", "a list of numbers from -1 to 1", alphas, "One column each.")
    return norm, alpha


def _initial_cells(
    norm: Tensor,
    alpha: Tensor,
    seeds: Sequence[int],
    n: int,
    d: int,
    rule: PairRule,
    engine: str,
) -> tuple[_Engine, Tensor]:
    """All cells, seeds times norms times alphas, and which of them are antipodal."""
    generators = [torch.Generator().manual_seed(int(seed)) for seed in seeds]
    x = torch.stack([torch.randn(2, n, d, generator=g, dtype=torch.float64) for g in generators])
    x1, x2 = unit(x)[0].unbind(1)  # seeds n d
    x1, x2 = x1[:, None, None], x2[:, None, None]  # seeds 1 1 n d
    a = alpha[:, None, None]
    x2 = unit((1 - a.abs()) * x2 + a * x1)[0]  # seeds 1 alphas n d
    x1, x2 = torch.broadcast_tensors(x1, x2)
    rho = norm[:, None, None, None]
    cos = (x1 * x2).sum(-1)
    # No gradient moves an antipodal pair; what rounding leaves of its angle is not one. Too many
    # of them, and the mean cannot reach the target even if all others do.
    antipodal = (1 + cos < 1e-12).double().mean(-1) * 2 > 1 - _TARGET
    grid = (len(seeds), len(norm), len(alpha))
    antipodal = antipodal.expand(grid).flatten()
    if engine == "embeddings":
        first = x1 * rho if rule.moves == "both" else x1
        z1, z2 = (z.expand(*grid, n, d).flatten(0, 2) for z in (first, x2 * rho))
        return _Embeddings(z1, z2, rule), antipodal
    norms, cosines = (t.expand(*grid, n).flatten(0, 2).clone() for t in (rho[..., 0], cos))
    return _Recursion(norms, cosines, rule), antipodal


def _run(cells: _Engine, antipodal: Tensor, most_steps: int) -> tuple[Tensor, Tensor]:
    """Step all cells together, setting each aside as soon as its fate is known."""
    total = len(antipodal)
    steps = torch.full((total,), -1)
    outcomes = torch.full((total,), OUT_OF_STEPS)
    outcomes[antipodal] = ANTIPODAL
    running = (~antipodal).nonzero().squeeze(1)
    cells.keep(running)
    undecided = torch.ones(len(running), dtype=torch.bool)
    jumps = torch.zeros(len(running), dtype=torch.int64)
    for count in range(most_steps + 1):
        mean = cells.cosines().mean(1)
        met = (mean > _TARGET) & undecided
        if bool(met.any()):
            steps[running[met]] = count
            outcomes[running[met]] = CONVERGED
            undecided &= ~met
        if count % _STEPS_BETWEEN_SIEVES == 0 or not bool(undecided.any()):
            for fate, lost in ((OVERSHOOTS, jumps >= _JUMPS), (DIVERGES, ~mean.isfinite())):
                outcomes[running[lost & undecided]] = fate
                undecided &= ~lost
            left = undecided.nonzero().squeeze(1)
            if len(left) == 0:
                break
            if len(left) < len(running):
                cells.keep(left)
                running, jumps = running[left], jumps[left]
                undecided = undecided[left]
        jumped = cells.step()
        if jumped is not None:
            jumps += jumped.any(1)
    return steps, outcomes
