"""Validation of a spec's values."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from inspect import signature
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin, get_type_hints

from normscope._checks import check_number, invalid
from normscope.methods import METHODS, Method
from normscope.optim import OPTIMIZERS

if TYPE_CHECKING:
    from normscope.engine.spec import RunSpec

_LARGEST = 2**63 - 1
_SEE = "See `normscope train --help`."


@dataclass(frozen=True)
class Setting:
    """A spec field's description, and limits on its values beyond their type.

    Attributes:
        about: a few words, for `--help`.
        among: the allowed names.
        least: the smallest value.
        above: an exclusive lower bound.
        below: an exclusive upper bound.
    """

    about: str
    among: Collection[str] | None = None
    least: float | None = None
    above: float | None = None
    below: float | None = None

    def check(self, name: str, kind: Any, value: object) -> None:
        """Refuse a value of another type or out of range."""
        names = self.among or (get_args(kind) if get_origin(kind) is Literal else None)
        if names is not None:
            check_name(name, value, names)
        elif kind is bool and not isinstance(value, bool):
            raise invalid(name, "True or False", value, "Check its type.")
        elif kind is int:
            least = int(self.least or 0)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise invalid(name, f"a whole number from {least} up", value, "Check its type.")
            if value > _LARGEST:
                raise invalid(name, f"at most {_LARGEST:,}", f"{len(str(value))} digits", _SEE)
        elif kind is float:
            number = check_number(name, value, _SEE, positive=self.above == 0)
            if self.least is not None and number < self.least:
                raise invalid(name, "zero or more", value, "Zero is none.")
            if self.below is not None and number >= self.below:
                raise invalid(name, f"below {self.below:g}", value, _SEE)


def check_settings(spec: RunSpec) -> None:
    """Refuse values that a run cannot have, alone or together."""
    hints = get_type_hints(type(spec), include_extras=True)
    for f in fields(spec):
        kind, value = hints[f.name], getattr(spec, f.name)
        if not (type(None) in get_args(kind) and value is None):
            kind = next((k for k in get_args(kind) if type(None) in get_args(kind)), kind)
            f.metadata["setting"].check(f.name, kind, value)
    if spec.predictor_lr is not None and not METHODS[spec.method].HAS_PREDICTOR:
        having = ", ".join(name for name, kind in METHODS.items() if kind.HAS_PREDICTOR)
        wanted = f"left out unless method is {having}"
        raise invalid("predictor_lr", wanted, spec.predictor_lr, "Only these have a predictor.")
    if spec.grad_scale_of != "each" and not spec.grad_scale:
        advice = "Usual: grad_scale 1."
        raise invalid("grad_scale_of", "'each' without grad_scale", spec.grad_scale_of, advice)
    if OPTIMIZERS[spec.optimizer].is_angle and spec.weight_decay:
        advice = "Its steps keep the weights' norms."
        raise invalid("weight_decay", f"0 with {spec.optimizer}", spec.weight_decay, advice)
    if spec.side is not None and not spec.data.startswith("folder:"):
        advice = "Its images have one of their own."
        raise invalid("side", f"left out for {spec.data}", spec.side, advice)
    _check_views(spec)
    if spec.batch % spec.accumulate:
        advice = "All micro-batches have one size."
        raise invalid("accumulate", f"a divisor of batch {spec.batch}", spec.accumulate, advice)
    if spec.batch == spec.accumulate:
        advice = "A micro-batch of one image has no negative and no statistics."
        raise invalid("accumulate", f"below batch {spec.batch}", spec.accumulate, advice)
    _check_options(METHODS[spec.method], spec.options)


def _check_views(spec: RunSpec) -> None:
    """Refuse small views where the network or the step cannot change their size."""
    if not spec.small_views:
        return
    if spec.small_views > 1:
        raise invalid(
            "small_views", "a share of the run, at most 1", spec.small_views, "Usual: 0.5."
        )
    if spec.net.startswith("vit"):
        advice = "A transformer's positions are those of one size."
        raise invalid("small_views", f"0 with {spec.net}", spec.small_views, advice)
    if spec.accumulation == "sum":
        advice = "Gradients left over at an epoch's end belong to one size of views."
        raise invalid("small_views", "0 with summed micro-batches", spec.small_views, advice)


def _check_options(method: type[Method], options: Mapping[str, Any]) -> None:
    """Refuse options that the method does not have, or of the wrong kind."""
    hints = get_type_hints(method.__init__)
    taken = list(signature(method).parameters)
    for name, value in options.items():
        check_name("options", name, [known for known in taken if known != "backbone"])
        if name not in hints:
            advice = "Values are checked by their type."
            raise invalid(f"{method.__name__}'s {name}", "annotated, such as int", "none", advice)
        kinds = get_args(hints[name]) or (hints[name],)
        label = f"options[{name!r}]"
        if all(isinstance(kind, str) for kind in kinds):
            check_name(label, value, kinds)
        elif int in kinds:
            Setting("", least=1).check(label, int, value)
        else:
            check_number(label, value, "See the method's description.")


def check_name(name: str, value: object, known: Collection[str]) -> None:
    """Refuse an unknown name, and suggest the nearest known one."""
    if not isinstance(value, str) or value not in known:
        near = get_close_matches(str(value), known, n=1)
        advice = f"Did you mean {near[0]!r}?" if near else "Choose one of these."
        raise invalid(name, f"one of {', '.join(sorted(known))}", value, advice)
