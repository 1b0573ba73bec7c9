"""Tables of training runs: what a claim on two cells says, and when a sweep stops."""

import json
import math
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from dataclasses import asdict
from itertools import pairwise, product
from pathlib import Path

import numpy as np
import pytest
import torch

from normscope import data
from normscope.engine import RunSpec, train
from normscope.engine.compose import build, invariant_names
from normscope.experiments import (
    EXPERIMENTS,
    cut_paths,
    load,
    opposite_halves_effect,
    runs,
    simsiam_recipes,
)
from normscope.experiments.cell_views import plot_cells, plot_courses, tables_markdown
from normscope.experiments.cells import Cell, course, highest_rate, train_cells
from normscope.experiments.comparisons import above, difference, gains, gains_more, noise, share
from normscope.experiments.ledger import Run
from normscope.experiments.registry import Experiment
from normscope.experiments.results import NOT_IN_PAPER, Results, t_quantile
from normscope.experiments.runs import OutOfTime, folder_of, train_free, trained, within

# every figure and table of the paper, by its label
LABELS = (
    *("fig1", "convergence_sim", "density", "class_imbalance", "weight_decay_convergence"),
    *("in_out_violin", "norm_as_confidence", "weight_decay_ablation", "wd_cut"),
    *("transformer_accs", "grad_scaling", "accuracies", "imbalanced_experiments"),
    *("adam_performance", "cos_sim_surface", "latents", "opposite_halves_effect"),
    *("cut_batch_size", "lin_probe", "adam_embedding_norms", "weight_decay_imbalanced"),
    *("cut_experiments", "in_out_distribution_norms", "cifar_norms"),
)


def results_of(**knns: tuple[float | None, list[float]]) -> Results:
    """One column with a row for each name: the paper's cell and each seed's kNN."""
    cells = [
        {
            "row": row,
            "column": "digits",
            "recipe": "text",
            "paper": paper,
            "values": {"method": "simclr"},
            "runs": [{"knn": knn, "norm": 9.0 if knn else None} for knn in values],
        }
        for row, (paper, values) in knns.items()
    ]
    return Results("accuracies", "smoke", 2, 0, {"key": "knn", "cells": cells})


def cells_at_small_scale(experiment: Experiment, monkeypatch: pytest.MonkeyPatch) -> list[Cell]:
    """What an experiment would train."""
    cells: list[Cell] = []
    monkeypatch.setattr(experiment, "train_cells", lambda *args, **_: cells.extend(args[4]))
    experiment.run("small", 0, 3)
    return cells


def test_every_figure_and_table_of_the_paper_has_an_experiment() -> None:
    titles = " ".join(load(name).TITLE for name in EXPERIMENTS)
    missing = [label for label in LABELS if label not in EXPERIMENTS and label not in titles]
    assert missing == []


@pytest.mark.parametrize(
    ("name", "first", "others"),
    [
        ("accuracies", "CIFAR-10", {"CIFAR-100"}),
        ("imbalanced_experiments", "CIFAR-10 unb.", {"CIFAR-100 unb.", "Flowers unb."}),
    ],
)
def test_small_scale_has_every_column_and_the_codes_reading_of_the_first(
    name, first, others, monkeypatch
) -> None:
    experiment = load(name)
    cells = cells_at_small_scale(experiment, monkeypatch)
    assert {c.column for c in cells if c.recipe == "text"} == {first, *others}
    assert {c.column for c in cells if c.recipe == "as_coded"} == {first}
    specs = [runs.spec_at("small", **c.values) for c in cells]
    assert len({s.hash for s in specs}) == len(cells)
    assert all(s.data.endswith("as-coded") for s in specs if s.recipe == "as_coded") == (
        name == "imbalanced_experiments"
    )


