"""Norms, effective rates and alarms while a Lightning `Trainer` trains; a range test of a module.

For trainers and modules of `lightning.pytorch` and of `pytorch_lightning`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from normscope._checks import invalid
from normscope.integrations.module_outputs import ModuleOutputs, scalars
from normscope.monitors import NormMonitor, RangeTest
from normscope.monitors import range_test as range_test_of

if TYPE_CHECKING:
    from lightning.pytorch import Callback, LightningModule, Trainer
else:
    try:
        from lightning.pytorch import Callback
    except ImportError:
        try:
            from pytorch_lightning import Callback
        except ImportError as error:
            raise ImportError(
                "Lightning must be installed. "
                "Install the extra: pip install 'normscope[lightning]'."
            ) from error

__all__ = ["NormCallback", "range_test"]


class NormCallback(Callback):
    """Logs norms and effective rates of embeddings at the `Trainer`'s log points.

    The numbers go to all of the trainer's loggers, as `norms/norm_mean` and so on. Alarms are
    lines of the Python logger `normscope`. Its state is in the checkpoint. Nothing is kept between
    log points, which are every `log_every_n_steps` steps. With several processes the numbers and
    alarms are those of the first one's rows.

    A `GradScale` is found in the embeddings' graph, so that there is no power to give. With
    accumulated gradients the last micro-batch is observed.

    Args:
        modules: a name or names of modules whose outputs, (n, d), are the embeddings. Each forward
            pass of a step is a view; each view's targets are the next view's rows.
        views: how many views lie one after another in one output.
        weights: names of scale-invariant parameters (`ns.scale_invariant_parameters`).
        layers: whether to measure the angle by which weights turn. It costs a copy of all trained
            weights, in memory and in the checkpoint.

    >>> NormCallback("projector").monitor.diagnosis()
    'nothing was observed yet.'
    """

    def __init__(
        self,
        modules: str | Sequence[str],
        *,
        views: int = 1,
        weights: Collection[str] = (),
        layers: bool = True,
    ) -> None:
        self._outputs = ModuleOutputs(modules, views=views, weights=weights, layers=layers)

    @property
    def monitor(self) -> NormMonitor:
        """The monitor: `.summary()`, `.alarms`, `.diagnosis()`."""
        return self._outputs.monitor

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Find the modules by their names."""
        self._outputs.attach(pl_module, step=trainer.global_step)

    def on_train_batch_start(self, trainer: Trainer, *args: Any, **kwargs: Any) -> None:
        """Keep the embeddings of steps that are logged."""
        del args, kwargs
        every: int = trainer.log_every_n_steps  # pyright: ignore[reportAttributeAccessIssue]
        if (trainer.global_step + 1) % max(every, 1) == 0:
            self._outputs.expect()

    def on_before_optimizer_step(
        self, trainer: Trainer, pl_module: LightningModule, optimizer: torch.optim.Optimizer
    ) -> None:
        """Observe them, after the backward pass."""
        if not self._outputs.waiting:
            return
        scaler = getattr(trainer.precision_plugin, "scaler", None)
        scale = trainer.world_size * (scaler.get_scale() if scaler is not None else 1.0)
        lr, step = float(optimizer.param_groups[0]["lr"]), trainer.global_step
        record = self._outputs.observe(step=step, lr=lr, share=1 / scale)
        pl_module.log_dict(scalars(record), rank_zero_only=True)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Leave the modules as they were."""
        del trainer, pl_module
        self._outputs.detach()

    def on_exception(
        self, trainer: Trainer, pl_module: LightningModule, exception: BaseException
    ) -> None:
        """Likewise if the training breaks off."""
        del trainer, pl_module, exception
        self._outputs.detach()

    def state_dict(self) -> dict[str, Any]:
        """The monitor's state."""
        return self._outputs.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from it when the training starts."""
        self._outputs.load_state_dict(state_dict)


def range_test(
    module: LightningModule,
    batches: Iterable[Any],
    *,
    after: Callable[[], object] | None = None,
    steps: int = 600,
) -> RangeTest:
    """`ns.range_test` of a LightningModule: its `training_step`, its optimizer, its batches.

    It needs no Trainer, and the module is afterwards what it was. Rates are those that
    `configure_optimizers` sets; schedules are left out.

    Args:
        module: with automatic optimization and one optimizer, fresh.
        batches: a DataLoader or list; started again when it ends.
        after: called after each of the optimizer's steps, as for a momentum copy.
        steps: at most.
    """
    if not module.automatic_optimization:
        advice = "Call ns.range_test with your own step."
        raise invalid("module", "one with automatic optimization", "a manual one", advice)
    optimizer = _only_optimizer(module)
    numbered = enumerate(_again(batches))

    def step() -> Tensor:
        i, batch = next(numbered)
        batch = module.transfer_batch_to_device(batch, module.device, 0)
        with warnings.catch_warnings():  # of self.log, which has nowhere to log to
            warnings.filterwarnings("ignore", message="You are trying to `self.log")
            out = module.training_step(batch, i)
        loss = out["loss"] if isinstance(out, dict) else out
        if not isinstance(loss, Tensor):
            advice = "Return it, or a dict with `loss`."
            raise invalid("module", "one whose training_step returns a loss", loss, advice)
        loss.backward()
        return loss

    return range_test_of(step, optimizer, module, after=after, steps=steps)


def _again(batches: Iterable[Any]) -> Iterator[Any]:
    """The batches, over and over."""
    while True:
        empty = True
        for batch in batches:
            empty = False
            yield batch
        if empty:
            raise invalid("batches", "a DataLoader or list that is not empty", batches, "Check it.")


def _only_optimizer(module: LightningModule) -> torch.optim.Optimizer:
    """The module's optimizer, without its schedule."""
    found: Any = module.configure_optimizers()
    while not isinstance(found, torch.optim.Optimizer):
        if isinstance(found, dict):
            found = found.get("optimizer")
        elif isinstance(found, (list, tuple)) and found and not _several(found):
            found = found[0]
        else:
            advice = "Call ns.range_test with your own step."
            raise invalid("configure_optimizers", "of one optimizer", found, advice)
    return found


def _several(found: Sequence[Any]) -> bool:
    """Whether a list holds more than one optimizer: Lightning's (optimizers, schedulers) is one."""
    kinds = (torch.optim.Optimizer, dict)
    return sum(isinstance(one, kinds) for one in found) > 1
