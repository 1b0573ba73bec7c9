"""Experiments that train: what they train, and what follows from it."""

import json
import re
from dataclasses import asdict
from pathlib import Path

import pytest
import torch

from normscope import data
from normscope.engine import RunSpec, train
from normscope.engine.compose import build, invariant_names
from normscope_paper.harness import EXPERIMENTS, Results, StoredRun, load
from normscope_paper.harness.cells import RunTable, TrainedCell, TrainedRun
from normscope_paper.harness.sweep import spec_at
from normscope_paper.own import cut_paths, simsiam_recipes
from normscope_paper.tables import opposite_halves_effect

FIGURES, TABLES = 12, 10  # of the paper


def test_every_figure_and_table_of_the_paper_has_an_experiment() -> None:
    places = " ".join(load(name).PLACE for name in EXPERIMENTS)
    for kind, last in (("Figure", FIGURES), ("Table", TABLES)):
        found = re.findall(rf"{kind}s? (\d+)(?: and (\d+))?", places)
        numbers = {int(number) for pair in found for number in pair if number}
        assert numbers == set(range(1, last + 1))


@pytest.mark.parametrize(
    ("name", "first", "others"),
    [
        ("accuracies", "CIFAR-10", {"CIFAR-100"}),
        ("imbalanced_experiments", "CIFAR-10 unb.", {"CIFAR-100 unb.", "Flowers unb."}),
    ],
)
def test_small_scale_has_every_column_and_the_codes_reading_of_the_first(
    name: str, first: str, others: set[str]
) -> None:
    cells = load(name).cells("small")
    assert {c.column for c in cells if c.recipe == "text"} == {first, *others}
    assert {c.column for c in cells if c.recipe == "as_coded"} == {first}
    specs = [spec_at("small", **c.values) for c in cells]
    assert len({s.hash for s in specs}) == len(cells)
    assert all(s.data.endswith("as-coded") for s in specs if s.recipe == "as_coded") == (
        name == "imbalanced_experiments"
    )


@pytest.mark.parametrize(
    ("name", "key", "count"),
    [
        ("transformer_accs", "knn_top5", 6),
        ("adam_performance", "norm", 3),
        ("cut_batch_size", "early_knn", 6),
        ("opposite_halves_effect", "epoch_16", 3),
    ],
)
def test_other_numbers_of_the_papers_tables_have_their_cells(
    name: str, key: str, count: int
) -> None:
    experiment = load(name)
    cells = experiment.cells("small")
    printed = experiment.MORE[key]  # pyright: ignore
    assert len([cell for cell in cells if (cell.row, cell.column) in printed]) == count


def test_a_cut_that_gains_most_where_the_default_is_slowest() -> None:
    names = list(simsiam_recipes.ingredients("small"))
    cells = [
        TrainedCell(
            row,
            name,
            {"method": "simsiam"},
            runs=[
                TrainedRun(
                    knn=0.5 + seed / 50 - cut * i / 100,
                    norm=1.0,
                    more={"rate": 10.0**i * 80**cut},
                )
                for seed in (0, 1)
            ],
        )
        for i, name in enumerate(names)
        for cut, row in enumerate(simsiam_recipes.ROWS)
    ]

    def stored() -> Results:
        return Results("simsiam_recipes", "small", 2, 0, RunTable("knn", cells).to_json())

    claim = simsiam_recipes.check(stored())[-1]
    assert (claim.value, claim.verdict) == (pytest.approx(1.0), "reproduced")
    assert len(simsiam_recipes.plot(stored()).axes[0].texts) == len(names)  # an arrow each
    for run in (run for cell in cells for run in cell.runs):
        run.more["rate"] = 1 / run.more["rate"]
    assert simsiam_recipes.check(stored())[-1].verdict == "not reproduced"
    for cell in cells:  # three rates, however many recipes
        for run in cell.runs:
            run.more["rate"] = 10.0 ** (names.index(cell.column) % 3)
    assert simsiam_recipes.check(stored())[-1].interval == (-1.0, 1.0)


def test_simsiams_ingredients_together_are_the_codes_recipe_but_for_the_sum() -> None:
    on = {"method": "simsiam", "data": "cifar10"}
    taken = simsiam_recipes.ingredients("small")
    rates = taken.pop("code's rates")
    every = {k: v for values in taken.values() for k, v in values.items()}
    assert rates.items() <= every.items()
    code = spec_at("small", **on, recipe="as_coded")
    mixed = spec_at("small", **on, **{**every, "recipe": "text"})
    unlike = {name for name, value in asdict(code).items() if value != getattr(mixed, name)}
    assert unlike == {"recipe", "accumulation", "lr", "predictor_lr", "weight_decay"}
    assert mixed.lr == code.lr * code.accumulate  # whose gradients are summed
    assert code.predictor_lr is not None
    assert mixed.predictor_lr == code.predictor_lr * code.accumulate
    assert mixed.lr * mixed.weight_decay == pytest.approx(code.lr * code.weight_decay)


def test_an_epoch_without_a_log_point_is_named(tmp_path: Path) -> None:
    spec = RunSpec(data="digits", net="resnet10_narrow", epochs=1, log_every=8)
    result = train(spec, folder=tmp_path / "run", device="cpu", quiet=True)
    rates = opposite_halves_effect.kept(StoredRun.of(result))
    assert set(rates) == {"epoch_1", "epoch_16", "cosine"}
    epochs = [json.dumps(r) for r in result.metrics("epoch")]
    (tmp_path / "run/metrics.jsonl").write_text("\n".join(epochs))
    with pytest.raises(ValueError, match="at most an epoch's steps, got 8"):
        opposite_halves_effect.kept(StoredRun.of(result))


