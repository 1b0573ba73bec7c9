"""Latent classes: the batched network against plain loops, torch's own SGD."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from normscope.losses import supervised_info_nce
from normscope_paper.simulation import latent_classes
from normscope_paper.simulation.latent_classes import (
    RECIPES,
    LatentRecipe,
    latent_data,
    train_latent_classes,
)

SMALL = LatentRecipe(
    dim=4, points=90, classes=3, noise=0.3, epochs=3, observed=6, hidden=8, batch=32, lr=0.1
)
ALL_WAYS = pytest.mark.parametrize("positives", ["one", "mutual"])


def embeddings_and_partners(seed: int, b: int, m: int, d: int) -> tuple[Tensor, Tensor]:
    """Random embeddings, and partners of which about one in three is the row itself: none."""
    g = torch.Generator().manual_seed(seed)
    z = torch.randn(b, m, d, generator=g, dtype=torch.float64)
    partner = torch.randint(m, (b, m), generator=g)
    alone = torch.rand(b, m, generator=g) < 1 / 3
    return z, torch.where(alone, torch.arange(m), partner)


def as_module(network: latent_classes._Network, s: int) -> nn.Sequential:
    """The network of one seed as torch's own layers, with copies of its weights."""
    (inputs, hidden), (_, out) = network.w1.shape[1:], network.w2.shape[1:]
    module = nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, out))
    values = (network.w1[s].T, network.b1[s, 0], network.w2[s].T, network.b2[s, 0])
    for p, value in zip(module.parameters(), values, strict=True):
        p.data = value.clone()
    return module


def loss_by_loop(z: Tensor, partner: Tensor, tau: float, positives: str) -> Tensor:
    """The loss of one seed, row by row, as the notebook's mask says it."""
    chosen = {i: {j} - {i} for i, j in enumerate(partner.tolist())}
    if positives == "mutual":
        pairs = [(i, j) for i, js in chosen.items() for j in js]
        for i, j in pairs:
            chosen[j] = chosen[j] | {i}
    terms = []
    for i, js in chosen.items():
        e = [torch.exp(torch.cosine_similarity(z[i], other, dim=0) / tau) for other in z]
        if js:
            total = torch.stack([e[k] for k in range(len(z)) if k != i]).sum()
            terms.append(total.log() - torch.stack([e[j] for j in sorted(js)]).sum().log())
    return torch.stack(terms).mean() if terms else 0 * z.sum()


@ALL_WAYS
@pytest.mark.parametrize("tau", [0.2, 1.0])
@pytest.mark.parametrize("m", [1, 2, 7])
def test_batched_loss_and_gradient_equal_plain_loop(positives, tau: float, m: int) -> None:
    for seed in range(4):
        z, partner = embeddings_and_partners(seed, b=3, m=m, d=4)
        loss, grad = latent_classes._loss_and_grad(z, partner, tau, positives)
        for s in range(3):
            leaf = z[s].clone().requires_grad_()
            expected = loss_by_loop(leaf, partner[s], tau, positives)
            expected.backward()
            torch.testing.assert_close(loss[s], expected.detach())
            torch.testing.assert_close(grad[s], leaf.grad)


def test_mutual_loss_counts_rows_chosen_by_another() -> None:
    z = torch.eye(3, dtype=torch.float64)[None]
    partner = torch.tensor([[1, 1, 2]])  # row 0 chose row 1; rows 1 and 2 chose nothing
    with_one, _ = latent_classes._loss_and_grad(z, partner, 1.0, "one")
    mutual, grad = latent_classes._loss_and_grad(z, partner, 1.0, "mutual")
    assert with_one.item() == pytest.approx(math.log(2))
    assert mutual.item() == pytest.approx(math.log(2))
    torch.testing.assert_close(grad[0, 0, [1, 0, 2]], grad[0, 1])  # 0 and 1 play one role


def test_one_positive_gives_the_loss_of_the_library() -> None:
    g = torch.Generator().manual_seed(0)
    z = torch.randn(1, 7, 5, generator=g, dtype=torch.float64)
    labels = torch.tensor([0, 0, 1, 1, 2, 2, 3])  # pairs leave nothing to chance; row 6 is alone
    partner = torch.tensor([[1, 0, 3, 2, 5, 4, 6]])
    loss, _ = latent_classes._loss_and_grad(z, partner, 0.5, "one")
    torch.testing.assert_close(loss[0], supervised_info_nce(z[0], labels, temperature=0.5))


