"""Every experiment, by the label its figure or table has in the paper."""

from __future__ import annotations

import importlib
from typing import Literal, Protocol, cast

from matplotlib.figure import Figure

from normscope.extend import invalid
from normscope_paper.harness.claims import Claim
from normscope_paper.harness.results import Results, Scale

Kind = Literal["simulation", "training"]


class Experiment(Protocol):
    """What a module of `figures/`, `tables/`, `theorems/` or `own/` provides.

    Its docstring has a headline, the caption, the command, and what the paper prints, a paragraph
    each. Its numbers come from `run(scale, seed, seeds)`, which takes a `Sweep` too if it trains.
    A table of runs has `cells(scale)` instead, and may say what else it keeps of a run (`kept` and
    `from_evaluation`), which number is the table's own (KEY), and which others RESULTS.md shows,
    with what the paper prints for them (MORE); see `train_cells`. One that trains without a sweep
    says so by SHARES_RUNS = False.
    """

    TITLE: str
    PLACE: str
    """In the paper, such as "Figure 3"."""
    KIND: Kind
    COST: str
    """Of the paper's scale: on two cores, unless it says otherwise."""
    SEEDS: dict[Scale, int]
    """How many seeds each scale takes by default."""

    @staticmethod
    def check(results: Results) -> list[Claim]:
        """Put the paper's sentences to the test."""
        ...

    @staticmethod
    def plot(results: Results) -> Figure:
        """Draw the figure from the results alone."""
        ...


_MODULES = (
    "figures.fig1",
    "figures.convergence_sim",
    "figures.density",
    "figures.class_imbalance",
    "figures.in_out_violin",
    "figures.norm_as_confidence",
    "figures.weight_decay_ablation",
    "figures.grad_scaling",
    "figures.cos_sim_surface",
    "figures.latents",
    "figures.weight_decay_imbalanced",
    "figures.cut_experiments",
    "figures.cifar_norms",
    "tables.weight_decay_convergence",
    "tables.wd_cut",
    "tables.transformer_accs",
    "tables.accuracies",
    "tables.imbalanced_experiments",
    "tables.adam_performance",
    "tables.opposite_halves_effect",
    "tables.cut_batch_size",
    "tables.lin_probe",
    "theorems.convergence_rate",
    "theorems.opposite_halves",
    "own.cut_paths",
    "own.simsiam_recipes",
    "own.grad_scale_growth",
    "own.grad_scale_rates",
    "own.angular",
    "own.cut_limits",
)
EXPERIMENTS = {module.split(".")[1]: f"normscope_paper.{module}" for module in _MODULES}


def file_of(name: str) -> str:
    """The experiment's file, below src/."""
    return f"{EXPERIMENTS[name].replace('.', '/')}.py"


def load(name: str) -> Experiment:
    """The experiment of that ID."""
    if name not in EXPERIMENTS:
        raise invalid("ID", f"one of {', '.join(EXPERIMENTS)}", name, "See `reproduce list`.")
    return cast(Experiment, importlib.import_module(EXPERIMENTS[name]))


def caption(name: str) -> str:
    """What an experiment's figure and table show: the second paragraph of its docstring."""
    return (load(name).__doc__ or "").split("\n\n")[1].replace("\n", " ")