def test_a_gain_is_judged_by_the_papers_sign() -> None:
    results = results_of(default=(40.0, [0.5, 0.6]), cut=(43.5, [0.521, 0.619]))
    (claim,) = gains(results, "cut", "default")
    assert claim.value == pytest.approx(2)
    assert claim.paper == "+3.5"
    assert claim.verdict == "reproduced"
    worse = results_of(default=(40.0, [0.5, 0.6]), cut=(30.0, [0.521, 0.619]))
    (claim,) = gains(worse, "cut", "default")
    assert "below" in claim.sentence
    assert claim.verdict == "not reproduced"
    unknown = results_of(default=(None, [0.5, 0.6]), cut=(43.5, [0.5, 0.7]))
    (claim,) = gains(unknown, "cut", "default")
    assert claim.paper == NOT_IN_PAPER
    assert claim.verdict == "inconclusive"
    alike = results_of(default=(40.0, [0.56, 0.60]), cut=(43.5, [0.57, 0.61]))  # but for rounding
    (claim,) = gains(alike, "cut", "default")
    assert claim.verdict == "inconclusive"


def test_noise_is_what_neither_cells_nor_seeds_explain() -> None:
    rng = np.random.default_rng(0)
    cells = []
    for method, strays in (("simclr", 0.5), ("simsiam", 4.0)):
        for column in "ab":
            seeds = rng.normal(0, 10, 3)  # all cells of a column move together
            for row in range(40):
                knns = 50 + row / 2 + seeds + rng.normal(0, strays, 3)
                cells.append(
                    {
                        "row": str(row),
                        "column": column,
                        "recipe": "text",
                        "values": {"method": method},
                        "runs": [{"knn": knn / 100, "norm": 9.0} for knn in knns],
                    }
                )
    results = Results("accuracies", "small", 3, 0, {"key": "knn", "cells": cells})
    for method, strays in (("simclr", 0.5), ("simsiam", 4.0)):
        found = noise(results, method, "knn")
        assert found is not None
        assert found.freedom == 2 * 39 * 2
        assert found.deviation == pytest.approx(strays, rel=0.2)
    points, strays = difference(results, cells[1], cells[0])
    square = 2 * noise(results, "simclr", "knn").deviation ** 2
    mixed = (square + 2 * statistics.variance(points)) / 3  # as one seed more
    assert strays == (pytest.approx(math.sqrt(mixed)), 3)
    claim = above(results, "second above first", cells[1], cells[0])
    half = t_quantile(3) * strays.deviation / math.sqrt(3)
    assert claim.interval[1] - claim.value == pytest.approx(half)
    before = noise(results, "simclr", "knn")
    broken = {"runs": [{"knn": 0.0, "norm": None}] * 3}
    cells.append({**cells[0], "row": "broken", **broken})
    assert noise(results, "simclr", "knn") == before  # it would make the others look alike
    alone = Results("accuracies", "small", 1, 0, {"key": "knn", "cells": [cells[0]]})
    assert noise(alone, "simclr", "knn") is None


def table_of_noise(rng, columns: int, rows: int, spread: float, strays: float) -> Results:
    """Cells of two seeds whose noise differs by factors about e ** spread; the last two stray."""
    cells = []
    for column, row in product(range(columns), range(rows)):
        last = column == columns - 1 and row >= rows - 2
        noise = 0.3 * (strays if last else 1.0) * math.exp(spread * rng.normal())
        cells.append(
            {
                "row": str(row),
                "column": str(column),
                "recipe": "text",
                "values": {"method": "simclr"},
                "runs": [{"knn": x / 100, "norm": 9.0} for x in 50 + rng.normal(0, noise, 2)],
            }
        )
    return Results("accuracies", "small", 2, 0, {"key": "knn", "cells": cells})


@pytest.mark.parametrize(
    ("columns", "rows", "spread", "strays", "least"),
    [
        (3, 2, 0.0, 1.0, 0.95),
        (3, 2, 1.0, 1.0, 0.94),
        (1, 3, 1.0, 1.0, 0.91),
        (2, 2, 1.0, 1.0, 0.91),
        (3, 2, 0.0, 3.0, 0.87),
        (3, 2, 0.0, 10.0, 0.82),
    ],
)
def test_intervals_hold_if_noise_differs_and_nearly_if_a_pair_is_the_noisiest(
    columns, rows, spread, strays, least
) -> None:
    rng, hits, tables = np.random.default_rng(1), 0, 1500
    for _ in range(tables):
        results = table_of_noise(rng, columns, rows, spread, strays)
        *_, base, cell = results.data["cells"]
        low, high = above(results, "equal", cell, base).interval
        hits += low <= 0 <= high
    assert hits / tables > least


