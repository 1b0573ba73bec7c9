"""A run's schedule: its steps, their images and views, and the learning rate."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from normscope._checks import invalid
from normscope.augment import DRAWS
from normscope.engine.randomness import seed_for, shuffled
from normscope.engine.schedule import lr_share, peak_lr
from normscope.engine.spec import RunSpec


@dataclass(frozen=True)
class Plan:
    """A run's schedule; each process takes its own rows of every micro-batch.

    Args:
        spec: the run's spec.
        n: training images.
        rank: of this process.
        world: number of processes.
    """

    spec: RunSpec
    n: int
    rank: int = 0
    world: int = 1

    def __post_init__(self) -> None:
        spec = self.spec
        if self.n < spec.batch:
            advice = f"Such as --batch {max(2, self.n // 4)}."
            raise invalid("batch", f"at most the {self.n} training images", spec.batch, advice)
        if self.micro_batch % self.world:
            wanted = f"a multiple of {self.world} processes x {spec.accumulate}"
            raise invalid("batch", wanted, spec.batch, "Every process takes an equal share.")
        if spec.knn_k > self.n:
            advice = f"Such as --set knn_k={max(1, self.n // 10)}."
            raise invalid("knn_k", f"at most the {self.n} training images", spec.knn_k, advice)

    @property
    def micro_batch(self) -> int:
        """Images of a micro-batch, over all processes."""
        return self.spec.batch // self.spec.accumulate

    @property
    def steps(self) -> int:
        """Optimizer steps of an epoch."""
        return self.n // self.micro_batch // self.spec.accumulate

    @property
    def micros(self) -> int:
        """Micro-batches of an epoch; gradients left over by a sum stay for the next epoch."""
        if self.spec.accumulation == "sum":
            return self.n // self.micro_batch
        return self.steps * self.spec.accumulate

    @property
    def all_steps(self) -> int:
        """Optimizer steps of the run."""
        return self.spec.epochs * self.steps

    def view_side(self, epoch: int, side: int) -> int:
        """The side of the views of an epoch, counted from 0, for images of a side."""
        return side * 3 // 4 if epoch < self.spec.small_views * self.spec.epochs else side

    def next_evaluation(self, epoch: int) -> int:
        """The next epoch after which networks are evaluated: 1, 2, 4, 8, ... or the last."""
        return min(1 << epoch.bit_length(), self.spec.epochs)

    def is_log_point(self, step: int) -> bool:
        """Whether numbers are logged after so many steps."""
        return step % self.spec.log_every == 0 or step == self.all_steps

    def lr(self, step: int) -> float:
        """The learning rate of a step, counted from 0."""
        return peak_lr(self.spec) * lr_share(self.spec, step / self.steps)

    def epochs(self, first: int, last: int, done: int) -> Iterator[list[Tensor]]:
        """Our rows of each micro-batch, by epoch; the first epoch skips `done` micro-batches."""
        for epoch in range(first, last):
            order = shuffled(self.spec.seed, epoch, self.n)
            micros = order[: self.micros * self.micro_batch].split(self.micro_batch)
            yield [indices[self._mine] for indices in micros[done:]]
            done = 0

    def draws(self, epoch: int, micro: int, generator: torch.Generator) -> Tensor:
        """Uniform numbers for two views of a micro-batch, 2 n DRAWS."""
        generator.manual_seed(seed_for(self.spec.seed, "views", epoch, micro))
        options = {"generator": generator, "device": generator.device}
        views = [torch.rand(self.micro_batch, DRAWS, **options) for _ in range(2)]
        return torch.stack([u[self._mine] for u in views])

    @property
    def _mine(self) -> slice:
        """Our rows of a micro-batch."""
        share = self.micro_batch // self.world
        return slice(self.rank * share, (self.rank + 1) * share)
