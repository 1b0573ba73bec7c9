"""NormMonitor: norm telemetry for any training loop."""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from normscope._checks import NormOf, check_floating, check_norm_of, check_number, invalid
from normscope.monitors.alarms import Alarms
from normscope.monitors.geometry import RANK_ROWS, geometry, gram, rank_of_gram
from normscope.monitors.growth import growth
from normscope.monitors.norm_moments import norms
from normscope.monitors.observation import Observation
from normscope.monitors.rates import rates
from normscope.monitors.scaled import grad_scale_behind, passed_no_grad_scale
from normscope.monitors.turning import Turned, Turning

MONITORS: dict[str, Callable[[Observation], dict[str, Tensor]]] = {
    "norms": norms,
    "rates": rates,
    "growth": growth,
    "geometry": geometry,
}

Record = dict[str, Any]  # by name a float, or a list of them where the quantity is a vector


class _Pending(NamedTuple):
    """One observation that the host has not read: its numbers in one tensor, and their names."""

    step: int
    lr: float
    shapes: dict[str, torch.Size]
    numbers: Tensor


class _Shipped(NamedTuple):
    """Observations on their way to the host."""

    pending: list[_Pending]
    numbers: Tensor  # of all of them
    gram: Tensor | None  # of the newest one's rows; None if there is nothing to rank
    turned: Turned | None  # what the layers did since the last log point
    arrived: torch.cuda.Event | None  # None if they are on the host already


