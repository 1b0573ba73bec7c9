"""Norms of named modules' outputs, in a training loop that belongs to another library."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

import torch
from torch import Tensor, nn

from normscope._checks import check_floating, invalid
from normscope.monitors import NormMonitor

PREFIX = "norms/"
_log = logging.getLogger("normscope")
_LEFT_OUT = {"step", "lr", "steps_between", "rank_limit"}


class ModuleOutputs:
    """Observes what named modules return, and logs the alarms of a `NormMonitor`.

    All forward passes of a step that build a graph are its views, in their order. If they have one
    shape, each view's targets are the next view's rows. A pass without gradients, as of a momentum
    encoder, is no view.

    Args:
        modules: a name or names, as in `network.named_modules()`. Each returns embeddings, (n, d),
            or a dict that has them as `sentence_embedding`.
        views: how many views lie one after another in one output.
        weights: names of scale-invariant parameters, for effective rates.
        layers: whether to measure the angle by which weights turn; costs a copy of them.
    """

    def __init__(
        self,
        modules: str | Sequence[str],
        *,
        views: int = 1,
        weights: Collection[str] = (),
        layers: bool = True,
    ) -> None:
        self.names = (modules,) if isinstance(modules, str) else tuple(modules)
        if not self.names or not all(isinstance(name, str) for name in self.names):
            raise invalid("modules", "names of modules", modules, "See named_modules().")
        if not isinstance(views, int) or isinstance(views, bool) or views < 1:
            raise invalid("views", "an integer of at least 1", views, "Usual: 1, or 2 if stacked.")
        self.views, self.weights, self.layers = views, tuple(weights), layers
        self.monitor = NormMonitor()
        self._hooks: list[Any] = []
        self._state: Mapping[str, Any] | None = None
        self._seen: list[Tensor] | None = None  # None: nothing is kept

    def attach(self, network: nn.Module, *, step: int) -> None:
        """Begin to watch a network at a step, or go on from a loaded state."""
        self.detach()
        parameters = dict(network.named_parameters())
        weights = {name: parameters[_known(name, parameters, "weights")] for name in self.weights}
        trained = {n: p for n, p in parameters.items() if p.requires_grad and p.ndim > 1}
        self.monitor = NormMonitor(weights=weights or None, layers=trained if self.layers else {})
        if self._state is not None:
            self.monitor.load_state_dict(self._state)
            self._state = None  # a second training starts from nothing
        self.monitor.step = step
        self.monitor.start()
        modules = dict(network.named_modules())
        for name in self.names:
            module = modules[_known(name, modules, "modules")]
            self._hooks.append(module.register_forward_hook(self._keep))

    def detach(self) -> None:
        """Stop watching."""
        for hook in self._hooks:
            hook.remove()
        self._hooks, self._seen = [], None

    def expect(self) -> None:
        """Keep the outputs from here on, for `observe`."""
        self._seen = []

    @property
    def waiting(self) -> bool:
        """Whether there are outputs to observe."""
        return bool(self._seen)

    def observe(self, *, step: int, lr: float, share: float = 1.0) -> dict[str, Any]:
        """What the kept outputs say, by names of the monitor.

        Call it between `backward()` and the optimizer's step.

        Args:
            step: the optimizer's steps so far.
            lr: the step's learning rate.
            share: what an output's gradient is to be multiplied by: over a loss scale and the
                number of processes.
        """
        outputs, self._seen = self._seen or [], None
        parts = [part for z in outputs for part in z.chunk(self.views)]
        targets = None
        if len(parts) > 1 and len({part.shape for part in parts}) == 1:
            targets = torch.cat([*parts[1:], parts[0]]).detach()
        grads = [z.grad for z in outputs]
        with_grad = [grad for grad in grads if grad is not None]
        grad = torch.cat(with_grad) * share if len(with_grad) == len(grads) else None
        before = len(self.monitor.alarms), len(self.monitor.withdrawn)
        self.monitor.step = step
        # with their graph, in which the monitor finds a GradScale
        self.monitor.observe(torch.cat(outputs), lr=lr, targets=targets, grad=grad)
        record = self.monitor.records()[-1]
        for line in self.monitor.alarms[before[0] :]:
            _log.warning(line)
        for line in self.monitor.withdrawn[before[1] :]:
            _log.info(line)
        return record

    def state_dict(self) -> dict[str, Any]:
        """The monitor's state."""
        return self.monitor.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """A state to go on from at the next `attach`."""
        self._state = state

    def _keep(self, module: nn.Module, inputs: Any, output: Any) -> None:
        del module, inputs
        if self._seen is None or not torch.is_grad_enabled():
            return
        z: Any = output.get("sentence_embedding") if isinstance(output, Mapping) else output
        advice = "Name a module that returns embeddings."
        check_floating("a named module's output", z, "(n, d)", ndim=2, advice=advice)
        if z.requires_grad:
            z.retain_grad()
            self._seen.append(z)


def scalars(record: Mapping[str, Any]) -> dict[str, float]:
    """A record's numbers as loggers take them, under `norms/`."""
    numbers = ((k, v) for k, v in record.items() if k not in _LEFT_OUT)
    return {PREFIX + name: v for name, v in numbers if isinstance(v, float)}


def _known(name: str, among: Iterable[str], argument: str) -> str:
    names = list(among)
    if name not in names:
        near = get_close_matches(name, names, n=3) or names[1:4]
        raise invalid(argument, "names in the network", name, f"Like: {', '.join(near)}.")
    return name