def test_a_pair_alone_has_the_noise_of_its_own_seeds() -> None:
    rng = np.random.default_rng(1)
    alone = table_of_noise(rng, 1, 2, 0.0, 1.0)  # the pair is all there is
    base, cell = alone.data["cells"]
    points, strays = difference(alone, cell, base)
    assert strays == (pytest.approx(statistics.stdev(points)), 1)
    broken = table_of_noise(rng, 1, 2, 0.0, 1.0)  # no cell tells
    for run in (run for cell in broken.data["cells"] for run in cell["runs"]):
        run["norm"] = None
    base, cell = broken.data["cells"]
    points, strays = difference(broken, cell, base)
    assert strays == (pytest.approx(statistics.stdev(points)), 1)


def test_networks_at_chance_say_nothing_of_the_noise() -> None:
    results = table_of_noise(np.random.default_rng(1), 2, 3, 0.0, 1.0)
    before = noise(results, "simclr", "knn")
    chance = {"row": "chance", "runs": [{"knn": 0.1, "norm": 1e-20}] * 2}
    results.data["cells"].append({**results.data["cells"][0], **chance})
    assert noise(results, "simclr", "knn") == before


def test_an_interval_does_not_leap_with_the_noise_of_other_cells() -> None:
    results = table_of_noise(np.random.default_rng(1), 3, 2, 0.0, 1.0)
    *others, base, cell = results.data["cells"]
    cell["runs"][0]["knn"] += 0.003
    widths = []
    for factor in np.linspace(0.05, 3, 60):
        for other in others:
            for run, stray in zip(other["runs"], (-1, 1), strict=True):
                run["knn"] = 0.5 + (stray if other["row"] == "1" else -stray) * factor * 0.003
        low, high = above(results, "equal", cell, base).interval
        widths.append(high - low)
    assert widths == sorted(widths)
    assert all(wider < 1.1 * width for width, wider in pairwise(widths))


def test_table_sets_the_papers_cell_beside_ours() -> None:
    results = results_of(default=(40.0, [0.5, 0.6]), cut=(None, [0.1, 0.1]))
    text, norms = tables_markdown(results, {"norm": {("cut", "digits"): 2.1}})
    assert "| default | 55.0 [50.0, 60.0] (paper: 40) |" in text
    assert "| cut | 10.0 [10.0, 10.0] |" in text
    assert norms.splitlines() == [
        "| embedding norm | digits |",
        "|---|---|",
        "| default | 9 [9, 9] |",
        "| cut | 9 [9, 9] (paper: 2.1) |",
    ]


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
    name: str, key: str, count: int, monkeypatch
) -> None:
    experiment = load(name)
    cells = cells_at_small_scale(experiment, monkeypatch)
    printed = experiment.MORE[key]
    assert len([cell for cell in cells if (cell.row, cell.column) in printed]) == count


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, 0.3),
        ({"accumulate": 4, "accumulation": "sum"}, 1.2),
        ({"grad_scale": 1.0}, 0.8),
        ({"grad_scale": 1.0, "grad_scale_of": "mean"}, 0.8),
        ({"grad_scale": 1.0, "grad_scale_of": "share"}, 0.3),
    ],
)
def test_the_highest_rate_counts_what_multiplies_gradients(values, expected) -> None:
    seen = ((0.1, 1.0), (0.3, 2.0), (None, 3.0), (0.2, 4.0), (0.9, None))
    points = [
        {"kind": "step", "lr_over_weight_squared": rate, "norm_mean": norm} for rate, norm in seen
    ]
    run = Run(RunSpec(**values), 0.5, 1.0, {}, points)
    assert highest_rate(run) == {"rate": pytest.approx(expected)}
    assert highest_rate(Run(RunSpec(), 0.5, 1.0, {}, [])) == {"rate": None}