class NormMonitor:
    r"""Watches norms, effective learning rates, growth and geometry while a network trains.

    `observe` only queues work on the device and never waits for it. `summary` and `records` fetch
    all pending numbers in one transfer. A loop that calls `ship` at one log point and `records` at
    the next does not wait there either. With several processes, each monitor sees its own rows.

    Args:
        power: of a GradScale between the network and the observed embeddings. By default it is
            read from their graph, and is 0 if there is no GradScale, or no graph.
        power_of: that GradScale's `of`, if `power` is given.
        classes: how many classes the labels have; without it there is no `norm_by_class`.
        weights: scale-invariant weights by name, read at each observation.
        layers: weights by name whose turning is measured at log points; `weights` by default. The
            monitor keeps a copy of them.
        every: observe once in so many calls; the others cost nothing.
        keep: observations to hold at most, pending or read; the oldest are dropped.

    Attributes:
        step: how many times `observe` was called; set it when training resumes.

    >>> monitor = NormMonitor()
    >>> for lr in (0.5, 0.25):
    ...     _ = monitor.observe(torch.tensor([[3.0, 4.0], [0.0, 5.0]]), lr=lr)
    >>> summary = monitor.summary()
    >>> print(summary["step"], summary["norm_mean"], summary["lr_over_norm"])
    1 5.0 0.05000000074505806
    """

    def __init__(
        self,
        *,
        power: float | None = None,
        power_of: NormOf = "each",
        classes: int | None = None,
        weights: Mapping[str, Tensor] | None = None,
        layers: Mapping[str, Tensor] | None = None,
        every: int = 1,
        keep: int = 1000,
    ) -> None:
        advice = "Without GradScale it is 0."
        self._power_given = power is not None
        self.power = check_number("power", power or 0.0, advice, positive=False)
        self._graph_read = False
        check_norm_of("power_of", power_of)
        self.power_of: NormOf = power_of
        for argument, given in (("weights", weights), ("layers", layers)):
            for name, w in (given or {}).items():
                advice = "Pass parameters by name."
                check_floating(f"{argument}[{name!r}]", w, "(...)", advice=advice)
        self.weights = weights
        self._turning = Turning((weights if layers is None else layers) or {})
        self.classes = None if classes is None else _check_count("classes", classes)
        self.every = _check_count("every", every)
        self.step = 0
        self._alarms = Alarms(self.power)
        keep = _check_count("keep", keep)
        self._pending: deque[_Pending] = deque(maxlen=keep)
        self._seen: deque[Record] = deque(maxlen=keep)
        self._unread: deque[Record] = deque(maxlen=keep)
        self._rank_rows: Tensor | None = None
        self._shipped: deque[_Shipped] = deque()
        self._previous: tuple[int, Tensor] | None = None  # step, mean of |z|^2

    def observe(
        self,
        z: Tensor,
        *,
        lr: float,
        targets: Tensor | None = None,
        labels: Tensor | None = None,
        grad: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """The quantities of this step, detached and on z's device; empty if it is skipped.

        Call it after `backward()` and before the optimizer's step.

        Args:
            z: raw embeddings where the loss acts, (n, d).
            lr: the step's learning rate.
            targets: what each row is pulled to, (n, d), for alignment and opposite halves.
            labels: classes, (n,), for `norm_by_class`.
            grad: gradient of the loss in z, (n, d), for growth; by default z.grad, which exists if
                z is a leaf or `z.retain_grad()` was called.

        Raises:
            ValueError: if a `power` was given and z is not what a GradScale of it returned. The
                gradient in what enters a GradScale holds the factor already. A leaf says nothing
                about that: leave `power` out.
        """
        check_floating("z", z, "(n, d)", ndim=2)
        self.start()
        step = self.step
        self.step += 1
        if step % self.every:
            return {}
        self._read_graph(z)
        if grad is None and (z.is_leaf or z.retains_grad):  # else asking for z.grad would warn
            grad = z.grad
        previous, square = self._previous or (step - 1, None)
        seen = Observation(
            z=z,
            lr=lr,
            targets=targets,
            labels=labels,
            grad=grad,
            power=self.power,
            power_of=self.power_of,
            weights=self.weights,
            classes=self.classes,
            previous_square=square,
            steps=step - previous,
        )
        values = {k: v for monitor in MONITORS.values() for k, v in monitor(seen).items()}
        self._previous = step, values["norm_square_mean"]
        # a copy: the optimizer may move z before the log point
        self._rank_rows = z.detach()[:RANK_ROWS].clone()
        shapes = {name: v.shape for name, v in values.items()}
        numbers = torch.cat([v.reshape(-1) for v in values.values()])
        self._pending.append(_Pending(step, float(lr), shapes, numbers))
        return values

    def _read_graph(self, z: Tensor) -> None:
        """Find GradScale's power at the first z that has a graph, or compare it with the given."""
        if self._graph_read or z.grad_fn is None:
            return
        found = grad_scale_behind(z)
        if not self._power_given:
            self.power, self.power_of = found or (0.0, "each")
            self._alarms.power = self.power
        elif self._contradicts(found, z):
            got = "embeddings that passed none"
            if found is not None:
                got = f"one of power {found[0]:g} ({found[1]})"
            wanted = f"the output of a GradScale of power {self.power:g} ({self.power_of})"
            if not self.power:
                wanted = "embeddings that passed no GradScale"
            advice = "Observe what GradScale returns, and leave power out: it is found."
            raise invalid("z", wanted, got, advice)
        self._graph_read = True

    def _contradicts(self, found: tuple[float, NormOf] | None, z: Tensor) -> bool:
        """Whether the graph shows another power than the given one."""
        if found is None:
            return self.power != 0 and passed_no_grad_scale(z)
        return found[0] != self.power or (found[0] != 0 and found[1] != self.power_of)

    @property
    def layers(self) -> tuple[str, ...]:
        """Names of the layers whose turning is measured, in the order of the records."""
        return tuple(self._turning.layers)

    @property
    def alarms(self) -> list[str]:
        """Lines raised so far at log points, oldest first, each with its remedy.

        A condition raises one, and another only after it has ended.
        """
        return self._alarms.raised

    @property
    def withdrawn(self) -> list[str]:
        """A line for each alarm whose condition has ended, oldest first."""
        return self._alarms.withdrawn

    def diagnosis(self) -> str:
        """The state of the training: the alarms that stand and what helps, or that none does.

        >>> monitor = NormMonitor()
        >>> monitor.diagnosis()
        'nothing was observed yet.'
        >>> _ = monitor.observe(4 * torch.eye(8), lr=0.1)
        >>> monitor.diagnosis()
        'step 0: no alarm stands: mean norm 4, mean cosine 0.00, RankMe 8.'
        """
        self._transfer()
        return self._alarms.diagnosis(self._seen[-1]) if self._seen else "nothing was observed yet."

    def start(self) -> None:
        """Measure angles from here on; the first `observe` does it if nobody did before."""
        self._turning.start(self.step)

    def summary(self) -> Record:
        """The newest observation as Python numbers, with rank and trend; empty if there is none.

        `norm_mean_trend` is the change of the mean norm per step, by least squares over the kept
        observations, if two or more are finite. `rad_per_step_highest` is the highest angle so far,
        if there was one.
        """
        self._transfer()
        if not self._seen:
            return {}
        newest = {**self._seen[-1], **self._alarms.highest()}
        norm_at = {r["step"]: r["norm_mean"] for r in self._seen}
        finite = {x: y for x, y in norm_at.items() if math.isfinite(y)}
        if len(finite) < 2:
            return newest
        slope = statistics.linear_regression([*finite], [*finite.values()]).slope
        return {**newest, "norm_mean_trend": slope}

    def records(self) -> list[Record]:
        """Observations since the last call as Python numbers, oldest first: for loggers.

        Only the newest one at each log point has a `rank`.
        """
        self._transfer()
        unread = list(self._unread)
        self._unread.clear()
        return unread

    def state_dict(self) -> dict[str, Any]:
        """The monitor's state, for a checkpoint at a log point."""
        step, square = self._previous or (0, None)
        return {
            "step": self.step,
            "previous_step": step,
            "previous_square": square,
            "alarms": self._alarms.state_dict(),
            "turning": self._turning.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from another monitor's `state_dict`."""
        square = state["previous_square"]
        self.step = state["step"]
        self._previous = None if square is None else (state["previous_step"], square)
        self._alarms.load_state_dict(state["alarms"])
        self._turning.load_state_dict(state["turning"])

    def ship(self) -> None:
        """Start sending pending observations to the host, without waiting."""
        if not self._pending or self._rank_rows is None:
            return
        ranked = min(self._rank_rows.shape) > 1  # one row or one column has nothing to rank
        numbers = on_host(torch.cat([p.numbers for p in self._pending]))
        square = on_host(gram(self._rank_rows)) if ranked else None
        turned = self._turning.measure(self.step)
        if turned is not None:
            turned = turned._replace(numbers=on_host(turned.numbers))
        arrived = None
        if self._rank_rows.is_cuda:
            arrived = torch.cuda.Event()
            arrived.record()
        self._shipped.append(_Shipped(list(self._pending), numbers, square, turned, arrived))
        self._pending.clear()
        self._rank_rows = None

    def _transfer(self) -> None:
        """Read all pending observations, and raise their alarms."""
        self.ship()
        while self._shipped:
            shipped = self._shipped.popleft()
            if shipped.arrived is not None:
                shipped.arrived.synchronize()
            rest = iter(shipped.numbers.tolist())
            for pending in shipped.pending:
                record: Record = {"step": pending.step, "lr": pending.lr}
                for name, shape in pending.shapes.items():
                    values = [next(rest) for _ in range(shape.numel())]
                    record[name] = values if len(shape) else values[0]
                if pending is shipped.pending[-1]:
                    record |= _at_log_point(shipped)
                self._seen.append(record)
                self._unread.append(record)
                self._alarms.see(record)


def _at_log_point(shipped: _Shipped) -> Record:
    """What only the newest observation of a log point has."""
    record: Record = {}
    if shipped.gram is not None:
        record["rank"] = float(rank_of_gram(shipped.gram))
        record["rank_limit"] = len(shipped.gram)
    if shipped.turned is not None:
        record |= shipped.turned.record()
    return record


def on_host(x: Tensor) -> Tensor:
    """A copy in host memory, complete once the device has reached this point."""
    if not x.is_cuda:
        return x.cpu()
    return torch.empty(x.shape, dtype=x.dtype, pin_memory=True).copy_(x, non_blocking=True)


def _check_count(name: str, value: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise invalid(name, "an integer of at least 1", value, "See the class's description.")
    return value
