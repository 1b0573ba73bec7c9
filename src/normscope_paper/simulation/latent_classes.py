r"""Norms of a two-layer network that learns latent classes from a linear view of them.

Classes lie around random centres on a sphere, a random matrix makes observations of their points,
and supervised InfoNCE with plain SGD trains a network on those: frequent classes and dense regions
come out with larger norms. All seeds train at once, as one batched network.

Paper: Section 4.2, Figures "density" and "class_imbalance", Appendix "Parametric Simulations".

Shapes: b seeds, n points, k classes, d latent and output dimension, m rows of a batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Literal, NamedTuple

import torch
from torch import Generator, Tensor

from normscope.extend import check_number, invalid, orthogonal_part, unit

_LOWEST_TEMPERATURE = 0.025  # exp(1 / tau) and its inverse, summed over a batch, fit float32
_CHOICES = {
    "weights": ("balanced", "geometric"),
    "positives": ("one", "mutual"),
    "counts": ("exact", "drawn"),
}
_FEWEST = {
    **dict.fromkeys(("dim", "points", "batch"), 2),
    **dict.fromkeys(("classes", "epochs", "observed", "hidden"), 1),
}


def _is_integer(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


@dataclass(frozen=True)
class LatentRecipe:
    """All that decides a simulation but its seed; `dataclasses.replace` makes variants.

    Args:
        dim: coordinates of the latent points, and of the embeddings.
        points: points in all classes together.
        classes: latent classes.
        noise: standard deviation of a point about its centre, before both go to the sphere.
        epochs: passes over the points.
        observed: coordinates of an observation.
        hidden: width of the hidden layer.
        observation_scale: standard deviation of the observation matrix's entries.
        temperature: of InfoNCE, at least .025.
        lr: of plain SGD.
        batch: rows of a batch; the last of an epoch may be smaller.
        weights: how frequent the classes are: alike, or each twice as frequent as the next.
        positives: each row attracts the `"one"` it drew from its class, or (`"mutual"`) is
            attracted as well to those that drew it, their exponentials summed.
        counts: class sizes are the weights times `points`, rounded, or drawn by them.
    """

    dim: int
    points: int
    classes: int
    noise: float
    epochs: int
    observed: int = 64  # Section 4.2: g into R^64
    hidden: int = 64  # this, the temperature and lr: Simulations.ipynb; the text gives none
    observation_scale: float = 1.0  # Appendix: "a random matrix"
    temperature: float = 1.0
    lr: float = 0.01
    batch: int = 128  # Appendix
    weights: Literal["balanced", "geometric"] = "balanced"
    positives: Literal["one", "mutual"] = "one"
    counts: Literal["exact", "drawn"] = "exact"

    def __post_init__(self) -> None:
        advice = "See RECIPES for the paper's."
        for name, value in vars(self).items():
            if name in _CHOICES:
                if value not in _CHOICES[name]:
                    raise invalid(name, " or ".join(map(repr, _CHOICES[name])), value, advice)
            elif name in _FEWEST:
                if not _is_integer(value) or value < _FEWEST[name]:
                    raise invalid(name, f"an integer, {_FEWEST[name]} or more", value, advice)
            else:
                check_number(name, value, advice)
        if self.temperature < _LOWEST_TEMPERATURE:
            constraint = f"at least {_LOWEST_TEMPERATURE}"
            raise invalid("temperature", constraint, self.temperature, advice)


# The imbalanced figure: replace(recipe, weights="geometric"), and for "as_coded" also noise=1.0,
# since the notebook gives that figure another noise (class_vars=np.ones_like(class_weights)).
RECIPES: dict[str, LatentRecipe] = {
    "text": LatentRecipe(
        dim=11,  # Section 4.2: S^10 in R^11
        points=4000,  # Appendix: 1000 a class
        classes=4,  # Section 4.2
        noise=math.sqrt(0.1),  # Appendix: N(c, 0.1 I)
        epochs=50,  # Appendix, caption of the learned latent space
        positives="one",  # Appendix: "simply another data point from the same latent class"
        counts="exact",  # Appendix: "for each center, we produce 1000"
    ),
    "as_coded": LatentRecipe(
        dim=10,  # Simulations.ipynb, cell 7, which leaves the rest to cell 4
        points=2000,  # cell 7: 500 times 4
        classes=4,  # cell 7
        noise=0.1,  # cell 4: class_vars multiplies the noise, so it is no variance
        epochs=50,  # cell 6 plots entries 0 to 49 of 100 epochs
        observation_scale=10.0,  # cell 4
        positives="mutual",  # cell 4: pos_mask is made symmetric
        counts="drawn",  # cell 4: torch.multinomial
    ),
}


@dataclass(frozen=True)
class LatentData:
    """Latent points, (b, n, d), sorted by label, (b, n); centres, (b, k, d); observations."""

    latents: Tensor
    labels: Tensor
    centres: Tensor
    observations: Tensor


@dataclass(frozen=True)
class LatentRun:
    """What training gave.

    `norms`: mean embedding norm by class before training and after each epoch,
    (b, epochs + 1, k), NaN for a class that drew no point; `embeddings` and `untrained`: all
    points after training and before, (b, n, d); `losses`: mean over each epoch, (b, epochs).
    """

    data: LatentData
    norms: Tensor
    embeddings: Tensor
    untrained: Tensor
    losses: Tensor


def latent_data(recipe: LatentRecipe, *, seeds: Sequence[int]) -> LatentData:
    """The data of each seed, the same whichever other seeds are asked for.

    >>> data = latent_data(RECIPES["text"], seeds=range(2))
    >>> data.observations.shape, data.labels[0].bincount().tolist()
    (torch.Size([2, 4000, 64]), [1000, 1000, 1000, 1000])
    """
    return _data(recipe, _generators(seeds))


@torch.no_grad()
def train_latent_classes(
    recipe: LatentRecipe,
    *,
    seeds: Sequence[int],
    progress: Callable[[int, int], None] | None = None,
) -> LatentRun:
    """Train one network per seed on the seed's own data, all of them at once.

    Every draw for a seed comes from its own generator, so its run does not depend, beyond
    rounding, on the other seeds; and the first epochs of a run are those of a longer one.
    40 seeds of `"as_coded"` take about 4 s on two cores.

    Args:
        recipe: one of `RECIPES`, or a `dataclasses.replace` of one.
        seeds: distinct integers.
        progress: called after each epoch with the epochs done and the epochs in all.
    """
    generators = _generators(seeds)
    data = _data(recipe, generators)
    network = _network(recipe, generators)
    member = torch.nn.functional.one_hot(data.labels, recipe.classes).to(torch.float32)  # b n k
    member = (member / member.sum(1, keepdim=True)).mT
    origin = torch.arange(len(generators))[:, None] * recipe.points  # b 1

    untrained = z = _forward(network, data.observations)[1]
    norms, losses = [member @ z.norm(dim=-1, keepdim=True)], []
    for epoch in range(recipe.epochs):
        order = _drawn(generators, lambda g: torch.randperm(recipe.points, generator=g))  # b n
        draw = _drawn(generators, lambda g: torch.rand(recipe.points, generator=g))
        partner = _partners(data.labels.gather(1, order), draw, recipe)
        shown = data.observations.flatten(0, 1).index_select(0, (order + origin).flatten())
        steps = [
            _sgd_step_(network, x, p, recipe)
            for x, p in zip(
                shown.view_as(data.observations).split(recipe.batch, dim=1),
                partner.split(recipe.batch, dim=1),
                strict=True,
            )
        ]
        losses.append(torch.stack(steps).mean(0))
        z = _forward(network, data.observations)[1]
        norms.append(member @ z.norm(dim=-1, keepdim=True))
        if progress is not None:
            progress(epoch + 1, recipe.epochs)
    return LatentRun(data, torch.cat(norms, -1).mT, z, untrained, torch.stack(losses, 1))


def _generators(seeds: Sequence[int]) -> list[Generator]:
    advice = "For example range(25)."
    if not isinstance(seeds, Sequence) or isinstance(seeds, str) or len(seeds) == 0:
        raise invalid("seeds", "a sequence of at least one integer", seeds, advice)
    for seed in seeds:
        if not _is_integer(seed) or not 0 <= seed < 2**63:
            raise invalid("seeds", "integers from 0 to 2**63 - 1", seed, advice)
    if len(set(seeds)) < len(seeds):
        raise invalid("seeds", "distinct", seeds, "Equal seeds give equal runs.")
    return [Generator().manual_seed(int(seed)) for seed in seeds]


def _drawn(generators: list[Generator], draw: Callable[[Generator], Tensor]) -> Tensor:
    """One draw from each generator, stacked: the only place that goes from seed to seed."""
    return torch.stack([draw(g) for g in generators])


def _data(recipe: LatentRecipe, generators: list[Generator]) -> LatentData:
    d, n, k = recipe.dim, recipe.points, recipe.classes

    def normal(*shape: int) -> Tensor:
        return _drawn(generators, lambda g: torch.randn(shape, generator=g))

    ratio = 0.5 if recipe.weights == "geometric" else 1.0
    weights = ratio ** torch.arange(k, dtype=torch.float64)
    weights /= weights.sum()
    if recipe.counts == "exact":
        ends = (weights.cumsum(0) * n).round().long()
        labels = torch.bucketize(torch.arange(n), ends, right=True).expand(len(generators), n)
    else:
        labels = _drawn(generators, lambda g: weights.multinomial(n, True, generator=g))
        labels = labels.sort(1).values
    centres = unit(normal(k, d))[0]
    means = centres.take_along_dim(labels[..., None], 1)  # b n d
    latents = unit(means + recipe.noise * normal(n, d))[0]
    matrix = recipe.observation_scale * normal(d, recipe.observed)
    return LatentData(latents, labels, centres, latents @ matrix)


class _Network(NamedTuple):
    """Two linear layers per seed, as x W + b: (b, in, out) and (b, 1, out)."""

    w1: Tensor
    b1: Tensor
    w2: Tensor
    b2: Tensor


def _network(recipe: LatentRecipe, generators: list[Generator]) -> _Network:
    """PyTorch's default: weights and biases uniform within 1 / sqrt(fan in)."""
    layers = []
    for fan_in, out in ((recipe.observed, recipe.hidden), (recipe.hidden, recipe.dim)):
        for rows in (fan_in, 1):
            draw = _drawn(generators, lambda g, s=(rows, out): torch.rand(s, generator=g))
            layers.append((2 * draw - 1) / math.sqrt(fan_in))
    return _Network(*layers)