@ALL_WAYS
def test_sgd_step_equals_torch_optim(positives) -> None:
    recipe = replace(SMALL, positives=positives)
    network = latent_classes._network(recipe, latent_classes._generators([0, 1]))
    network = latent_classes._Network(*(p.double() for p in network))
    x = latent_data(recipe, seeds=[0, 1]).observations[:, :20].double()
    _, partner = embeddings_and_partners(0, b=2, m=20, d=1)
    modules = [as_module(network, s) for s in range(2)]
    for s, module in enumerate(modules):
        optimizer = torch.optim.SGD(module.parameters(), lr=recipe.lr)
        loss_by_loop(module(x[s]), partner[s], recipe.temperature, positives).backward()
        optimizer.step()
    latent_classes._sgd_step_(network, x, partner, recipe)
    for s, module in enumerate(modules):
        updated = as_module(network, s).parameters()
        for ours, theirs in zip(updated, module.parameters(), strict=True):
            torch.testing.assert_close(ours, theirs)


@ALL_WAYS
def test_run_equals_one_network_trained_by_torch(positives) -> None:
    recipe = replace(SMALL, positives=positives, points=40, epochs=2, batch=16)
    run = train_latent_classes(recipe, seeds=[7, 8])
    (g,) = generators = latent_classes._generators([8])
    data = latent_classes._data(recipe, generators)  # leaves the generator where training begins
    module = as_module(latent_classes._network(recipe, generators), 0).double()
    x, labels = data.observations[0].double(), data.labels[0]
    optimizer = torch.optim.SGD(module.parameters(), lr=recipe.lr)
    for epoch in range(recipe.epochs):
        order, draw = torch.randperm(40, generator=g), torch.rand(1, 40, generator=g)
        partner = latent_classes._partners(labels[order][None], draw, recipe)[0]
        losses = []
        for rows, partners in zip(order.split(16), partner.split(16), strict=True):
            assert labels[rows].equal(labels[rows[partners]])
            loss = loss_by_loop(module(x[rows]), partners, recipe.temperature, positives)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        assert run.losses[1, epoch].item() == pytest.approx(sum(losses) / 3, abs=1e-5)
    torch.testing.assert_close(run.embeddings[1], module(x).detach().float(), atol=1e-4, rtol=1e-4)


def test_network_starts_as_linear_layers_do() -> None:
    network = latent_classes._network(RECIPES["text"], latent_classes._generators(range(20)))
    for p in network:
        bound = 1 / 8  # both layers see 64 coordinates
        assert p.abs().max() <= bound
        assert p.std() == pytest.approx(bound / math.sqrt(3), rel=0.05)
    assert [tuple(p.shape[1:]) for p in network] == [(64, 64), (1, 64), (64, 11), (1, 11)]


@given(st.integers(1, 60), st.integers(2, 20), st.integers(1, 4), st.integers(0, 2**31))
def test_partner_is_another_row_of_class_and_batch(n: int, batch: int, k: int, seed: int) -> None:
    g = torch.Generator().manual_seed(seed)
    recipe = replace(SMALL, points=max(n, 2), batch=batch, classes=k)
    labels = torch.randint(k, (2, n), generator=g)
    partner = latent_classes._partners(labels, torch.rand(2, n, generator=g), recipe)
    for s in range(2):
        for i, p in enumerate(partner[s].tolist()):
            start = i // batch * batch
            mates = [j for j in range(start, min(start + batch, n)) if labels[s, j] == labels[s, i]]
            assert start + p in mates
            assert (start + p != i) == (len(mates) > 1)


def test_partner_is_uniform() -> None:
    draw = torch.rand(4000, 5, generator=torch.Generator().manual_seed(0))
    recipe = replace(SMALL, batch=5)
    partner = latent_classes._partners(torch.zeros(4000, 5, dtype=torch.int64), draw, recipe)
    for i in range(5):
        frequency = partner[:, i].bincount(minlength=5) / 4000
        expected = torch.full((5,), 0.25).index_fill(0, torch.tensor(i), 0.0)
        torch.testing.assert_close(frequency, expected, atol=0.03, rtol=0)


@ALL_WAYS
@pytest.mark.parametrize("counts", ["exact", "drawn"])
def test_run_does_not_depend_on_the_other_seeds(positives, counts) -> None:
    recipe = replace(SMALL, positives=positives, counts=counts)
    together = train_latent_classes(recipe, seeds=[3, 5])
    for i, seed in enumerate([3, 5]):
        alone = train_latent_classes(recipe, seeds=[seed])
        for name in ("norms", "embeddings", "untrained", "losses"):
            ours, theirs = getattr(together, name)[i], getattr(alone, name)[0]
            torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)
        for name in ("latents", "labels", "centres", "observations"):
            ours, theirs = getattr(together.data, name)[i], getattr(alone.data, name)[0]
            torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)
    assert not torch.equal(together.norms[0], together.norms[1])


