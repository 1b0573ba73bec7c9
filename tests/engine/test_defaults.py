"""Every number that a spec fills in, once more and by itself, so that none changes unseen.

"C.1" is the paper's Appendix "Experimental Setup"; "code" its published code, whose scheduler
multiplies the learning rate by itself; the others are the methods' own papers and code.
"""

import inspect
from dataclasses import fields
from typing import Any

import pytest

from normscope.engine import RunSpec
from normscope.engine.schedule import lr_share, peak_lr
from normscope.methods import METHODS, Defaults

# what nearly all share, filled in as the spec of a thousand epochs on CIFAR-10 shows it
COMMON: dict[str, Any] = {
    "side": None,
    "small_views": 0.0,
    "average": 0.0,
    "net": "resnet50",  # C.1
    "epochs": 1000,
    "accumulate": 1,
    "accumulation": "mean",
    "optimizer": "sgd",
    "predictor_lr": None,
    "momentum": 0.9,
    "nesterov": False,
    "decay": "all",
    "warmup_epochs": 10,  # C.1
    "horizon_epochs": 1000,
    "cosine_start": "warmup",
    "cut": 1.0,
    "cut_scope": "all",
    "grad_scale": 0.0,
    "grad_scale_of": "each",
    "options": {},
    "knn_k": 200,  # C.1
    "precision": "auto",
    "scalar_lr": 0.3,
    "orthogonal": True,
    "seed": 0,
    "log_every": 10,
}

TEXT: dict[str, dict[str, Any]] = {
    "simclr": {
        "batch": 256,  # C.1
        "lr": 0.18,  # C.1
        "weight_decay": 1e-6,  # C.1
        "augmentation": "simclr",
    },
    "simsiam": {
        "batch": 1024,  # C.1
        "accumulate": 4,  # C.1: each batch is still 256
        "lr": 0.12,  # C.1
        "weight_decay": 5e-4,  # C.1
        "augmentation": "simsiam",
    },
    "byol": {  # as SimSiam: C.1 gives none
        "batch": 1024,
        "accumulate": 4,
        "lr": 0.12,
        "weight_decay": 5e-4,
        "augmentation": "byol",
    },
    "moco_v2": {
        "batch": 512,
        "lr": 0.03,  # MoCo, Section 4
        "weight_decay": 5e-4,
        "augmentation": "simsiam",
    },
    "moco_v3": {
        "net": "vit_small_fixed",
        "batch": 1024,
        "optimizer": "adamw",
        "lr": 1.5e-4,  # MoCo v3, Section 5
        "weight_decay": 0.1,  # MoCo v3, Section 5
        "augmentation": "byol",
    },
    "dino": {
        "net": "vit_small",
        "batch": 512,
        "optimizer": "adamw",
        "lr": 5e-4,  # DINO, Section 3.2
        "weight_decay": 0.04,  # DINO, Section 3.2
        "decay": "no_bias_norm",
        "augmentation": "byol",
    },
    "supcon": {
        "batch": 1024,
        "lr": 0.125,  # .5 at batch 1024, SupCon's code
        "weight_decay": 1e-4,
        "augmentation": "simsiam",
    },
}

AS_CODED: dict[str, dict[str, Any]] = {
    "simclr": {
        "batch": 256,
        "lr": 0.36,  # code: .6 acts as .6 x .6
        "weight_decay": 1e-6,
        "cosine_start": "zero",
        "horizon_epochs": 512,
        "augmentation": "as_coded",
        "options": {"dimension": 128, "hidden": 128, "loss": "as_coded"},
    },
    "simsiam": {
        "batch": 1024,
        "accumulate": 8,  # code: 8 x 128, summed
        "accumulation": "sum",
        "lr": 0.04 / 4,  # code: .2 acts as .2 x .2, at batch 1024
        "predictor_lr": 0.2,
        "nesterov": True,
        "weight_decay": 5e-4,
        "warmup_epochs": 80,  # code: 10, counted in steps of 8
        "horizon_epochs": 8 * 512,
        "cosine_start": "zero",
        "augmentation": "as_coded",
    },
}

