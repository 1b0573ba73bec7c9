"""The training loop: one linear pass from batch to checkpoint."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, cast

import torch
from torch import Tensor

from normscope import data
from normscope._checks import invalid
from normscope._kernels import runs_kernels
from normscope._precision import widened
from normscope.augment import PRESETS
from normscope.data import ImageArrays
from normscope.engine import checkpoint
from normscope.engine.average import Average
from normscope.engine.compose import build, invariant_names
from normscope.engine.encoder_file import EncoderConfig, write_encoder
from normscope.engine.evaluate import knn_and_norm
from normscope.engine.interrupts import Interrupts, Stopped
from normscope.engine.optimizers import optimizer_for, set_lr_
from normscope.engine.plan import Plan
from normscope.engine.run_folder import RunFolder, RunResult
from normscope.engine.spec import RunSpec
from normscope.engine.step import Step, step_for
from normscope.engine.telemetry import Telemetry
from normscope.engine.waiting import Waiting
from normscope.methods import Method
from normscope.nets import ResNet, synchronised


@dataclass
class Progress:
    """The loop's state; with the weights, all that a checkpoint needs."""

    epoch: int = 0  # finished epochs
    micro: int = 0  # micro-batches done in this epoch
    step: int = 0  # optimizer steps, over all epochs
    losses: list[Tensor] = field(default_factory=list)  # of this epoch's micro-batches
    logged: int = 0  # how many of them were logged
    seconds: float = 0.0  # spent training, over all sessions
    waited: float = 0.0  # of these, waiting for images
    metrics_size: int = 0
    last: dict[str, Any] = field(default_factory=dict)  # the newest epoch's record


@dataclass(frozen=True)
class Sitting:
    """Settings of one session of a run that do not change its result."""

    workers: int | None = None  # that decode images
    loggers: Sequence[str] = ()  # beside metrics.jsonl
    save_every: float = 60.0  # seconds
    until: float = math.inf  # a time of `time.monotonic`
    quiet: bool = False