def test_a_cut_that_gains_most_where_the_default_is_slowest() -> None:
    names = list(simsiam_recipes.ingredients("small"))
    cells = [
        {
            "row": row,
            "column": name,
            "recipe": "text",
            "values": {"method": "simsiam"},
            "runs": [
                {"knn": 0.5 + seed / 50 - cut * i / 100, "norm": 1.0, "rate": 10.0**i * 80**cut}
                for seed in (0, 1)
            ],
        }
        for i, name in enumerate(names)
        for cut, row in enumerate(simsiam_recipes.ROWS)
    ]
    results = Results("simsiam_recipes", "small", 2, 0, {"key": "knn", "cells": cells})
    claim = simsiam_recipes.check(results)[-1]
    assert (claim.value, claim.verdict) == (pytest.approx(1.0), "reproduced")
    assert len(simsiam_recipes.plot(results).axes[0].texts) == len(names)  # an arrow each
    for run in (run for cell in cells for run in cell["runs"]):
        run["rate"] = 1 / run["rate"]
    assert simsiam_recipes.check(results)[-1].verdict == "not reproduced"
    for cell in cells:  # three rates, however many recipes
        for run in cell["runs"]:
            run["rate"] = 10.0 ** (names.index(cell["column"]) % 3)
    assert simsiam_recipes.check(results)[-1].interval == (-1.0, 1.0)


def test_simsiams_ingredients_together_are_the_codes_recipe_but_for_the_sum() -> None:
    on = {"method": "simsiam", "data": "cifar10"}
    taken = simsiam_recipes.ingredients("small")
    rates = taken.pop("code's rates")
    every = {k: v for values in taken.values() for k, v in values.items()}
    assert rates.items() <= every.items()
    code = runs.spec_at("small", **on, recipe="as_coded")
    mixed = runs.spec_at("small", **on, **{**every, "recipe": "text"})
    unlike = {name for name, value in asdict(code).items() if value != getattr(mixed, name)}
    assert unlike == {"recipe", "accumulation", "lr", "predictor_lr", "weight_decay"}
    assert mixed.lr == code.lr * code.accumulate  # whose gradients are summed
    assert code.predictor_lr is not None
    assert mixed.predictor_lr == code.predictor_lr * code.accumulate
    assert mixed.lr * mixed.weight_decay == pytest.approx(code.lr * code.weight_decay)


def test_table_tells_networks_that_broke() -> None:
    results = results_of(some=(40.0, [0.5, 0.0]), all=(40.0, [0.0, 0.0]), none=(40.0, [0.5, 0.4]))
    (text,) = tables_markdown(results, {})
    assert "| some | 25.0 [0.0, 50.0], 1 of 2 broke (paper: 40) |" in text
    assert "| all | broke (paper: 40) |" in text
    _, norms = tables_markdown(results, {"norm": {}})
    assert "| some | 9, 1 of 2 broke |" in norms
    assert "| all | broke |" in norms
    words = [note.get_text().strip() for note in plot_cells(results).axes[0].texts]
    assert words == ["broke", "broke"]


def test_norms_that_vanish_do_not_flatten_the_others() -> None:
    def drawn(last: float) -> tuple[float, float]:
        run = {"epochs": [1, 2, 4], "norms": [10.0, None, last], "knns": [0.1, 0.2, 0.3]}
        cells = [
            {"row": row, "column": column, "recipe": "text", "runs": [run]}
            for row in ("default", "cut 9")
            for column in ("SimCLR", "SimSiam")
        ]
        figure = plot_courses(Results("cut_experiments", "smoke", 1, 0, {"cells": cells}))
        assert [len(ax.lines) for ax in figure.axes] == [2] * 4
        return figure.axes[1].get_ylim()  # shared by both methods

    low, high = drawn(last=1e-24)
    assert (low, high) == pytest.approx((1e-5, 20.0))
    low, high = drawn(last=0.1)
    assert low < 0.1 < 10.0 < high


