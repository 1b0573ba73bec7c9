"""Specs: filled in by recipe, refused when wrong, the same through JSON."""

import json
from dataclasses import dataclass, fields

import pytest

from normscope.engine import RunSpec
from normscope.engine.spec import _HASHED, _setting
from normscope.methods import METHODS


def test_spec_takes_the_papers_numbers() -> None:
    simclr = RunSpec(method="simclr", data="cifar10", epochs=500)
    assert (simclr.batch, simclr.lr, simclr.weight_decay) == (256, 0.18, 1e-6)
    simsiam = RunSpec(method="simsiam", data="cifar10", epochs=500)
    assert (simsiam.batch, simsiam.lr, simsiam.weight_decay) == (1024, 0.12, 5e-4)
    assert simclr.warmup_epochs == simsiam.warmup_epochs == 10


def test_spec_as_coded_is_what_the_published_code_does() -> None:
    simsiam = RunSpec(method="simsiam", data="cifar10", epochs=100, recipe="as_coded")
    assert simsiam.lr * simsiam.batch / 256 == pytest.approx(0.04)
    assert (simsiam.accumulation, simsiam.accumulate, simsiam.warmup_epochs) == ("sum", 8, 80)
    simclr = RunSpec(method="simclr", data="cifar10-unbalanced-as-coded", recipe="as_coded")
    assert simclr.augmentation == "as_coded_strong"


def test_grad_scale_divides_the_rate_by_six_and_warms_up_longer() -> None:
    plain = RunSpec(data="cifar10", epochs=1000)
    scaled = RunSpec(data="cifar10", epochs=1000, grad_scale=1.0)
    assert scaled.lr == pytest.approx(plain.lr / 6)
    assert scaled.warmup_epochs == 100
    assert RunSpec(data="cifar10", grad_scale=1.0, lr=0.5).lr == 0.5


@pytest.mark.parametrize("method", METHODS)
def test_spec_is_whole_and_survives_json(method: str) -> None:
    spec = RunSpec(method=method, data="cifar10", epochs=3)
    may_be_none = {"predictor_lr", "side"}
    assert all(getattr(spec, f.name) is not None for f in fields(spec) if f.name not in may_be_none)
    again = RunSpec.from_dict(json.loads(json.dumps(spec.to_dict())))
    assert again == spec
    assert again.hash == spec.hash


def test_fields_that_were_added_later_leave_the_names_of_older_runs_as_they_were() -> None:
    assert RunSpec(data="cifar10", epochs=30).name == "simclr-cifar10-d32ed02b23"
    scaled = [RunSpec(grad_scale=1.0, grad_scale_of=of).name for of in ("each", "mean", "share")]
    assert len(set(scaled)) == 3
    assert RunSpec.from_dict(RunSpec(grad_scale=1.0).to_dict()).name == scaled[0]


@dataclass(frozen=True, kw_only=True, init=False)
class Later(RunSpec):
    """A spec with one field more, which stored runs do not have."""

    extra: int = _setting(3, "of a later version")


def test_a_new_field_cannot_rename_stored_runs_by_accident() -> None:
    assert Later(data="cifar10").name == RunSpec(data="cifar10").name
    assert Later(data="cifar10", extra=4).name != RunSpec(data="cifar10").name
    assert {f.name for f in fields(RunSpec)} - _HASHED == {
        "grad_scale_of",
        "scalar_lr",
        "orthogonal",
        "side",
        "small_views",
        "average",
    }


def test_hash_differs_with_every_field_that_differs() -> None:
    hashes = {RunSpec(**v).hash for v in ({}, {"seed": 1}, {"cut": 3.0}, {"log_every": 3})}
    assert len(hashes) == 4


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"method": "simlcr"}, "Did you mean 'simclr'?"),
        ({"data": "cifar"}, "data must be one of"),
        ({"net": "resnet19"}, "net must be one of"),
        ({"recipe": "coded"}, "recipe must be 'text' or 'as_coded'"),
        ({"method": "byol", "recipe": "as_coded"}, "byol has no other"),
        ({"epochs": 0}, "epochs must be a whole number from 1 up, got 0"),
        ({"epochs": 2.5}, "epochs must be a whole number"),
        ({"batch": 100, "accumulate": 3}, "accumulate must be a divisor of batch 100"),
        ({"batch": 64, "accumulate": 64}, "accumulate must be below batch 64"),
        ({"lr": float("nan")}, "lr must be a positive finite number"),
        ({"weight_decay": -1.0}, "weight_decay must be zero or more"),
        ({"cut": 0.0}, "cut must be a positive finite number"),
        ({"grad_scale_of": "mean"}, "grad_scale_of must be 'each' without grad_scale, got 'mean'"),
        (
            {"grad_scale": 1.0, "grad_scale_of": "all"},
            "grad_scale_of must be one of each, mean, sh",
        ),
        ({"cut_scope": "some"}, "cut_scope must be one of all, invariant, last, rest, weights"),
        ({"optimizer": "sdg"}, "Did you mean 'sgd'?"),
        ({"options": {"queue": 3}}, "options must be one of dimension, hidden, loss, temperature"),
        ({"seed": -1}, "seed must be a whole number from 0 up"),
        ({"precision": "16"}, "precision must be one of"),
        ({"data": 5}, "data must be a name"),
        ({"options": 5}, "options must be a mapping"),
        ({"options": {"dimension": -4}}, "options['dimension'] must be a whole number from 1 up"),
        ({"options": {"loss": "some"}}, "options['loss'] must be one of all, as_coded"),
        ({"options": {"temperature": "x"}}, "options['temperature'] must be a positive finite"),
        ({"batch": 1}, "batch must be a whole number from 2 up"),
        ({"seed": 10**30}, "seed must be at most"),
        ({"momentum": 5.0}, "momentum must be below 1"),
        ({"nesterov": 5}, "nesterov must be True or False"),
        ({"predictor_lr": 0.1}, "predictor_lr must be left out unless method is simsiam"),
    ],
)
def test_spec_refuses_in_one_line(values: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match="must be") as caught:
        RunSpec(**values)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_unknown_key_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"spec must be one of .*'epoch'.*'epochs'"):
        RunSpec.from_dict({"epoch": 3})


def test_an_option_of_a_method_must_be_annotated(monkeypatch: pytest.MonkeyPatch) -> None:
    class Plain(METHODS["simclr"]):
        def __init__(self, backbone, *, dimension=64) -> None:
            raise NotImplementedError

    monkeypatch.setitem(METHODS, "plain", Plain)
    with pytest.raises(ValueError, match="Plain's dimension must be annotated, such as int"):
        RunSpec(method="plain", options={"dimension": 8})
