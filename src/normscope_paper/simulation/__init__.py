"""Simulations without a network, or with a small one."""

from normscope_paper.simulation.density import (
    DensityCorrelation,
    density_correlation,
    neighbour_distance,
)
from normscope_paper.simulation.heads import HeadCourse, train_head
from normscope_paper.simulation.latent_classes import (
    RECIPES,
    LatentData,
    LatentRecipe,
    LatentRun,
    latent_data,
    train_latent_classes,
)
from normscope_paper.simulation.pairs import (
    OUTCOMES,
    PairResult,
    converge_pairs,
    steps_to_convergence,
)

__all__ = [
    "OUTCOMES",
    "RECIPES",
    "DensityCorrelation",
    "HeadCourse",
    "LatentData",
    "LatentRecipe",
    "LatentRun",
    "PairResult",
    "converge_pairs",
    "density_correlation",
    "latent_data",
    "neighbour_distance",
    "steps_to_convergence",
    "train_head",
    "train_latent_classes",
]