def _forward(network: _Network, x: Tensor) -> tuple[Tensor, Tensor]:
    """Hidden activations, (b, m, hidden), and embeddings, (b, m, d)."""
    h = torch.baddbmm(network.b1, x, network.w1).relu_()
    return h, torch.baddbmm(network.b2, h, network.w2)


def _sgd_step_(network: _Network, x: Tensor, partner: Tensor, recipe: LatentRecipe) -> Tensor:
    """One step of plain SGD on each seed's batch; the losses before it, (b,)."""
    h, z = _forward(network, x)
    loss, dz = _loss_and_grad(z, partner, recipe.temperature, recipe.positives)
    dh = (dz @ network.w2.mT).mul_(h > 0)
    for w, b, inputs, grad in ((network.w1, network.b1, x, dh), (network.w2, network.b2, h, dz)):
        w.baddbmm_(inputs.mT, grad, alpha=-recipe.lr)
        b.sub_(grad.sum(1, keepdim=True), alpha=recipe.lr)
    return loss


def _partners(labels: Tensor, draw: Tensor, recipe: LatentRecipe) -> Tensor:
    """For each row another of its class and batch, uniformly, or itself where it is alone.

    Args:
        labels: of an epoch's rows in the order they are shown, (b, n).
        draw: uniform on [0, 1), (b, n).
        recipe: gives the batch.

    Returns:
        Places within the batch, (b, n).
    """
    place = torch.arange(labels.shape[1])
    group = place // recipe.batch * recipe.classes + labels  # b n
    by_group = group.argsort(1)
    rank = torch.empty_like(group).scatter_(1, by_group, place.expand_as(group))
    counts = group.new_zeros(len(group), int(group.max()) + 1)
    counts.scatter_add_(1, group, torch.ones_like(group))
    size, start = counts.gather(1, group), (counts.cumsum(1) - counts).gather(1, group)
    step = 1 + (draw * (size - 1)).long()  # 1 .. size - 1 places further on, round the group
    return by_group.gather(1, start + (rank - start + step) % size) % recipe.batch


