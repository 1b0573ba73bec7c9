"""How long a run will take on a CPU, from a step or two of it."""

from __future__ import annotations

import time

import torch

from normscope.augment import PRESETS
from normscope.data import ImageArrays
from normscope.engine.compose import build
from normscope.engine.plan import Plan
from normscope.engine.spec import RunSpec
from normscope.engine.step import both_views

_MOST = 32  # images of a timed step
_FORWARD = 1 / 6  # of a step's time: one view instead of two, and no backward pass


def seconds_on_cpu(spec: RunSpec, images: ImageArrays) -> float:
    """Seconds that training and its evaluations will take, roughly; decoding is left out."""
    plan = Plan(spec, len(images.train))
    n = min(_MOST, plan.micro_batch)
    generator = torch.Generator().manual_seed(spec.seed)
    shape = n, 3, images.side, images.side
    some = torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)
    labels = torch.arange(n) // 2  # pairs: a supervised loss needs them
    method = build(spec, side=images.side).train()
    method.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
    method.to(torch.float64 if spec.precision == "64" else torch.float32)
    augment = PRESETS[spec.augmentation](images.side)
    taken = []
    for micro in range(3):  # the first one also allocates
        u = plan.draws(0, micro, generator)[:, :n]
        began = time.perf_counter()
        views = both_views(some, None, u, augment).to(next(method.parameters()).dtype)
        method(views, labels).loss.backward()
        taken.append(time.perf_counter() - began)
    each = min(taken) / n
    evaluations = 1 + spec.epochs.bit_length()
    seen = spec.epochs * plan.micros * plan.micro_batch
    return each * (seen + _FORWARD * evaluations * (len(images.train) + len(images.test)))


def in_words(seconds: float) -> str:
    """A rough time as text.

    >>> [in_words(s) for s in (3, 80, 250, 6000, 400_000)]
    ['about 10 seconds', 'about 2 minutes', 'about 5 minutes', 'about 2 hours', 'about 5 days']
    """
    for unit, length in (("day", 86_400), ("hour", 3600), ("minute", 60)):
        if seconds > length:
            return f"about {-(-seconds // length):.0f} {unit}s"
    return f"about {max(10, 10 * -(-seconds // 10)):.0f} seconds"