@pytest.mark.parametrize("recipe", cut_paths.READINGS)
@pytest.mark.parametrize("method", cut_paths.FULL)
def test_the_arms_of_the_cut_match_what_they_are_compared_with(method: str, recipe: str) -> None:
    values = {"method": method, "data": "digits", "recipe": recipe}
    c, last_cut = cut_paths.FULL[method], cut_paths.last_cut("smoke", method, values)
    arms = cut_paths.arms_at("smoke", method, values, last_cut=last_cut)
    specs = {row: RunSpec(**values, **arm) for row, arm in arms.items()}
    cuts = (cut_paths.CUT, cut_paths.WEIGHTS, cut_paths.REST, cut_paths.EMBEDDINGS)
    norms = {row: cut_paths.initial_norm(specs[row]) for row in (cut_paths.DEFAULT, *cuts)}
    assert norms[cut_paths.WEIGHTS] == pytest.approx(norms[cut_paths.DEFAULT], rel=0.05)
    assert norms[cut_paths.REST] == pytest.approx(norms[cut_paths.CUT], rel=0.05)
    assert norms[cut_paths.EMBEDDINGS] == pytest.approx(norms[cut_paths.CUT], rel=0.02)
    assert norms[cut_paths.CUT] < norms[cut_paths.DEFAULT] / c
    default, raised = specs[cut_paths.DEFAULT], specs[cut_paths.RAISED]
    assert raised.lr == pytest.approx(c**2 * default.lr, rel=0.01)
    assert raised.lr * raised.weight_decay == pytest.approx(
        default.lr * default.weight_decay, rel=0.01
    )
    assert (raised.predictor_lr is None) == (default.predictor_lr is None)
    if default.predictor_lr is not None and raised.predictor_lr is not None:
        assert raised.predictor_lr == pytest.approx(c**2 * default.predictor_lr, rel=0.01)
    assert raised.warmup_epochs == default.warmup_epochs
    assert (cut_paths.SCALED in arms) == ((method, recipe) == ("simclr", "text"))
    if cut_paths.SCALED in arms:
        assert specs[cut_paths.BY_MEAN].lr == specs[cut_paths.SCALED].lr < default.lr / 6
        assert specs[cut_paths.BY_SHARE].lr == default.lr


def test_the_arms_at_small_scale_need_no_images(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("NORMSCOPE_DATA", str(tmp_path / "none"))
    cuts = {
        (cell.values["method"], cell.recipe): cell.values["cut"]
        for cell in cut_paths.cells("small")
        if cell.row == cut_paths.EMBEDDINGS
    }
    assert cuts == cut_paths.LAST_CUTS


@pytest.mark.skipif(
    not (data.default_root() / "cifar-10-batches-py").exists(), reason="no CIFAR-10"
)
@pytest.mark.parametrize(("method", "recipe"), cut_paths.LAST_CUTS)
def test_the_last_layers_cut_at_small_scale_is_what_images_give(method: str, recipe: str) -> None:
    values = {"method": method, "data": "cifar10", "recipe": recipe}
    expected = cut_paths.LAST_CUTS[method, recipe]  # pyright: ignore[reportArgumentType]
    assert cut_paths.last_cut("small", method, values) == expected


@pytest.mark.parametrize(
    ("method", "scope"), [("simclr", "invariant"), ("simclr", "all"), ("simsiam", "all")]
)
def test_a_cut_is_a_higher_learning_rate(method: str, scope: str) -> None:
    """Exactly so, step by step, if nothing else learns and no linear layer has a bias."""
    c, weights, directions = 3.0, [], []
    views = torch.rand(2, 8, 3, 8, 8, generator=torch.Generator().manual_seed(0)).double()
    for cut, rate in ((c, 0.01), (1.0, 0.01 * c**2)):
        built = build(RunSpec(method=method, cut=cut, cut_scope=scope), side=8).double()
        learns = dict(built.named_parameters())
        for name, layer in built.named_modules():
            if hasattr(layer, "eps"):
                layer.eps = 1e-12  # it makes weights feel their size a little
            if isinstance(layer, torch.nn.Linear) and layer.bias is not None:
                torch.nn.init.zeros_(learns.pop(f"{name}.bias"))
        if scope == "invariant":
            learns = {n: learns[n] for n in invariant_names(built, 8) if n in learns}
        decay = {"momentum": 0.9, "weight_decay": 0.1 * cut**2}
        optimizer = torch.optim.SGD(learns.values(), rate, **decay)
        for _ in range(3):
            optimizer.zero_grad()
            built(views, torch.zeros(8)).loss.backward()
            optimizer.step()
        weights.append([cut * p.detach() for p in learns.values()])
        embeddings = built(views, torch.zeros(8)).embeddings.detach()
        directions.append(torch.nn.functional.normalize(embeddings, dim=-1))
    for one, other in zip(*weights, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-6)
    torch.testing.assert_close(*directions, rtol=0, atol=1e-6)


def test_cutting_the_last_layer_alone_leaves_the_backbones_gradients_as_they_were() -> None:
    gradients = []
    for values in ({}, {"cut": 7.0, "cut_scope": "last"}):
        method = build(RunSpec(**values), side=8).double()
        views = torch.rand(2, 8, 3, 8, 8, generator=torch.Generator().manual_seed(0)).double()
        method(views, torch.zeros(8)).loss.backward()
        gradients.append([p.grad for p in method.backbone.parameters()])
    for before, after in zip(*gradients, strict=True):
        assert (after - before).norm() <= 1e-5 * before.norm()  # dividing rounds