ARGUMENTS: dict[str, dict[str, Any]] = {
    "simclr": {"dimension": 256, "hidden": None, "temperature": 0.5, "loss": "all"},  # C.1: 256
    "simsiam": {"dimension": 2048, "bottleneck": None},  # C.1
    "byol": {"dimension": 256, "hidden": 4096, "momentum": 0.99},
    "moco_v2": {"dimension": 128, "queue": 4096, "temperature": 0.2, "momentum": 0.99},
    "moco_v3": {"dimension": 256, "hidden": 4096, "temperature": 0.2, "momentum": 0.99},
    "dino": {
        "dimension": 256,
        "hidden": 2048,
        "prototypes": 4096,
        "temperature": 0.1,
        "teacher_temperature": 0.04,
        "momentum": 0.996,
    },
    "supcon": {"dimension": 128, "temperature": 0.1},
}

ANGULAR = {"optimizer": "angular", "lr": 0.02, "weight_decay": 0.0}
FAST: dict[str, dict[str, Any]] = {  # what differs from the text
    "simclr": {**ANGULAR, "batch": 512, "options": {"temperature": 0.2}},
    **{
        name: {**ANGULAR, "batch": 512, "accumulate": 1}
        for name in ("simsiam", "byol", "moco_v2", "moco_v3", "dino", "supcon")
    },
}

RECIPES = [
    *(("fast", method, TEXT[method] | values) for method, values in FAST.items()),
    *(("text", method, values) for method, values in TEXT.items()),
    *(("as_coded", method, values) for method, values in AS_CODED.items()),
]


def test_the_tables_hold_every_method_and_field() -> None:
    assert TEXT.keys() == ARGUMENTS.keys()
    assert TEXT.keys() < METHODS.keys()  # the numbers of later methods are in their own tests
    assert AS_CODED.keys() == {name for name, kind in METHODS.items() if kind.AS_CODED}
    named = {f.name for f in fields(RunSpec)} - {"method", "data", "recipe"}
    for _, _, values in RECIPES:
        assert (COMMON | values).keys() == named
    # two of the defaults are rules, which the tests below hold
    assert {f.name for f in fields(Defaults)} - named == {"micro_batch", "grad_scale_lr"}


@pytest.mark.parametrize(("recipe", "method", "values"), RECIPES)
def test_a_spec_has_the_numbers_of_its_recipe(
    recipe: Any, method: str, values: dict[str, Any]
) -> None:
    expected = COMMON | values
    spec = RunSpec(method=method, data="cifar10", epochs=1000, recipe=recipe)
    assert {name: getattr(spec, name) for name in expected} == expected


def test_a_rate_is_that_of_the_optimizer_that_is_asked_for() -> None:
    on = {"method": "simsiam", "data": "cifar10"}
    angular = RunSpec(**on, recipe="as_coded", optimizer="angular")
    assert (angular.lr, angular.weight_decay, angular.predictor_lr) == (0.02, 0.0, None)
    assert RunSpec(**on, optimizer="angular", lr=0.05).lr == 0.05
    for data in ("cifar10", "digits"):
        text = RunSpec(method="vicreg", data=data)
        back = RunSpec(method="vicreg", data=data, recipe="fast", optimizer=text.optimizer)
        assert (back.lr, back.weight_decay) == (text.lr, text.weight_decay)
        assert RunSpec(method="vicreg", data=data, recipe="fast").lr == 0.02
    scaled = RunSpec(data="cifar10", optimizer="angular", grad_scale=1.0)
    assert (scaled.lr, scaled.warmup_epochs) == (0.02, 10)  # GradScale does not change an angle
    with pytest.raises(ValueError, match="weight_decay must be 0 with angular"):
        RunSpec(optimizer="angular", weight_decay=1e-4)
    with pytest.raises(ValueError, match="optimizer must be one of"):
        RunSpec(optimizer=["angular"])


def test_an_angle_does_not_grow_with_the_batch() -> None:
    for batch in (64, 1024):
        assert peak_lr(RunSpec(optimizer="angular", batch=batch)) == 0.02


@pytest.mark.parametrize("method", ARGUMENTS)
def test_a_methods_own_arguments_have_these_defaults(method: str) -> None:
    parameters = inspect.signature(METHODS[method]).parameters.values()
    found = {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}
    assert found == ARGUMENTS[method]


