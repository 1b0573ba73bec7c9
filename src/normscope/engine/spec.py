"""What defines a run: everything that its result depends on, and nothing else."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from difflib import get_close_matches
from typing import Any, Literal, get_args, get_type_hints

from normscope._checks import NormOf, check_number, invalid
from normscope.augment import PRESETS
from normscope.data import DATASETS
from normscope.methods import METHODS, Defaults, Method, Recipe
from normscope.nets import NETS

_BY_RECIPE: Any = None  # what is filled in before anyone can read it
_ADDED = {"grad_scale_of": "each"}  # fields that older runs did not have: their names stay
_WITH_PREDICTOR = ("simsiam", "byol", "moco_v3")
CutScope = Literal["all", "weights", "last", "invariant", "rest"]

# Digits are 8 x 8 and 1,347: a network, heads and batches of their size, for a laptop's CPU.
_DIGITS: dict[str, Any] = {
    "net": "resnet10_narrow",
    "batch": 64,
    "augmentation": "digits",
    "epochs": 60,
    "knn_k": 20,  # a class has 135 training images
}
_DIGITS_NETS = {"moco_v3": "vit_micro", "dino": "vit_micro"}
_DIGITS_LR = {"moco_v3": 4e-3, "dino": 4e-3}  # .001 at batch 64: a thousand steps are few for Adam
_DIGITS_OPTIONS: dict[str, dict[str, Any]] = {
    "simclr": {"dimension": 64},
    "simsiam": {"dimension": 256},
    "byol": {"dimension": 128, "hidden": 256},
    "moco_v2": {"dimension": 64, "queue": 512},
    "moco_v3": {"dimension": 64, "hidden": 256},
    "dino": {"dimension": 64, "hidden": 256, "prototypes": 256},
    "supcon": {"dimension": 64},
}


@dataclass(frozen=True, kw_only=True)
class RunSpec:
    """One training run. What is left at None is filled in, so that a spec is always whole.

    The defaults come from the method's file, by recipe; GradScale divides the learning rate by 6
    and warms up for 100 epochs (Section 6). In the `text` recipe no warm-up takes more than a fifth
    of the run. To vary a spec, vary its arguments: `dataclasses.replace` keeps what was filled in.

    Attributes:
        method: a name in `METHODS`.
        data: a name in `DATASETS`, or `folder:PATH`, `npz:PATH`.
        net: a name in `NETS`.
        epochs: passes over the training images.
        recipe: `"text"`, what the paper says, or `"as_coded"`, what its published code does.
        seed: of the initial weights, the order of images, and the augmentations.
        batch: images per optimizer step, over all devices and micro-batches.
        accumulate: micro-batches per step; batch normalisation sees one of them at a time.
        accumulation: `"mean"` of the micro-batches' gradients, or their `"sum"`, where gradients
            left over at an epoch's end count in the next one's first step, as in the published
            code.
        optimizer: `"sgd"`, `"lars"`, `"adam"` or `"adamw"`.
        lr: peak learning rate for 256 images; multiplied by batch / 256.
        predictor_lr: the predictor's own constant learning rate, not multiplied; None: as the rest.
        momentum: of SGD and LARS.
        nesterov: whether SGD looks ahead.
        weight_decay: added to the gradient (apart from it in AdamW).
        decay: which parameters decay: `"all"` (the paper's code) or `"no_bias_norm"`.
        warmup_epochs: of linear growth from zero.
        horizon_epochs: where the cosine would reach zero; the run's end unless given.
        cosine_start: whether the cosine's clock starts at the warm-up's end or at `"zero"`.
        cut: the weights are divided by it at the start; 1 leaves them.
        cut_scope: `"all"` parameters, `"weights"`, the `"last"` linear layer, the
            scale-`"invariant"` weights, or the `"rest"`, all but these.
        grad_scale: GradScale's power; 0 is none.
        grad_scale_of: whose norm it takes: `"each"` embedding's own, their `"mean"`, or each
            one's `"share"` of it, with which learning rate and warm-up stay as they are.
        augmentation: a name in `augment.PRESETS`.
        options: the method's own arguments, such as `{"temperature": 0.2}`.
        knn_k: neighbours in the online kNN; 200 (Appendix C.1).
        precision: `"bf16"` (mixed), `"32"` or `"64"` bits (to compare runs; no growth is logged);
            `"auto"` is bf16 on a GPU, 32 on a CPU.
        log_every: optimizer steps between log points.

    >>> spec = RunSpec(method="simsiam", data="cifar10", epochs=100)
    >>> spec.batch, spec.lr, spec.weight_decay
    (1024, 0.12, 0.0005)
    """

    method: str = "simclr"
    data: str = "digits"
    net: str = _BY_RECIPE
    epochs: int = _BY_RECIPE
    recipe: Recipe = "text"
    seed: int = 0
    batch: int = _BY_RECIPE
    accumulate: int = _BY_RECIPE
    accumulation: Literal["mean", "sum"] = _BY_RECIPE
    optimizer: Literal["sgd", "lars", "adam", "adamw"] = _BY_RECIPE
    lr: float = _BY_RECIPE
    predictor_lr: float | None = None
    momentum: float = 0.9
    nesterov: bool = _BY_RECIPE
    weight_decay: float = _BY_RECIPE
    decay: Literal["all", "no_bias_norm"] = _BY_RECIPE
    warmup_epochs: float = _BY_RECIPE
    horizon_epochs: float = _BY_RECIPE
    cosine_start: Literal["warmup", "zero"] = _BY_RECIPE
    cut: float = 1.0
    cut_scope: CutScope = "all"
    grad_scale: float = 0.0
    grad_scale_of: NormOf = "each"
    augmentation: str = _BY_RECIPE
    options: Mapping[str, Any] = field(default_factory=dict)
    knn_k: int = _BY_RECIPE
    precision: Literal["auto", "bf16", "32", "64"] = "auto"
    log_every: int = 10

    def __post_init__(self) -> None:
        _check_name("method", self.method, METHODS)
        if not isinstance(self.data, str):
            raise invalid("data", "a name", self.data, "See `normscope data list`.")
        if not isinstance(self.options, Mapping):
            raise invalid("options", "a mapping", self.options, 'Such as {"temperature": 0.2}.')
        if not self.data.startswith(("folder:", "npz:")):
            _check_name("data", self.data, [*DATASETS, "folder:PATH", "npz:PATH"])
        for name, value in _filled_in(self, _defaults(self.method, self.recipe)).items():
            object.__setattr__(self, name, value)
        self._check()

    def _check(self) -> None:
        _check_name("net", self.net, NETS)
        _check_name("augmentation", self.augmentation, PRESETS)
        hints = get_type_hints(RunSpec)
        for f in fields(self):
            choices = get_args(hints[f.name])
            if choices and all(isinstance(c, str) for c in choices):
                _check_name(f.name, getattr(self, f.name), choices)
        for name in ("epochs", "accumulate", "knn_k", "log_every"):
            _check_integer(name, getattr(self, name), 1)
        _check_integer("batch", self.batch, 2)
        _check_integer("seed", self.seed, 0)
        if self.seed >= 2**63:
            raise invalid("seed", "below 2 to the power of 63", str(self.seed), "Usual: 0.")
        if not isinstance(self.nesterov, bool):
            raise invalid("nesterov", "True or False", self.nesterov, "The paper's code has True.")
        for name in ("lr", "cut", "horizon_epochs"):
            check_number(name, getattr(self, name), "See `normscope train --help`.")
        if self.predictor_lr is not None:
            check_number("predictor_lr", self.predictor_lr, "Leave it out to follow lr.")
            if self.method not in _WITH_PREDICTOR:
                advice = "Only these have a predictor."
                wanted = f"left out unless method is {', '.join(_WITH_PREDICTOR)}"
                raise invalid("predictor_lr", wanted, self.predictor_lr, advice)
        for name in ("weight_decay", "warmup_epochs", "momentum"):
            value = getattr(self, name)
            if check_number(name, value, "Zero is none.", positive=False) < 0:
                raise invalid(name, "zero or more", value, "Zero is none.")
        check_number("grad_scale", self.grad_scale, "Zero is none.", positive=False)
        if self.grad_scale_of != "each" and not self.grad_scale:
            advice = "Usual: grad_scale 1."
            raise invalid("grad_scale_of", "'each' without grad_scale", self.grad_scale_of, advice)
        if self.batch % self.accumulate:
            advice = "Micro-batches are of one size."
            raise invalid("accumulate", f"a divisor of batch {self.batch}", self.accumulate, advice)
        if self.batch == self.accumulate:
            advice = "A micro-batch of one image has no negative and no statistics."
            raise invalid("accumulate", f"below batch {self.batch}", self.accumulate, advice)
        if self.momentum >= 1:
            raise invalid("momentum", "below 1", self.momentum, "Usual: 0.9.")
        _check_options(METHODS[self.method], self.options)

    @property
    def hash(self) -> str:
        """Ten hexadecimal digits that stand for this spec."""
        values = asdict(self)
        for name, usual in _ADDED.items():
            if values[name] == usual:
                del values[name]
        canonical = json.dumps(values, sort_keys=True)
        return hashlib.sha256(canonical.encode()).hexdigest()[:10]

    @property
    def name(self) -> str:
        """A name for the run's folder."""
        data = "".join(c if c.isalnum() or c == "-" else "-" for c in self.data.split("/")[-1])
        return f"{self.method}-{data}-{self.hash}"

    def to_dict(self) -> dict[str, Any]:
        """The spec as plain values, for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> RunSpec:
        """The spec from `to_dict`'s values; a key that no spec has is an error."""
        known = [f.name for f in fields(cls)]
        for name in values:
            _check_name("spec", name, known)
        return cls(**values)


def _defaults(method: str, recipe: str) -> Defaults:
    kind = METHODS[method]
    recipes = {"text": kind.TEXT} | ({"as_coded": kind.AS_CODED} if kind.AS_CODED else {})
    if recipe not in recipes:
        advice = f"{method} has no other."
        raise invalid("recipe", " or ".join(map(repr, recipes)), recipe, advice)
    return recipes[recipe]


def _filled_in(spec: RunSpec, defaults: Defaults) -> dict[str, Any]:
    """The values of the fields that were left at None, and of options."""
    values = {**asdict(defaults), "epochs": 100, "knn_k": 200}
    options = dict(defaults.options)
    if spec.data in ("digits", "digits-unbalanced"):
        values |= _DIGITS | {"net": _DIGITS_NETS.get(spec.method, _DIGITS["net"])}
        values["lr"] = _DIGITS_LR.get(spec.method, values["lr"])
        options |= _DIGITS_OPTIONS[spec.method]
    if values["augmentation"] == "as_coded" and spec.data not in ("cifar10", "cifar100"):
        values["augmentation"] = "as_coded_strong"  # the unbalanced sets too, by accident
    filled = {f.name: getattr(spec, f.name) for f in fields(spec)}
    for name, value in filled.items():
        if value is None and name in values:
            filled[name] = values[name]
    epochs = filled["epochs"]
    if spec.accumulate is None:
        filled["accumulate"] = _micro_batches(filled["batch"], values["micro_batch"])
    raises_rate = spec.grad_scale and spec.grad_scale_of != "share"
    if raises_rate and spec.lr is None:
        filled["lr"] = _grad_scale_lr(spec, defaults)
    if spec.warmup_epochs is None:
        warmup = 100 if raises_rate else values["warmup_epochs"]  # Section 6
        short = spec.recipe == "text" and isinstance(epochs, int) and epochs < 5 * warmup
        filled["warmup_epochs"] = epochs / 5 if short else warmup
    if filled["horizon_epochs"] is None:
        filled["horizon_epochs"] = epochs
    filled["options"] = options | dict(spec.options)
    return filled


def _micro_batches(batch: Any, micro_batch: int | None) -> int:
    """How many micro-batches a step has if each may hold so many images."""
    if micro_batch is None or not isinstance(batch, int):
        return 1
    return max(1, batch // micro_batch)


def _grad_scale_lr(spec: RunSpec, defaults: Defaults) -> float:
    """A sixth of the learning rate (Section 6), or what the published code has."""
    if spec.recipe == "text":
        return defaults.lr / 6
    if defaults.grad_scale_lr is None:
        advice = "The published code has no such run; give lr to make one."
        raise invalid("recipe", "'text' with grad_scale", spec.recipe, advice)
    return defaults.grad_scale_lr


def _check_name(name: str, value: object, known: Any) -> None:
    """Refuse a name that is not among the known ones, and say which is near."""
    if not isinstance(value, str) or value not in known:
        near = get_close_matches(str(value), known, n=1)
        advice = f"Did you mean {near[0]!r}?" if near else "Choose one of these."
        raise invalid(name, f"one of {', '.join(sorted(known))}", value, advice)


def _check_options(method: type[Method], options: Mapping[str, Any]) -> None:
    """Refuse options that the method does not have, or of the wrong kind."""
    hints = get_type_hints(method.__init__)
    known = [name for name in hints if name not in ("backbone", "return")]
    for name, value in options.items():
        _check_name("options", name, known)
        kinds = get_args(hints[name]) or (hints[name],)
        label = f"options[{name!r}]"
        if all(isinstance(kind, str) for kind in kinds):
            _check_name(label, value, kinds)
        elif int in kinds:
            _check_integer(label, value, 1)
        else:
            check_number(label, value, "See the method's description.")


def _check_integer(name: str, value: object, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise invalid(name, f"a whole number from {least} up", value, "Mind the type.")
