"""Which learning rate a run should peak at: a range test on a spec's network and images."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from normscope import data
from normscope._checks import invalid
from normscope.augment import PRESETS
from normscope.data import Batch
from normscope.engine.compose import build
from normscope.engine.optimizers import optimizer_for
from normscope.engine.plan import Plan
from normscope.engine.run import open_fabric
from normscope.engine.spec import RunSpec
from normscope.engine.step import Step
from normscope.engine.tuning import tuned
from normscope.monitors import RangeTest, range_test
from normscope.optim import OPTIMIZERS


def advise(
    spec: RunSpec,
    *,
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto",
    data_root: Path | None = None,
    images: data.ImageArrays | None = None,
    steps: int = 600,
    progress: Callable[[int, int], object] | None = None,
) -> RangeTest:
    """A range test of a spec, from its initial weights, on one process; writes nothing.

    Rates are those of the optimizer: the spec's `lr` times batch / 256.

    Args:
        spec: what would be trained.
        device: `"auto"` takes a GPU if there is one.
        data_root: where datasets are.
        images: the dataset that `spec.data` names, if it is loaded already.
        steps: at most.
        progress: called with the number of steps done, and `steps`.

    >>> spec = RunSpec(method="simsiam", epochs=20, lr=3.0)
    >>> advise(spec, device="cpu", steps=330).factor < 1
    True
    """
    if OPTIMIZERS[spec.optimizer].is_angle:
        advice = "Its lr is the angle: try 0.01 to 0.1."
        raise invalid("optimizer", "one whose angle is to be found", spec.optimizer, advice)
    if images is None:
        images = data.load(spec.data, data_root, side=spec.side)
    plan = Plan(spec, len(images.train.labels))
    fabric = open_fabric(device, spec.precision)
    with tuned(fabric.device, spec.precision):
        method = build(spec, side=images.side).to(fabric.device)
        method.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
        method.train()
        optimizer = optimizer_for(method, spec)
        wrapped, _ = fabric.setup(method, optimizer)
        share = spec.accumulate if spec.accumulation == "mean" else 1
        run = Step(fabric, wrapped, PRESETS[spec.augmentation](images.side), share=share)
        batches = _batches(data.source(images.train, fabric.device, side=images.side), plan)
        generator = torch.Generator(fabric.device)
        numbers = count()

        def step() -> Tensor:
            losses = []
            for micro in range(spec.accumulate):
                u = plan.draws(0, next(numbers), generator)
                last = micro + 1 == spec.accumulate
                out = run.gradients(next(batches), u, last=last, observed=False)
                losses.append(out.loss.detach())
            return torch.stack(losses).mean()

        def after() -> None:
            run.clear()
            method.after_step(0.0)

        return range_test(step, optimizer, method, after=after, steps=steps, progress=progress)


def _batches(source: Any, plan: Plan) -> Iterator[Batch]:
    """Training batches without end."""
    for epoch in count():
        yield from source.batches(plan.epochs(epoch, epoch + 1, 0))