def test_a_spec_of_nothing_is_simclr_on_digits() -> None:
    spec = RunSpec()
    assert (spec.method, spec.data, spec.recipe, spec.epochs) == ("simclr", "digits", "text", 60)
    assert (spec.net, spec.batch, spec.accumulate, spec.knn_k) == ("resnet10_narrow", 64, 1, 20)
    assert (spec.augmentation, spec.options) == ("digits", {"dimension": 64})
    assert RunSpec(data="cifar10").epochs == 100
    for method in TEXT:
        small = RunSpec(method=method)
        transformer = method in ("moco_v3", "dino")
        assert small.net == ("vit_micro" if transformer else "resnet10_narrow")
        assert (small.batch, small.accumulate, small.augmentation) == (64, 1, "digits")
        assert small.lr == (4e-3 if transformer else TEXT[method]["lr"])


@pytest.mark.parametrize("method", ["simsiam", "byol"])
def test_micro_batches_stay_at_256_whatever_the_batch(method: str) -> None:
    for batch, accumulate in ((64, 1), (256, 1), (512, 2), (1024, 4), (4096, 16)):
        assert RunSpec(method=method, data="cifar10", batch=batch).accumulate == accumulate
    assert RunSpec(method=method, data="cifar10", batch=512, accumulate=1).accumulate == 1


def test_micro_batches_as_coded_stay_at_128() -> None:
    spec = RunSpec(method="simsiam", data="cifar10", recipe="as_coded", batch=512)
    assert (spec.accumulate, spec.accumulation) == (4, "sum")


@pytest.mark.parametrize("method", ["simclr", "moco_v2", "moco_v3", "dino", "supcon"])
def test_other_methods_see_the_batch_at_once(method: str) -> None:
    assert RunSpec(method=method, data="cifar10", batch=4096).accumulate == 1


@pytest.mark.parametrize("method", METHODS)
def test_warm_up_takes_at_most_a_fifth_of_a_run_of_the_text(method: str) -> None:
    def warm_up(epochs: int, **values: Any) -> float:
        return RunSpec(method=method, data="cifar10", epochs=epochs, **values).warmup_epochs

    assert [warm_up(n) for n in (1, 10, 49, 50, 51, 500)] == [0.2, 2, 9.8, 10, 10, 10]
    scaled = [warm_up(n, grad_scale=1.0) for n in (10, 100, 499, 500, 1000)]
    assert scaled == [2, 20, 99.8, 100, 100]  # Section 6
    assert warm_up(10, warmup_epochs=8.0) == 8  # what is asked for is done


def test_warm_up_as_coded_is_as_coded_however_short_the_run() -> None:
    for method, epochs in (("simclr", 10), ("simsiam", 80)):
        spec = RunSpec(method=method, data="cifar10", epochs=20, recipe="as_coded")
        assert spec.warmup_epochs == epochs


def test_grad_scale_takes_a_sixth_of_the_texts_rate() -> None:
    for method, values in TEXT.items():
        spec = RunSpec(method=method, data="cifar10", grad_scale=1.0)
        assert spec.lr == pytest.approx(values["lr"] / 6)  # Section 6


def test_grad_scale_as_coded_acts_with_a_hundredth_and_simsiam_has_none() -> None:
    spec = RunSpec(data="cifar10", epochs=500, recipe="as_coded", grad_scale=1.0)
    assert peak_lr(spec) == pytest.approx(0.01)  # code: .1 acts as .1 x .1
    with pytest.raises(ValueError, match="recipe must be 'text' with grad_scale"):
        RunSpec(method="simsiam", data="cifar10", recipe="as_coded", grad_scale=1.0)
    own = RunSpec(method="simsiam", data="cifar10", recipe="as_coded", grad_scale=1.0, lr=0.5)
    assert own.lr == 0.5


def test_as_coded_colours_are_doubled_on_all_but_balanced_cifar() -> None:
    strong = {"cifar10": False, "cifar100": False, "cifar10-unbalanced": True, "flowers102": True}
    for name, doubled in strong.items():
        spec = RunSpec(data=name, recipe="as_coded")
        assert spec.augmentation == ("as_coded_strong" if doubled else "as_coded")
        assert RunSpec(data=name).augmentation == "simclr"


def test_rates_as_coded_hardly_fall_in_the_runs_that_were_published() -> None:
    simclr, simsiam = (
        RunSpec(method=m, data="cifar10", epochs=100, recipe="as_coded")
        for m in ("simclr", "simsiam")
    )
    assert peak_lr(simclr) == pytest.approx(0.36)
    assert peak_lr(simsiam) == pytest.approx(0.04)
    assert lr_share(simclr, 256) == pytest.approx(0.5)
    assert lr_share(simsiam, 40) == pytest.approx(0.5)
    assert lr_share(simsiam, 100) > 0.998