def _loss_and_grad(
    z: Tensor, partner: Tensor, temperature: float, positives: Literal["one", "mutual"]
) -> tuple[Tensor, Tensor]:
    r"""Supervised InfoNCE of each seed's batch, and its gradient in z.

    $\mathcal L = \operatorname{mean}_i \; \log \sum_{j \ne i} E_{ij} - \log \sum_{j \in P(i)}
    E_{ij}$ with $E_{ij} = \exp(\hat z_i^\top \hat z_j / \tau)$, over the rows with a positive.

    In closed form, since autograd would pass over the (b, m, m) similarities three times as often.

    Args:
        z: raw embeddings, (b, m, d).
        partner: the positive each row drew, (b, m); itself if it has none.
        temperature: $\tau$.
        positives: P(i) is the partner of i, or with it all rows whose partner i is.
    """
    u, norm = unit(z)
    e = torch.bmm(u / temperature, u.mT).exp_()  # b m m
    e.diagonal(dim1=1, dim2=2).zero_()
    drawn = e.gather(2, partner[..., None]).squeeze(2)  # b m
    if positives == "one":
        returned = torch.zeros_like(drawn)
    else:  # the pair counts for the partner too, unless that drew this very row
        answered = partner.gather(1, partner) == torch.arange(z.shape[1])
        returned = drawn.masked_fill(answered, 0)
    positive = drawn.scatter_add(1, partner, returned)
    counted = positive > 0
    weight = counted / counted.sum(1, keepdim=True).clamp_min(1).to(u.dtype)
    positive, s = positive.where(counted, 1), e.sum(2).where(counted, 1)
    loss = (weight * (s / positive).log()).sum(1)

    a = (weight / s)[..., None]
    push, pushed = (e @ torch.cat([u, a * u], -1)).chunk(2, -1)
    share = weight / positive
    pull = (drawn * share + returned * share.gather(1, partner))[..., None]
    index = partner[..., None].expand_as(u)
    grad = pushed + a * push - pull * u.gather(1, index)
    grad.scatter_add_(1, index, -pull * u)
    return loss, orthogonal_part(grad, u) / (norm * temperature)
