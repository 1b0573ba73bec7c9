"""What defines a run: everything that its result depends on, and nothing else."""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal

from normscope._checks import NormOf, invalid
from normscope.augment import PRESETS
from normscope.engine.resolve import BY_RECIPE, resolved
from normscope.engine.settings import Setting, check_name, check_settings
from normscope.methods import METHODS, Recipe
from normscope.nets import NETS
from normscope.optim import OPTIMIZERS

CutScope = Literal["all", "weights", "last", "invariant", "rest"]

# Fields that every hash covers. A field added later counts only if it differs from its default,
# so that stored runs keep their names.
_HASHED = {
    "method", "data", "net", "epochs", "recipe", "seed", "batch", "accumulate", "accumulation",
    "optimizer", "lr", "predictor_lr", "momentum", "nesterov", "weight_decay", "decay",
    "warmup_epochs", "horizon_epochs", "cosine_start", "cut", "cut_scope", "grad_scale",
    "augmentation", "options", "knn_k", "precision", "log_every",
}  # fmt: skip


def _setting(default: Any, about: str, **rule: Any) -> Any:
    return field(default=default, metadata={"setting": Setting(about, **rule)})


@dataclass(frozen=True, kw_only=True)
class RunSpec:
    """One training run: settings that are not given are filled in on construction.

    The defaults come from the method's file, by recipe, and from the dataset's size. GradScale
    divides the learning rate by 6 and warms up for 100 epochs (Section 6). In the `text` recipe no
    warm-up takes more than a fifth of the run. To vary a spec, build it with other arguments:
    `dataclasses.replace` keeps the filled-in values.

    >>> spec = RunSpec(method="simsiam", data="cifar10", epochs=100)
    >>> spec.batch, spec.lr, spec.weight_decay
    (1024, 0.12, 0.0005)
    """

    method: str = _setting("simclr", ", ".join(METHODS), among=METHODS)
    data: str = _setting("digits", "see `normscope data list`; or folder:PATH, npz:PATH")
    side: int | None = _setting(None, "of folder:PATH's images, in pixels; else its own", least=8)
    net: str = _setting(BY_RECIPE, ", ".join(NETS), among=NETS)
    epochs: int = _setting(BY_RECIPE, "passes over the training images", least=1)
    recipe: Recipe = _setting("text", "text (the paper's), as_coded (its code) or fast (our own)")
    seed: int = _setting(0, "seed of weights, order and augmentations", least=0)
    batch: int = _setting(BY_RECIPE, "images per optimizer step, over all devices", least=2)
    accumulate: int = _setting(BY_RECIPE, "micro-batches per step; a batch norm sees one", least=1)
    # with their sum, gradients left over at an epoch's end count in the next one's first step
    accumulation: Literal["mean", "sum"] = _setting(BY_RECIPE, "mean or sum of gradients")
    optimizer: str = _setting(BY_RECIPE, ", ".join(OPTIMIZERS), among=OPTIMIZERS)
    lr: float = _setting(BY_RECIPE, "peak rate for 256 images; angular: radians per step", above=0)
    predictor_lr: float | None = _setting(BY_RECIPE, "the predictor's own rate, constant", above=0)
    momentum: float = _setting(0.9, "momentum of SGD and LARS", least=0, below=1)
    nesterov: bool = _setting(BY_RECIPE, "Nesterov momentum for SGD")
    scalar_lr: float = _setting(0.3, "rate of biases and gains under angular", least=0)
    orthogonal: bool = _setting(True, "orthogonal directions under angular")
    weight_decay: float = _setting(BY_RECIPE, "added to the gradient; decoupled in AdamW", least=0)
    decay: Literal["all", "no_bias_norm"] = _setting(BY_RECIPE, "what decays: all or no_bias_norm")
    warmup_epochs: float = _setting(BY_RECIPE, "epochs of linear growth from zero", least=0)
    horizon_epochs: float = _setting(BY_RECIPE, "epoch at which the cosine reaches zero", above=0)
    cosine_start: Literal["warmup", "zero"] = _setting(BY_RECIPE, "cosine from: warmup or zero")
    cut: float = _setting(1.0, "divide the initial weights by this", above=0)
    cut_scope: CutScope = _setting("all", "all, weights, last (layer), invariant, rest (all else)")
    grad_scale: float = _setting(0.0, "GradScale's power; 0 is none; divides lr by 6")
    grad_scale_of: NormOf = _setting("each", "whose norm: each, mean, or share (lr stays)")
    augmentation: str = _setting(BY_RECIPE, ", ".join(PRESETS), among=PRESETS)
    small_views: float = _setting(0.0, "first share of the run, with views of 3/4 side", least=0)
    average: float = _setting(
        0.0, "momentum of averaged weights, to keep; 0: none", least=0, below=1
    )
    options: Mapping[str, Any] = _setting(BY_RECIPE, 'the method\'s own, {"temperature": 0.2}')
    knn_k: int = _setting(BY_RECIPE, "neighbours in the kNN", least=1)
    # 64 bits are for comparing runs: no growth is logged
    precision: Literal["auto", "bf16", "32", "64"] = _setting("auto", "auto, bf16, 32 or 64")
    log_every: int = _setting(10, "optimizer steps between log points", least=1)

    if not TYPE_CHECKING:  # to a checker every field is an optional argument of its type

        def __init__(self, **overrides: Any) -> None:
            names = {f.name: f.default for f in fields(self)}
            for name in overrides:
                check_name("spec", name, names)
            self.__dict__.update(resolved({**names, **overrides}))
            check_settings(self)

    @property
    def hash(self) -> str:
        """Ten hexadecimal digits that identify this spec."""
        canonical = json.dumps(self._without_usual(_HASHED), sort_keys=True)
        return hashlib.sha256(canonical.encode()).hexdigest()[:10]

    @property
    def name(self) -> str:
        """A name for the run's folder."""
        data = "".join(c if c.isalnum() or c == "-" else "-" for c in self.data.split("/")[-1])
        return f"{self.method}-{data}-{self.hash}"

    def to_dict(self) -> dict[str, Any]:
        """The spec as plain values, for JSON."""
        return asdict(self)

    def stored(self) -> dict[str, Any]:
        """`to_dict` without later fields at their default: stored lines stay as they are."""
        return self._without_usual(_HASHED | {"grad_scale_of"})

    def _without_usual(self, always: set[str]) -> dict[str, Any]:
        """The fields in `always`, and the others that differ from their default."""
        usual = {f.name: f.default for f in fields(self) if f.name not in always}
        return {k: v for k, v in asdict(self).items() if k not in usual or v != usual[k]}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> RunSpec:
        """The spec from `to_dict`'s values; an unknown key is an error."""
        if not isinstance(values, Mapping) or not all(isinstance(name, str) for name in values):
            raise invalid("spec", "an object of named values", values, "See `RunSpec.to_dict`.")
        return cls(**values)


def _described() -> None:
    """Give the class the signature and the argument list of its fields."""
    rows = [f"        {f.name}: {f.metadata['setting'].about}." for f in fields(RunSpec)]
    RunSpec.__doc__ = f"{RunSpec.__doc__}\n    Args:\n" + "\n".join(rows) + "\n"
    parameters = [
        inspect.Parameter(
            f.name, inspect.Parameter.KEYWORD_ONLY, default=f.default, annotation=f.type
        )
        for f in fields(RunSpec)
    ]
    RunSpec.__signature__ = inspect.Signature(parameters)  # pyright: ignore[reportAttributeAccessIssue]


_described()
