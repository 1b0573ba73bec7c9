"""The training loop: one linear pass from batch to checkpoint."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, cast

import torch
from torch import Tensor

from normscope import data
from normscope._checks import invalid
from normscope._files import whole_file
from normscope._kernels import runs_kernels
from normscope.augment import DRAWS, PRESETS
from normscope.data import Batch, ImageArrays
from normscope.engine import checkpoint
from normscope.engine.compose import build, invariant_names
from normscope.engine.evaluate import knn_and_norm
from normscope.engine.interrupts import Interrupts, Stopped
from normscope.engine.randomness import seed_for, shuffled
from normscope.engine.run_folder import RunFolder, RunResult
from normscope.engine.schedule import lr_share, optimizer_for, peak_lr, set_lr_
from normscope.engine.spec import RunSpec
from normscope.engine.step import step_for
from normscope.engine.telemetry import Telemetry
from normscope.engine.waiting import Waiting
from normscope.methods import Method
from normscope.nets import ResNet, synchronised


@dataclass
class Progress:
    """Where the loop stands; with the weights, all that a checkpoint needs."""

    epoch: int = 0  # finished epochs
    micro: int = 0  # micro-batches done in this epoch
    step: int = 0  # optimizer steps, over all epochs
    losses: list[Tensor] = field(default_factory=list)  # of this epoch's micro-batches
    logged: int = 0  # how many of them a log point has seen
    seconds: float = 0.0  # spent training, over all sittings
    waited: float = 0.0  # of these, for images
    metrics_size: int = 0
    last: dict[str, Any] = field(default_factory=dict)  # the newest epoch's record


class Loop:
    """The loop's parts, put together once."""

    def __init__(
        self,
        fabric: Any,
        spec: RunSpec,
        images: ImageArrays,
        run: RunFolder,
        *,
        workers: int | None,
        loggers: Sequence[str],
        save_every: float,
        until: float,
        quiet: bool,
    ) -> None:
        self.fabric, self.spec, self.images, self.run = fabric, spec, images, run
        self.micro_batch = spec.batch // spec.accumulate
        self._check_batches()
        self.augment = PRESETS[spec.augmentation](images.side)
        options = {"side": images.side, "workers": workers}
        self.train = data.source(images.train, fabric.device, **options)
        self.test = data.source(images.test, fabric.device, **options)
        self.waiting = Waiting(fabric.device)
        self.generator = torch.Generator(fabric.device)

        method = build(spec, side=images.side)
        invariant = invariant_names(method, images.side)
        method.to(fabric.device)
        self.method = cast(Method, synchronised(method)) if fabric.world_size > 1 else method
        self.method.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
        self.optimizer = optimizer_for(method, spec)
        kernels = isinstance(method.backbone, ResNet) and runs_kernels(fabric.device)
        if fabric.device.type == "cuda" and not (kernels and fabric.world_size == 1):
            for part in self.method.children():
                part.compile()
        wrapped, self.wrapped_optimizer = fabric.setup(self.method, self.optimizer)
        share = spec.accumulate if spec.accumulation == "mean" else 1
        self.step = step_for(fabric, wrapped, self.augment, share=share)
        self.progress = Progress()
        self.telemetry: Telemetry | None = None
        if fabric.is_global_zero:
            parameters = dict(self.method.named_parameters())
            self.telemetry = Telemetry(
                run,
                spec,
                classes=len(images.classes),
                weights={name: parameters[name].detach() for name in sorted(invariant)},
                loggers=loggers,
                steps=None if quiet else spec.epochs * self.steps,
                processes=fabric.world_size,
            )
        self._saved, self.save_every, self.until = time.monotonic(), save_every, until
        self._clock = time.perf_counter()

    def open(self) -> None:
        """Go to where the run stands, and begin to tell."""
        if self.run.checkpoint.exists():
            self._restore()
        if self.telemetry:
            self.telemetry.open(size=self.progress.metrics_size, step=self.progress.step)

    def _check_batches(self) -> None:
        n, spec = len(self.images.train.labels), self.spec
        if n < spec.batch:
            advice = f"Such as --batch {max(2, n // 4)}."
            raise invalid("batch", f"at most the {n} training images", spec.batch, advice)
        alone = (
            spec.method == "supcon"
            or spec.options.get("loss") == "as_coded"
            or spec.accumulation == "sum"
            or (spec.grad_scale and spec.grad_scale_of != "each")
        )
        if alone and self.fabric.world_size > 1:
            advice = "SupCon, a mean norm, and the published code's loss and sums need one process."
            raise invalid("devices", "1 for this spec", self.fabric.world_size, advice)
        if self.micro_batch % self.fabric.world_size:
            wanted = f"a multiple of {self.fabric.world_size} processes x {spec.accumulate}"
            raise invalid("batch", wanted, spec.batch, "Every process takes an equal share.")
        # gradients left over by a summed accumulation stay for the next epoch
        self.micros = n // self.micro_batch
        self.steps = self.micros // spec.accumulate
        if spec.accumulation == "mean":
            self.micros = self.steps * spec.accumulate
        if spec.knn_k > n:
            advice = f"Such as --set knn_k={max(1, n // 10)}."
            raise invalid("knn_k", f"at most the {n} training images", spec.knn_k, advice)

    # ------------------------------------------------------------------ training

    def run_to_the_end(self, interrupts: Interrupts) -> None:
        """Train the epochs that are left."""
        while self.progress.epoch < self.spec.epochs:
            first, last = self.progress.epoch, self._next_evaluation()
            epochs = self._epochs(first, last, self.progress.micro)
            batches = self.waiting.through(self.train.batches(epochs))
            for _ in range(first, last):
                self._epoch(batches, interrupts)

    def _epoch(self, batches: Iterator[Batch], interrupts: Interrupts) -> None:
        self.method.train()
        self._clock = time.perf_counter()
        for batch in islice(batches, self.micros - self.progress.micro):
            self._micro_step(batch)
            if self.progress.micro % self.spec.accumulate == 0:
                if self._asked_to_stop(interrupts):
                    self._stop(interrupts)
                if time.monotonic() - self._saved > self.save_every:
                    self._save()
        self._end_epoch()

    def _next_evaluation(self) -> int:
        """The epoch after which networks are judged next: 1, 2, 4, 8, ... and the last."""
        return min(1 << self.progress.epoch.bit_length(), self.spec.epochs)

    def _epochs(self, first: int, last: int, done: int) -> Iterator[list[Tensor]]:
        """The rows of each micro-batch, this process's share; of the first epoch, after `done`."""
        for epoch in range(first, last):
            order = shuffled(self.spec.seed, epoch, len(self.train))
            micros = order[: self.micros * self.micro_batch].split(self.micro_batch)
            yield [indices[self._rows()] for indices in micros[done:]]
            done = 0

    def _rows(self) -> slice:
        """Which rows of a micro-batch are this process's."""
        share = self.micro_batch // self.fabric.world_size
        return slice(self.fabric.global_rank * share, (self.fabric.global_rank + 1) * share)

    def _micro_step(self, batch: Batch) -> None:
        spec, progress = self.spec, self.progress
        last = (progress.micro + 1) % spec.accumulate == 0
        after = progress.step + 1
        at_log_point = last and (after % spec.log_every == 0 or after == spec.epochs * self.steps)
        out = self.step.gradients(batch, self._draws(), last=last, observed=at_log_point)
        progress.losses.append(out.loss.detach().clone())  # the next step may write over it
        progress.micro += 1
        if not last:
            return
        lr = peak_lr(spec) * lr_share(spec, progress.step / self.steps)
        set_lr_(self.optimizer, lr)
        if at_log_point and self.telemetry:
            self.telemetry.observe(out, batch.labels, step=progress.step, lr=lr)
        self.wrapped_optimizer.step()
        self.step.applied()
        progress.step += 1
        self.method.after_step(progress.step / (spec.epochs * self.steps))
        if at_log_point:
            self._log_point(lr)

    def _draws(self) -> Tensor:
        """Uniform numbers for two views, 2 n DRAWS, the same however many processes there are."""
        place = (self.progress.epoch, self.progress.micro)
        self.generator.manual_seed(seed_for(self.spec.seed, "views", *place))
        options = {"generator": self.generator, "device": self.generator.device}
        views = [torch.rand(self.micro_batch, DRAWS, **options) for _ in range(2)]
        return torch.stack([u[self._rows()] for u in views])

    def _log_point(self, lr: float) -> None:
        progress = self.progress
        loss = self._mean(progress.losses[progress.logged :])
        progress.logged = len(progress.losses)
        if self.telemetry:
            self.telemetry.log_point(self._place(), lr=lr, loss=loss)
            self._lap()
            self.telemetry.tick(progress.step, self._images_per_second())

    def _end_epoch(self) -> None:
        progress, spec = self.progress, self.spec
        done = progress.epoch + 1
        numbers: dict[str, Any] = {"loss": float(self._mean(progress.losses))}
        self._lap()
        progress.waited += self.waiting.taken()
        if done == self._next_evaluation():
            if self.fabric.is_global_zero:  # not in bfloat16, whose noise can outweigh features
                numbers |= knn_and_norm(self.method, self.train, self.test, k=spec.knn_k)
            self.fabric.barrier()
        if self.telemetry:
            self.telemetry.flush()
            self.telemetry.log("epoch", self._place() | numbers)
            self.telemetry.tick(progress.step, self._images_per_second())
        progress.epoch, progress.micro, progress.losses, progress.logged = done, 0, [], 0
        progress.last = numbers
        self._clock = time.perf_counter()
        if time.monotonic() - self._saved > self.save_every or done == spec.epochs:
            self._save()

    def _place(self) -> dict[str, int]:
        return {"epoch": self.progress.epoch + 1, "step": self.progress.step}

    def _mean(self, losses: list[Tensor]) -> Tensor:
        """Over micro-batches and processes."""
        return self.fabric.all_reduce(torch.stack(losses).double().mean(), reduce_op="mean")

    def _lap(self) -> None:
        """Add the time since the last call, or since the epoch began, to the training's."""
        now = time.perf_counter()
        self.progress.seconds += now - self._clock
        self._clock = now

    def _images_per_second(self) -> float:
        return self.progress.step * self.spec.batch / max(self.progress.seconds, 1e-9)

    # ------------------------------------------------------------------ keeping

    def _asked_to_stop(self, interrupts: Interrupts) -> bool:
        """Whether a signal came to any process, or it is time."""
        own = interrupts.received is not None or time.monotonic() > self.until
        if self.fabric.world_size == 1:
            return own
        # an agreement waits for the device: on a GPU not at every step
        every = min(self.spec.log_every, 10) if self.fabric.device.type == "cuda" else 1
        if self.progress.step % every:
            return False
        asked = torch.tensor(float(own), device=self.fabric.device)
        return bool(self.fabric.all_reduce(asked, reduce_op="sum") > 0)

    def _stop(self, interrupts: Interrupts) -> None:
        self._save()
        where = f"epoch {self.progress.epoch + 1} of {self.spec.epochs}"
        raise Stopped(f"stopped in {where}; saved in {self.run.path}", interrupts.received or 15)

    def _save(self) -> None:
        if self.telemetry:
            self.telemetry.flush()  # which waits for the device, so that its work is counted
            self._lap()
            self.progress.waited += self.waiting.taken()
            self.progress.metrics_size = self.telemetry.size()
            values = vars(self.progress) | {"monitor": self.telemetry.monitor.state_dict()}
            network = (self.method, self.optimizer)
            keep = {"gradients": self.step.waiting}
            checkpoint.save(self.run.checkpoint, self.spec, *network, values, **keep)
        self._saved, self._clock = time.monotonic(), time.perf_counter()

    def _restore(self) -> None:
        state = checkpoint.load(self.run.checkpoint, self.spec)
        values = checkpoint.restore_(state, self.method, self.optimizer)
        self.step.waiting = bool(state["gradients"])
        monitor = values.pop("monitor")
        if self.telemetry:
            self.telemetry.monitor.load_state_dict(monitor)
            self.telemetry.check_metrics(values["metrics_size"])
        losses = [loss.to(self.fabric.device) for loss in values.pop("losses")]
        self.progress = Progress(losses=losses, **values)

    def close(self) -> None:
        """Close what is open."""
        if self.telemetry:
            self.telemetry.close()

    def finish(self) -> RunResult:
        """Write the backbone's weights; what the run came to."""
        from safetensors.torch import save

        weights = self.method.backbone.state_dict()  # pyright: ignore[reportAttributeAccessIssue]
        with whole_file(self.run.encoder) as partial:
            partial.write_bytes(save({k: v.cpu().contiguous() for k, v in weights.items()}))
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
