"""Optimizers; a new one is a file with a builder and a line here."""

from normscope.optim.builder import Builder
from normscope.optim.lars import LARS, lars
from normscope.optim.torch_optimizers import adam, adamw, sgd

# name -> (parameter groups, lr=, momentum=, nesterov=) -> optimizer
OPTIMIZERS: dict[str, Builder] = {
    "sgd": sgd,
    "lars": lars,
    "adam": adam,
    "adamw": adamw,
}

__all__ = ["LARS", "OPTIMIZERS", "Builder"]