def test_run_goes_on_where_a_shorter_one_stopped() -> None:
    short = train_latent_classes(SMALL, seeds=[1])
    longer = train_latent_classes(replace(SMALL, epochs=5), seeds=[1])
    torch.testing.assert_close(short.norms, longer.norms[:, : SMALL.epochs + 1])


def test_run_trains_on_its_data_and_reports_norms_by_class() -> None:
    calls = []
    recipe = replace(SMALL, weights="geometric", epochs=20)
    run = train_latent_classes(
        recipe, seeds=range(4), progress=lambda done, total: calls.append((done, total))
    )
    torch.testing.assert_close(run.data.latents, latent_data(recipe, seeds=range(4)).latents)
    assert run.norms.shape == (4, 21, 3)
    assert run.losses.shape == (4, 20)
    assert run.embeddings.shape == run.untrained.shape == (4, 90, 4)
    assert calls == [(e, 20) for e in range(1, 21)]
    assert (run.losses[:, -1] < run.losses[:, 0] - 0.1).all()
    for when, z in ((0, run.untrained), (-1, run.embeddings)):
        for s in range(4):
            for c in range(3):
                expected = z[s][run.data.labels[s] == c].norm(dim=1).mean()
                torch.testing.assert_close(run.norms[s, when, c], expected)


def test_run_with_a_last_batch_of_one_row_stays_finite() -> None:
    run = train_latent_classes(replace(SMALL, points=65), seeds=[0])
    assert run.embeddings.isfinite().all()
    assert run.losses.isfinite().all()


def test_data_lies_about_its_centres_on_the_sphere() -> None:
    recipe = replace(SMALL, noise=1e-3, observation_scale=10.0, points=3000)
    data = latent_data(recipe, seeds=[0, 1])
    for points in (data.latents, data.centres):
        torch.testing.assert_close(points.norm(dim=-1), torch.ones(points.shape[:2]))
    centre = data.centres.take_along_dim(data.labels[..., None], 1)
    assert (data.latents - centre).norm(dim=-1).max() < 0.01
    matrix = torch.linalg.lstsq(data.latents, data.observations).solution
    torch.testing.assert_close(data.latents @ matrix, data.observations, atol=0.01, rtol=0.01)
    assert latent_data(RECIPES["as_coded"], seeds=[0]).observations.std() > 2


def test_class_frequencies_follow_the_weights() -> None:
    exact = replace(SMALL, points=1500, classes=4, weights="geometric")
    assert latent_data(exact, seeds=[0]).labels[0].bincount().tolist() == [800, 400, 200, 100]
    balanced = replace(exact, weights="balanced", points=1002)
    assert sorted(latent_data(balanced, seeds=[0]).labels[0].bincount().tolist())[0] == 250
    drawn = latent_data(replace(exact, counts="drawn"), seeds=range(20)).labels
    counts = torch.stack([row.bincount(minlength=4) for row in drawn]).double()
    expected = torch.tensor([800.0, 400, 200, 100], dtype=torch.float64)
    torch.testing.assert_close(counts.mean(0), expected, atol=20, rtol=0)
    assert (counts.std(0) > 3).all()


def test_recipes_are_those_of_the_paper_and_the_notebook() -> None:
    text, coded = RECIPES["text"], RECIPES["as_coded"]
    assert (text.dim, text.points, text.noise**2) == (11, 4000, pytest.approx(0.1))
    assert (text.positives, text.counts, text.observation_scale) == ("one", "exact", 1.0)
    assert (coded.dim, coded.points, coded.noise) == (10, 2000, 0.1)
    assert (coded.positives, coded.counts, coded.observation_scale) == ("mutual", "drawn", 10.0)


@pytest.mark.parametrize(
    "change",
    [
        {"dim": 1},
        {"points": 2.5},
        {"classes": True},
        {"epochs": 0},
        {"batch": 1},
        {"noise": -0.1},
        {"lr": math.inf},
        {"observation_scale": "large"},
        {"temperature": 0.01},
        {"weights": "even"},
        {"positives": "all"},
        {"counts": []},
    ],
    ids=str,
)
def test_bad_recipe_is_refused_in_one_line(change: dict) -> None:
    (name,) = change
    with pytest.raises(ValueError, match=rf"^{name} must be [^\n]+, got [^\n]+\. [^\n]+$"):
        replace(SMALL, **change)


@pytest.mark.parametrize("seeds", [[], 3, "12", [1.5], [-1], [True], [2**63], [4, 4]], ids=str)
def test_bad_seeds_are_refused_in_one_line(seeds) -> None:
    for function in (latent_data, train_latent_classes):
        with pytest.raises(ValueError, match=r"^seeds must be [^\n]+, got [^\n]+\. [^\n]+$"):
            function(SMALL, seeds=seeds)
