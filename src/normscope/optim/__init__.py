"""Optimizers; a new one is a file with a builder and a line here."""

from normscope.optim.angular import AngularSGD, angular
from normscope.optim.builder import Builder, Kind
from normscope.optim.lars import LARS, lars
from normscope.optim.torch_optimizers import adam, adamw, sgd

OPTIMIZERS: dict[str, Kind] = {
    "sgd": Kind(sgd),
    "lars": Kind(lars),
    "adam": Kind(adam),
    "adamw": Kind(adamw),
    "angular": Kind(
        angular, is_angle=True, own={"lr": 0.02, "weight_decay": 0.0, "predictor_lr": None}
    ),
}

__all__ = ["LARS", "OPTIMIZERS", "AngularSGD", "Builder", "Kind"]
