"""The pair dynamics: two engines, a plain autograd loop, the published numbers, the outcomes."""

import numpy as np
import pytest
import torch

from normscope_paper.simulation import OUTCOMES, converge_pairs, steps_to_convergence

# printed by the paper's notebook, one unseeded draw
PUBLISHED = {0.25: 6, 0.5: 24, 0.75: 54, 1: 96, 2: 385, 3: 869}


def autograd_steps(norm, alpha, *, moves="both", decay="norm", gamma=0.0, n=60, d=8, seed=0) -> int:
    """The same experiment as a plain loop over autograd, in float64."""
    generator = torch.Generator().manual_seed(seed)
    x1, x2 = torch.nn.functional.normalize(
        torch.randn(2, n, d, generator=generator, dtype=torch.float64), dim=-1
    )
    x2 = torch.nn.functional.normalize((1 - abs(alpha)) * x2 + alpha * x1, dim=-1)
    z1 = (x1 * norm if moves == "both" else x1).clone().requires_grad_(moves == "both")
    z2 = (x2 * norm).clone().requires_grad_()
    moving = [z1, z2] if moves == "both" else [z2]
    for count in range(100_000):
        cosine = torch.cosine_similarity(z1, z2, dim=-1, eps=0).mean()
        if cosine > 0.999:
            return count
        norms = torch.cat([z1, z2]).norm(dim=-1)
        penalty = norms.mean() if decay == "norm" else norms.square().mean()
        grads = torch.autograd.grad(-cosine + gamma * penalty, moving)
        with torch.no_grad():
            for z, grad in zip(moving, grads, strict=True):
                z -= 10 * grad
    raise AssertionError("never converged")


@pytest.mark.parametrize("moves", ["both", "one"])
@pytest.mark.parametrize(("decay", "gamma"), [("norm", 0.0), ("norm", 0.05), ("squared", 0.05)])
def test_both_engines_equal_a_plain_autograd_loop_to_the_step(moves, decay, gamma) -> None:
    norms, alphas = [0.5, 1.0, 2.5], [-0.9, 0.0, 0.6]
    expected = [
        [autograd_steps(norm, alpha, moves=moves, decay=decay, gamma=gamma) for alpha in alphas]
        for norm in norms
    ]
    for engine in ("recursion", "embeddings"):
        result = converge_pairs(
            norms, alphas, moves=moves, n=60, d=8, weight_decay=gamma, decay=decay, engine=engine
        )
        assert result.steps[0].tolist() == expected


def test_steps_match_the_published_ones_within_one_percent_over_twenty_seeds() -> None:
    steps = converge_pairs(list(PUBLISHED), [0.0], seeds=range(20)).steps[:, :, 0].mean(0)
    np.testing.assert_allclose(steps, list(PUBLISHED.values()), rtol=0.01)


def test_weight_decay_matches_the_papers_table_within_two_steps() -> None:
    for gamma, printed in ((0.5, [64, 526]), (1.0, [49, 318])):
        steps = converge_pairs([1, 4], [0.0], weight_decay=gamma, seeds=range(20)).steps[:, :, 0]
        np.testing.assert_allclose(steps.mean(0), printed, atol=2)


def test_cells_that_cannot_converge_end_with_a_name() -> None:
    def outcome(**options) -> str:
        options = {"norms": [1.0], "alphas": [0.0], "n": 50} | options
        result = converge_pairs(**options)
        assert result.steps.item() == -1
        return OUTCOMES[result.outcomes.item()]

    assert outcome(alphas=[-1.0]) == "antipodal"
    assert outcome(alphas=[-1.0], engine="embeddings") == "antipodal"
    assert outcome(weight_decay=10.0) == "overshoots"
    assert outcome(norms=[30.0], most_steps=20) == "out of steps"
    assert outcome(d=1) == "antipodal"  # half of them are
    assert outcome(weight_decay=200.0, decay="squared") == "diverges"
    assert outcome(weight_decay=10.0, engine="embeddings") == "overshoots"


def test_engines_agree_where_only_the_static_side_is_small() -> None:
    options = {"moves": "one", "n": 20, "lr": 1e6, "weight_decay": 4.1e-5}
    recursion = converge_pairs([5000.0], [0.0], **options)
    embeddings = converge_pairs([5000.0], [0.0], engine="embeddings", **options)
    assert recursion.steps.item() == embeddings.steps.item() > 0


def test_a_cell_given_up_does_not_pass_its_jumps_to_another() -> None:
    # the second converges only after the first has been given up
    result = converge_pairs([0.3, 60.0], [-0.9], n=50, weight_decay=4.0, lr=1.0)
    assert [OUTCOMES[o] for o in result.outcomes[0, :, 0]] == ["overshoots", "converged"]
    assert result.steps[0, 1, 0] > 1000


def test_aligned_pairs_need_no_step_and_one_cells_fate_leaves_the_others_alone() -> None:
    grid = steps_to_convergence([1.0, 0.5], [1.0, -1.0, 0.0])
    assert grid[:, 0].tolist() == [0, 0]
    assert grid[:, 1].tolist() == [-1, -1]
    assert grid[1, 2] == steps_to_convergence([0.5], [0.0]).item()
    assert grid.dtype == np.int64


def test_seeds_differ_and_are_the_same_alone_or_together() -> None:
    together = converge_pairs([2.0], [0.0], n=20, seeds=[0, 1, 2]).steps[:, 0, 0]
    alone = [steps_to_convergence([2.0], [0.0], n=20, seed=s).item() for s in range(3)]
    assert together.tolist() == alone
    assert len(set(alone)) > 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"norms": [0.0]}, "norms must be a list of positive numbers"),
        ({"alphas": [1.5]}, "alphas must be a list of numbers from -1 to 1"),
        ({"lr": 0.0}, "lr must be a positive finite number"),
        ({"weight_decay": -0.1}, "weight_decay must be"),
        ({"moves": "none"}, "moves must be one of"),
        ({"n": 0}, "n must be"),
        ({"n": True}, "n must be"),
        ({"seeds": []}, "seeds must be"),
        ({"seeds": [-1]}, "seeds must be"),
    ],
)
def test_bad_arguments_are_refused(options, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        converge_pairs(**({"norms": [1.0], "alphas": [0.0]} | options))