class Loop:
    """The loop and its parts: `open` restores the run's state, `train` continues from it."""

    def __init__(
        self, fabric: Any, spec: RunSpec, images: ImageArrays, run: RunFolder, sitting: Sitting
    ) -> None:
        self.fabric, self.spec, self.run, self.sitting = fabric, spec, run, sitting
        n, processes = len(images.train.labels), fabric.world_size
        self.plan = Plan(spec, n, rank=fabric.global_rank, world=processes)
        self.side = images.side
        self._neighbours = spec.knn_k if images.labelled else None
        options = {"side": images.side, "workers": sitting.workers}
        self.train_images = data.source(images.train, fabric.device, **options)
        self.test_images = data.source(images.test, fabric.device, **options)
        self.waiting = Waiting(fabric.device)
        self.generator = torch.Generator(fabric.device)

        method = build(spec, side=images.side)
        if method.USES_CLASSES and not images.labelled:
            advice = "Put the images into folders of classes, or take simclr."
            raise invalid("method", "one that learns without classes", spec.method, advice)
        _check_processes(method, spec, processes)
        invariant = invariant_names(method, images.side)
        # widened before the average takes its weights: `setup` would replace them
        method.to(fabric.device, torch.float64 if spec.precision == "64" else torch.float32)
        self.method = cast(Method, synchronised(method)) if processes > 1 else method
        self.method.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
        self.average = Average(self.method, spec.average) if spec.average else None
        self.optimizer = optimizer_for(method, spec)
        kernels = isinstance(method.backbone, ResNet) and runs_kernels(fabric.device)
        if fabric.device.type == "cuda" and not (kernels and processes == 1):
            for part in self.method.children():
                part.compile()
        wrapped, self.wrapped_optimizer = fabric.setup(self.method, self.optimizer)
        self._wrapped, self._augment = wrapped, PRESETS[spec.augmentation](images.side)
        self.progress = Progress()
        self.step = self._step_of_epoch()
        self.telemetry: Telemetry | None = None
        if fabric.is_global_zero:
            parameters = dict(self.method.named_parameters())
            trained = {n: p.detach() for n, p in parameters.items() if p.requires_grad}
            self.telemetry = Telemetry(
                run,
                spec,
                classes=len(images.classes) if images.labelled else None,
                weights={name: parameters[name].detach() for name in sorted(invariant)},
                layers={name: w for name, w in trained.items() if w.ndim > 1},
                loggers=sitting.loggers,
                steps=None if sitting.quiet else self.plan.all_steps,
                processes=processes,
            )
        self._saved, self._clock = time.monotonic(), time.perf_counter()

    def train(self, interrupts: Interrupts) -> None:
        """Train the remaining epochs."""
        spec, plan, progress = self.spec, self.plan, self.progress
        while progress.epoch < spec.epochs:
            first, last = progress.epoch, plan.next_evaluation(progress.epoch)
            epochs = plan.epochs(first, last, progress.micro)
            batches = self.waiting.through(self.train_images.batches(epochs))
            for _ in range(first, last):
                self.method.train()
                self.step = self._step_of_epoch()
                self._clock = time.perf_counter()
                for batch in islice(batches, plan.micros - progress.micro):
                    # views, loss and gradients of a micro-batch
                    steps = (progress.micro + 1) % spec.accumulate == 0
                    logs = steps and plan.is_log_point(progress.step + 1)
                    u = plan.draws(progress.epoch, progress.micro, self.generator)
                    out = self.step.gradients(batch, u, last=steps, observed=logs)
                    progress.losses.append(out.loss.detach().clone())  # it is overwritten
                    progress.micro += 1
                    if not steps:
                        continue
                    # a step of the optimizer
                    lr = plan.lr(progress.step)
                    set_lr_(self.optimizer, lr)
                    if logs and self.telemetry:
                        self.telemetry.observe(out, batch.labels, step=progress.step, lr=lr)
                    self.step.update(self.wrapped_optimizer)
                    progress.step += 1
                    self.method.after_step(progress.step / plan.all_steps)
                    if self.average:
                        self.average.follow()
                    if logs:
                        self._log_point(lr)
                    if self._asked_to_stop(interrupts):
                        self._stop(interrupts)
                    self._save_if_due()
                self._end_epoch(evaluates=progress.epoch + 1 == last)

    def _step_of_epoch(self) -> Step:
        """The step for the size of this epoch's views: the last epoch's, or a new one."""
        size, spec = self.plan.view_side(self.progress.epoch, self.side), self.spec
        if self._augment.size == size and hasattr(self, "step"):
            return self.step
        self._augment = replace(self._augment, size=size)
        share = spec.accumulate if spec.accumulation == "mean" else 1
        return step_for(self.fabric, self._wrapped, self._augment, share=share)

    @property
    def _kept(self) -> Method:
        """The network that is evaluated and written: the averaged one, if there is one."""
        return self.average.network if self.average else self.method

    def _log_point(self, lr: float) -> None:
        progress = self.progress
        loss = self._mean(progress.losses[progress.logged :])
        progress.logged = len(progress.losses)
        if self.telemetry:
            self.telemetry.log_point(self._place(), lr=lr, loss=loss)
            self._lap()
            self.telemetry.tick(progress.step, self._images_per_second())

    def _end_epoch(self, *, evaluates: bool) -> None:
        progress = self.progress
        numbers: dict[str, Any] = {"loss": float(self._mean(progress.losses))}
        self._lap()
        progress.waited += self.waiting.taken()
        if evaluates:
            if self.fabric.is_global_zero:  # not in bfloat16, whose noise can outweigh features
                splits = self.train_images, self.test_images
                numbers |= knn_and_norm(self._kept, *splits, k=self._neighbours)
            self.fabric.barrier()
        if self.telemetry:
            self.telemetry.flush()
            self.telemetry.log("epoch", self._place() | numbers)
            self.telemetry.tick(progress.step, self._images_per_second())
        progress.epoch, progress.micro, progress.last = progress.epoch + 1, 0, numbers
        progress.losses, progress.logged = [], 0
        self._clock = time.perf_counter()
        self._save_if_due(now=progress.epoch == self.spec.epochs)

    def _place(self) -> dict[str, int]:
        return {"epoch": self.progress.epoch + 1, "step": self.progress.step}

    def _mean(self, losses: list[Tensor]) -> Tensor:
        """Over micro-batches and processes."""
        return self.fabric.all_reduce(widened(torch.stack(losses)).mean(), reduce_op="mean")

    def _lap(self) -> None:
        """Add the time since the last call (or the epoch's start) to the training time."""
        now = time.perf_counter()
        self.progress.seconds += now - self._clock
        self._clock = now

    def _images_per_second(self) -> float:
        return self.progress.step * self.spec.batch / max(self.progress.seconds, 1e-9)

    # ------------------------------------------------------------------ stopping and saving

    def _asked_to_stop(self, interrupts: Interrupts) -> bool:
        """Whether any process received a signal, or the time is up."""
        own = interrupts.received is not None or time.monotonic() > self.sitting.until
        if self.fabric.world_size == 1:
            return own
        # agreeing waits for the device: on a GPU not at every step
        every = min(self.spec.log_every, 10) if self.fabric.device.type == "cuda" else 1
        if self.progress.step % every:
            return False
        asked = torch.tensor(float(own), device=self.fabric.device)
        return bool(self.fabric.all_reduce(asked, reduce_op="sum") > 0)

    def say_stopping(self) -> None:
        """Say that the run stops after the step in progress, which may take minutes."""
        if self.telemetry:
            again = "press Ctrl-C again to stop without saving"
            self.telemetry.say(f"finishing the step, then saving; {again}")

    def _stop(self, interrupts: Interrupts) -> None:
        self._save()
        where = f"epoch {self.progress.epoch + 1} of {self.spec.epochs}"
        raise Stopped(f"stopped in {where}; saved in {self.run.path}", interrupts.received or 15)

    def _save_if_due(self, *, now: bool = False) -> None:
        if now or time.monotonic() - self._saved > self.sitting.save_every:
            self._save()

    def _save(self) -> None:
        if self.telemetry:
            self.telemetry.flush()  # which waits for the device, so that its work is counted
            self._lap()
            self.progress.waited += self.waiting.taken()
            self.progress.metrics_size = self.telemetry.size()
            values = vars(self.progress) | {"monitor": self.telemetry.monitor.state_dict()}
            network = (self.method, self.optimizer)
            average = self.average.network if self.average else None
            keep = {"gradients": self.step.waiting, "average": average}
            checkpoint.save(self.run.checkpoint, self.spec, *network, values, **keep)
        self._saved, self._clock = time.monotonic(), time.perf_counter()

    def open(self) -> None:
        """Restore the run's state, and open its logs."""
        if self.run.checkpoint.exists():
            shorter = self.run.shorter_hashes()
            state = checkpoint.load(self.run.checkpoint, self.spec, shorter=shorter)
            values = checkpoint.restore_(state, self.method, self.optimizer)
            if self.average:
                checkpoint.load_weights_(state, self.average.network, "average")
            monitor = values.pop("monitor")
            if self.telemetry:
                self.telemetry.monitor.load_state_dict(monitor)
                self.telemetry.check_metrics(values["metrics_size"])
            losses = [loss.to(self.fabric.device) for loss in values.pop("losses")]
            self.progress = Progress(losses=losses, **values)
            self.step = self._step_of_epoch()
            self.step.waiting = bool(state["gradients"])
        if self.telemetry:
            self.telemetry.open(size=self.progress.metrics_size, step=self.progress.step)

    def close(self) -> None:
        """Close the logs."""
        if self.telemetry:
            self.telemetry.close()

    def finish(self) -> RunResult:
        """Write the network's weights; return the run's result."""
        write_encoder(self.run.path, self._kept, EncoderConfig.of(self.spec, side=self.side))
        return RunResult(
            spec=self.spec,
            folder=self.run.path,
            knn=self.progress.last["knn"],
            loss=self.progress.last["loss"],
            norm=self.progress.last["norm_test"],
            steps=self.progress.step,
            seconds=round(self.progress.seconds, 3),
            waited=round(self.progress.waited, 3),
            images_per_second=round(self._images_per_second(), 1),
        )


def _check_processes(method: Method, spec: RunSpec, processes: int) -> None:
    """Refuse several processes where their result would differ from a single one's."""
    alone = {
        f"{spec.method}'s loss": not method.splits_over_processes,
        "summed micro-batches": spec.accumulation == "sum",
        "GradScale of a mean norm": spec.grad_scale and spec.grad_scale_of != "each",
    }
    if processes > 1 and any(alone.values()):
        what = ", ".join(name for name, holds in alone.items() if holds)
        raise invalid("devices", "1 for this spec", processes, f"{what} needs one process.")
