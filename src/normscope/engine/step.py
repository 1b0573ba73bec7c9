"""From a batch of images to gradients; on a single GPU as a recorded CUDA graph."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from normscope.augment import Augmentation, Parameters
from normscope.data import Batch
from normscope.methods import StepOutput
from normscope.optim import AngularSGD

_MOST_KINDS = 64  # of batches that a process compiles for before it gives up
_WARM_UP = 3  # steps before anything is recorded: they compile, choose algorithms, allocate


class Step:
    """Views, loss and gradients of a micro-batch; gradients add up until the optimizer's step.

    Args:
        fabric: Lightning Fabric.
        method: the network, wrapped by Fabric.
        augment: makes the views.
        share: divides a micro-batch's loss.

    Attributes:
        waiting: whether there are gradients that the optimizer has not used.
    """

    def __init__(
        self, fabric: Any, method: nn.Module, augment: Augmentation, *, share: int
    ) -> None:
        self.fabric, self.method, self.augment = fabric, method, augment
        self._share = share
        self.waiting = False
        self._views = both_views
        if fabric.device.type == "cuda":
            # one compilation for all runs of a process, a recompilation for each kind of batch
            torch._dynamo.config.cache_size_limit = _MOST_KINDS  # pyright: ignore
            self._views = _compiled_views()

    def gradients(self, batch: Batch, u: Tensor, *, last: bool, observed: bool) -> StepOutput:
        """One micro-batch, forward and backward.

        Args:
            batch: n images and labels.
            u: uniform numbers for the augmentation of both views, (2, n, DRAWS).
            last: whether the optimizer steps next; processes then share their gradients.
            observed: whether to return the gradient in the embeddings.
        """
        with self.fabric.no_backward_sync(self.method, enabled=not last):
            views = self._views(batch.images, batch.sizes, u, self.augment)
            out: StepOutput = self.method(views, batch.labels)
            if observed:
                out.embeddings.retain_grad()
            self.fabric.backward(out.loss / self._share)
        self.waiting = True
        return out

    def update(self, optimizer: Any) -> None:
        """Step the optimizer, wrapped by Fabric, and clear the gradients."""
        optimizer.step()
        self.clear()

    def clear(self) -> None:
        """Drop the gradients: the next ones are not added to them."""
        for p in self.method.parameters():
            p.grad = None
        self.waiting = False


def both_views(images: Tensor, sizes: Tensor | None, u: Tensor, augment: Augmentation) -> Tensor:
    """Two augmented views of a batch, 2 n 3 s s."""
    height, width = images.shape[-2:] if sizes is None else sizes.unbind(1)
    drawn = [
        augment.parameters(u[view], height=height, width=width, view=view) for view in range(2)
    ]
    both = Parameters(*(torch.cat(values) for values in zip(*drawn, strict=True)))
    twice = None if sizes is None else sizes.repeat(2, 1)
    views = augment(images.repeat(2, 1, 1, 1), both, twice)
    views = views.contiguous(memory_format=torch.channels_last)  # 2n 3 s s
    return views.unflatten(0, (2, -1))


@cache
def _compiled_views() -> Callable[..., Tensor]:
    return torch.compile(both_views, dynamic=False)


@dataclass
class _Recording:
    """A CUDA graph with its input and output tensors."""

    graph: torch.cuda.CUDAGraph
    batch: Batch
    u: Tensor
    out: StepOutput


class RecordedStep(Step):
    """`Step` as one CUDA graph: the host launches once instead of a thousand times.

    The first steps run eagerly. Then a step that writes gradients is recorded and, with several
    micro-batches per optimizer step, one that adds to them. The next step overwrites what a step
    returned. Nothing in a step may depend on changing Python values, or wait for the device.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._calls = 0
        self._recordings: dict[bool, _Recording] = {}  # adds to gradients or not -> graph
        self._gradients: list[tuple[nn.Parameter, Tensor]] = []
        self._update: torch.cuda.CUDAGraph | None = None
        self._pool = torch.cuda.graph_pool_handle()
        self._stream = torch.cuda.Stream()  # where it is recorded, and so where it warms up

    def gradients(self, batch: Batch, u: Tensor, *, last: bool, observed: bool) -> StepOutput:
        """As in `Step`; the gradient in the embeddings is always returned."""
        adds = self.waiting
        self._calls += 1
        if adds not in self._recordings:
            # a step that adds needs the memory that a first one writes to
            if self._calls <= _WARM_UP or (adds and not self._recordings):
                return self._warm_up(batch, u, last=last, observed=observed)
            self._recordings[adds] = self._record(batch, u)
        recording = self._recordings[adds]
        places, values = _tensors(recording.batch, recording.u), _tensors(batch, u)
        for place, value in zip(places, values, strict=True):
            place.copy_(value)
        recording.graph.replay()
        for p, gradient in self._gradients:
            p.grad = gradient
        self.waiting = True
        return recording.out

    def update(self, optimizer: Any) -> None:
        """As in `Step`; a step of steady angles, of many small kernels, is recorded too.

        The next step overwrites the gradients: there is nothing to clear.
        """
        inner = optimizer.optimizer
        if not (self._recordings and isinstance(inner, AngularSGD)):
            optimizer.step()
        else:
            if self._update is None:
                self._update = torch.cuda.CUDAGraph()
                with self._recorded_into(self._update):
                    inner.step()
            self._update.replay()
        self.waiting = False

    def _recorded_into(self, graph: torch.cuda.CUDAGraph) -> AbstractContextManager[None]:
        torch.cuda.synchronize()
        # "thread_local": other threads may keep using the GPU
        where = {"pool": self._pool, "stream": self._stream}
        return torch.cuda.graph(graph, **where, capture_error_mode="thread_local")

    def _warm_up(self, batch: Batch, u: Tensor, *, last: bool, observed: bool) -> StepOutput:
        """An eager step on the recording stream, since autograd stays on its first stream."""
        if not self.waiting:
            self.clear()
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            out = super().gradients(batch, u, last=last, observed=observed)
        torch.cuda.current_stream().wait_stream(self._stream)
        return out

    def _record(self, batch: Batch, u: Tensor) -> _Recording:
        """Record a step without running it."""
        sizes = None if batch.sizes is None else batch.sizes.clone()
        batch, u = Batch(batch.images.clone(), sizes, batch.labels.clone()), u.clone()
        first = not self._recordings
        if first:
            self.clear()  # gradients are then made in the graph's own memory
        graph = torch.cuda.CUDAGraph()
        with self._recorded_into(graph):
            out = super().gradients(batch, u, last=True, observed=True)
        if first:
            with_gradient = [p for p in self.method.parameters() if p.grad is not None]
            self._gradients = [(p, p.grad) for p in with_gradient if p.grad is not None]
        return _Recording(graph, batch, u, out)


def _tensors(batch: Batch, u: Tensor) -> list[Tensor]:
    """The inputs of a step."""
    return [x for x in (*batch, u) if x is not None]


def step_for(fabric: Any, *args: Any, **kwargs: Any) -> Step:
    """A `RecordedStep` on a single GPU; a `Step` with several processes or on a CPU."""
    alone = fabric.world_size == 1 and fabric.device.type == "cuda"
    return (RecordedStep if alone else Step)(fabric, *args, **kwargs)