def test_an_epoch_without_a_log_point_is_named(tmp_path: Path) -> None:
    spec = RunSpec(data="digits", net="resnet10_narrow", epochs=1, log_every=8)
    result = train(spec, folder=tmp_path / "run", device="cpu", quiet=True)
    rates = opposite_halves_effect._rates(Run.of(result))
    assert set(rates) == {"epoch_1", "epoch_16", "cosine"}
    epochs = [json.dumps(r) for r in result.metrics("epoch")]
    (tmp_path / "run/metrics.jsonl").write_text("\n".join(epochs))
    with pytest.raises(ValueError, match="at most an epoch's steps, got 8"):
        opposite_halves_effect._rates(Run.of(result))


def test_cells_are_trained_with_each_seed_and_share_their_runs(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("NORMSCOPE_RUNS", str(tmp_path))
    cells = [Cell("a", "digits", {"epochs": 1}), Cell("b", "digits", {"epochs": 1, "cut": 2.0})]
    results = train_cells("accuracies", "smoke", 5, 2, cells)
    names = [run["run"] for cell in results.data["cells"] for run in cell["runs"]]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(set(names))
    assert len(set(names)) == 4
    assert RunSpec(epochs=1, seed=6, cut=2.0).name == names[3]
    again = train_cells("accuracies", "smoke", 5, 2, cells[:1])
    assert again.data["cells"] == results.data["cells"][:1]


def test_a_run_that_broke_counts_as_nothing(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("NORMSCOPE_RUNS", str(tmp_path))
    result = trained(RunSpec(epochs=2, lr=1e30, warmup_epochs=0))
    assert math.isnan(result.knn)
    kept = course(result)
    assert kept["knn"] == 0
    assert kept["knns"][-1] == 0
    assert kept["norm"] is None


def test_time_that_is_up_stops_a_run_where_it_can_go_on(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("NORMSCOPE_RUNS", str(tmp_path))
    spec = RunSpec(epochs=500)
    with within(0.02), pytest.raises(KeyboardInterrupt):
        trained(spec)
    assert (tmp_path / spec.name / "checkpoint.pt").exists()
    assert not (tmp_path / spec.name / "result.json").exists()
    with within(1e-9), pytest.raises(OutOfTime):
        trained(spec)
    assert not runs.time_is_up()


SWEEP = """
import sys
from normscope.engine import RunSpec
from normscope.experiments.runs import train_free
train_free(RunSpec(epochs=int(epochs)) for epochs in sys.argv[1:])
"""


def test_processes_share_a_sweep_and_wait_for_each_other(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("NORMSCOPE_RUNS", str(tmp_path))
    theirs, ours = RunSpec(epochs=3), RunSpec(epochs=1)
    metrics = folder_of(theirs) / "metrics.jsonl"
    with subprocess.Popen([sys.executable, "-c", SWEEP, "3", "1"]) as other:
        try:
            while other.poll() is None and not metrics.exists():
                time.sleep(0.01)
            os.kill(other.pid, signal.SIGSTOP)
            train_free([theirs, ours])
            assert (folder_of(ours) / "result.json").exists()
            assert not (folder_of(theirs) / "result.json").exists()
            with within(0.02), pytest.raises(OutOfTime):  # while the other stands still
                trained(theirs)
            goes_on = threading.Timer(1.5, os.kill, (other.pid, signal.SIGCONT))
            goes_on.start()
            run = trained(theirs)
        finally:
            os.kill(other.pid, signal.SIGCONT)
    assert other.returncode == 0
    steps = [point["step"] for point in run.metrics("step")]
    assert steps == sorted(set(steps))
    assert run.metrics("epoch")[-1]["epoch"] == 3


def test_missing_data_are_missed_before_anything_is_trained(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("NORMSCOPE_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("NORMSCOPE_DATA", str(tmp_path / "none"))
    with pytest.raises(ValueError, match="normscope data fetch cifar10"):
        train_free([RunSpec(epochs=1), RunSpec(data="cifar10")])
    assert not (tmp_path / "runs").exists()


def test_runs_go_where_the_environment_says(monkeypatch) -> None:
    spec = RunSpec()
    for value, root in (("", Path("runs")), ("~/r", Path.home() / "r"), ("/r", Path("/r"))):
        monkeypatch.setenv("NORMSCOPE_RUNS", value)
        assert folder_of(spec) == root / spec.name


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
    cells: list[Cell] = []
    monkeypatch.setattr(cut_paths, "train_cells", lambda *args, **_: cells.extend(args[4]))
    monkeypatch.setenv("NORMSCOPE_DATA", str(tmp_path / "none"))
    cut_paths.run("small", 0, 3)
    cuts = {
        (cell.values["method"], cell.recipe): cell.values["cut"]
        for cell in cells
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


def test_a_share_has_fiellers_interval() -> None:
    rng, hits, tables = np.random.default_rng(2), 0, 500
    means = {"base": 50.0, "part": 54.0, "whole": 60.0, "other": 55.0, "last": 51.0}
    for _ in range(tables):
        knns = {row: (mean + rng.normal(0, 1, 3)) / 100 for row, mean in means.items()}
        results = results_of(**{row: (None, knn.tolist()) for row, knn in knns.items()})
        base, part, whole, *_ = results.data["cells"]
        claim = share(results, "half or more", part, whole, base, (0.5, math.inf))
        strays = max(difference(results, cell, base)[1] for cell in (part, whole))
        for s in filter(math.isfinite, claim.interval):  # what is left is just significant
            left = 100 * (knns["part"] - s * knns["whole"] - (1 - s) * knns["base"]).mean()
            variance = strays.deviation**2 / 2 * (1 + s**2 + (1 - s) ** 2) / 3
            assert abs(left) == pytest.approx(t_quantile(strays.freedom) * math.sqrt(variance))
        hits += claim.interval[0] <= 0.4 <= claim.interval[1]
    assert hits / tables >= 0.95
    alike = results_of(base=(None, [0.5, 0.52]), part=(None, [0.6, 0.7]), whole=(None, [0.51, 0.5]))
    base, part, whole = alike.data["cells"]
    claim = share(alike, "of nothing", part, whole, base, (0.5, math.inf))
    assert claim.interval == (-math.inf, math.inf)


def test_a_gain_beyond_another_methods_has_the_noise_of_both() -> None:
    results = results_of(
        a=(None, [0.50, 0.51]), b=(None, [0.60, 0.63]), c=(None, [0.3, 0.32]), d=(None, [0.4, 0.41])
    )
    a, b, c, d = results.data["cells"]
    for cell in (c, d):
        cell["values"] = {"method": "simsiam"}
    claim = gains_more(results, "more", (b, a), (d, c), paper="more")
    strays = [difference(results, *pair)[1] for pair in ((b, a), (d, c))]
    assert claim.value == pytest.approx(11 - 9.5)
    noise = math.sqrt(sum(one.deviation**2 for one in strays) / 2)
    freedom = min(one.freedom for one in strays)
    assert claim.interval[1] - claim.value == pytest.approx(t_quantile(freedom) * noise)


def test_cutting_the_last_layer_alone_leaves_the_backbones_gradients_as_they_were() -> None:
    gradients = []
    for values in ({}, {"cut": 7.0, "cut_scope": "last"}):
        method = build(RunSpec(**values), side=8).double()
        views = torch.rand(2, 8, 3, 8, 8, generator=torch.Generator().manual_seed(0)).double()
        method(views, torch.zeros(8)).loss.backward()
        gradients.append([p.grad for p in method.backbone.parameters()])
    for before, after in zip(*gradients, strict=True):
        assert (after - before).norm() <= 1e-5 * before.norm()  # dividing rounds
