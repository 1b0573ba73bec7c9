"""Defaults for a spec's missing settings: from the recipe, the dataset's size, a few rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from normscope._checks import invalid
from normscope.data import DATASETS
from normscope.engine.settings import check_name
from normscope.methods import METHODS, Defaults, Method, Tiny
from normscope.optim import OPTIMIZERS

BY_RECIPE: Any = None  # placeholder for a recipe's default


def resolved(given: Mapping[str, Any]) -> dict[str, Any]:
    """All settings of a spec: those that are given, and defaults for the others.

    Args:
        given: all settings; BY_RECIPE where nothing was given.
    """
    check_name("method", given["method"], METHODS)
    check_data(given["data"])
    method, dataset = METHODS[given["method"]], DATASETS.get(given["data"])
    tiny = method.TINY if dataset is not None and dataset.tiny else None
    defaults = _defaults(given["method"], given["recipe"])
    usual = _usual(defaults, tiny, given["optimizer"], method)
    options = {} if given["options"] is BY_RECIPE else given["options"]
    if not isinstance(options, Mapping):
        raise invalid("options", "a mapping", options, 'Such as {"temperature": 0.2}.')
    options = {**defaults.options, **(tiny.options if tiny else {}), **options}
    if usual["augmentation"] == "as_coded" and given["data"] not in ("cifar10", "cifar100"):
        usual["augmentation"] = "as_coded_strong"  # the unbalanced sets too, by accident
    spec: dict[str, Any] = {
        name: usual.get(name) if value is BY_RECIPE else value for name, value in given.items()
    }
    spec["options"] = options
    if given["accumulate"] is BY_RECIPE:
        spec["accumulate"] = _micro_batches(spec["batch"], defaults.micro_batch)
    raises_rate = spec["grad_scale"] and spec["grad_scale_of"] != "share"
    raises_rate = raises_rate and not _is_angle(spec["optimizer"])
    if raises_rate and given["lr"] is BY_RECIPE:
        spec["lr"] = _grad_scale_lr(spec["recipe"], defaults)
    if given["warmup_epochs"] is BY_RECIPE:
        longest = 100 if raises_rate else defaults.warmup_epochs  # Section 6
        spec["warmup_epochs"] = _warmup(spec, longest)
    if spec["horizon_epochs"] is None:
        spec["horizon_epochs"] = spec["epochs"]
    return spec


def _usual(
    defaults: Defaults, tiny: Tiny | None, optimizer: object, method: type[Method]
) -> dict[str, Any]:
    """A recipe's settings at a dataset's size, with rates for the optimizer that is asked for."""
    sizes = {k: v for k, v in asdict(tiny).items() if v is not None} if tiny else {}
    usual = {**asdict(defaults), "epochs": 100, "knn_k": 200, **sizes}
    if _is_angle(defaults.optimizer):
        if optimizer is BY_RECIPE or _is_angle(optimizer):  # an angle is one for any size
            return usual | {"optimizer": defaults.optimizer, "lr": defaults.lr}
        text = {**asdict(method.TEXT), **sizes}
        return usual | {name: text[name] for name in ("optimizer", "lr", "weight_decay")}
    return usual | (dict(OPTIMIZERS[str(optimizer)].own) if _is_angle(optimizer) else {})


def _is_angle(optimizer: object) -> bool:
    return isinstance(optimizer, str) and optimizer in OPTIMIZERS and OPTIMIZERS[optimizer].is_angle


def check_data(name: object) -> None:
    """Refuse a value that names no dataset."""
    if not isinstance(name, str):
        raise invalid("data", "a name", name, "See `normscope data list`.")
    if not name.startswith(("folder:", "npz:")):
        check_name("data", name, [*DATASETS, "folder:PATH", "npz:PATH"])


def _defaults(method: str, recipe: str) -> Defaults:
    kind = METHODS[method]
    coded = {"as_coded": kind.AS_CODED} if kind.AS_CODED else {}
    recipes = {"text": kind.TEXT, **coded, "fast": kind.FAST}
    if not isinstance(recipe, str) or recipe not in recipes:
        advice = f"{method} has no other."
        raise invalid("recipe", " or ".join(map(repr, recipes)), recipe, advice)
    return recipes[recipe]


def _micro_batches(batch: Any, micro_batch: int | None) -> int:
    """How many micro-batches a step has if each holds at most `micro_batch` images."""
    if micro_batch is None or not isinstance(batch, int):
        return 1
    return max(1, batch // micro_batch)


def _grad_scale_lr(recipe: str, defaults: Defaults) -> float:
    """A sixth of the learning rate (Section 6), or the published code's."""
    if recipe == "text":
        return defaults.lr / 6
    if defaults.grad_scale_lr is None:
        advice = "The published code has no such run. Give lr to train one."
        raise invalid("recipe", "'text' with grad_scale", recipe, advice)
    return defaults.grad_scale_lr


def _warmup(spec: Mapping[str, Any], longest: int) -> float:
    """The recipe's warm-up; except by the published code, at most a fifth of the run."""
    epochs = spec["epochs"]
    short = spec["recipe"] != "as_coded" and isinstance(epochs, int) and epochs < 5 * longest
    return epochs / 5 if short else longest
