"""Every experiment, by the label its figure or table has in the paper."""

from __future__ import annotations

import importlib
from typing import Literal, Protocol, cast

from matplotlib.figure import Figure

from normscope._checks import invalid
from normscope.experiments.results import Claim, Results, Scale

Kind = Literal["simulation", "training"]


class Experiment(Protocol):
    """What a module of this folder provides; its docstring is the caption.

    A table of runs may also have MORE: what else RESULTS.md tells of its runs, by what their
    records call it, and what the paper prints for it, by row and column.
    """

    TITLE: str
    KIND: Kind
    COST: str
    """Of the paper's scale: on two cores, unless it says otherwise."""
    SEEDS: dict[Scale, int]
    """How many seeds each scale takes unless told."""

    @staticmethod
    def run(scale: Scale, seed: int, seeds: int) -> Results:
        """Compute the numbers."""
        ...

    @staticmethod
    def check(results: Results) -> list[Claim]:
        """Put the paper's sentences to the test."""
        ...

    @staticmethod
    def plot(results: Results) -> Figure:
        """Draw the figure from the results alone."""
        ...


# ID -> module of this folder
EXPERIMENTS = {
    "fig1": "fig1",
    "convergence_sim": "convergence_sim",
    "density": "density",
    "class_imbalance": "class_imbalance",
    "weight_decay_convergence": "weight_decay_convergence",
    "grad_scaling": "grad_scaling",
    "grad_scale_growth": "grad_scale_growth",
    "cos_sim_surface": "cos_sim_surface",
    "latents": "latents",
    "convergence_rate": "convergence_rate",
    "opposite_halves": "opposite_halves",
    "in_out_violin": "in_out_violin",
    "norm_as_confidence": "norm_as_confidence",
    "cifar_norms": "cifar_norms",
    "weight_decay_ablation": "weight_decay_ablation",
    "wd_cut": "wd_cut",
    "transformer_accs": "transformer_accs",
    "accuracies": "accuracies",
    "imbalanced_experiments": "imbalanced_experiments",
    "adam_performance": "adam_performance",
    "cut_experiments": "cut_experiments",
    "cut_batch_size": "cut_batch_size",
    "lin_probe": "lin_probe",
    "opposite_halves_effect": "opposite_halves_effect",
    "weight_decay_imbalanced": "weight_decay_imbalanced",
    "cut_paths": "cut_paths",
    "grad_scale_rates": "grad_scale_rates",
    "simsiam_recipes": "simsiam_recipes",
}


def load(name: str) -> Experiment:
    """The experiment of that ID."""
    if name not in EXPERIMENTS:
        raise invalid("ID", f"one of {', '.join(EXPERIMENTS)}", name, "See `reproduce list`.")
    return cast(Experiment, importlib.import_module(f"normscope.experiments.{EXPERIMENTS[name]}"))
