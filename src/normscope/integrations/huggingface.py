"""Norms, effective rates and alarms while a Hugging Face `Trainer` trains.

For `transformers.Trainer` and all that are built on it, such as `SentenceTransformerTrainer`.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from normscope._checks import invalid
from normscope._files import whole_file
from normscope.integrations.module_outputs import ModuleOutputs, scalars
from normscope.monitors import NormMonitor

try:
    from transformers import TrainerCallback
except ImportError as error:
    raise ImportError(
        "transformers must be installed. Install the extra: pip install 'normscope[huggingface]'."
    ) from error

if TYPE_CHECKING:
    from transformers import Trainer, TrainerControl, TrainerState, TrainingArguments

__all__ = ["NormCallback"]

_STATE = "normscope.pt"  # in a checkpoint's folder
_log = logging.getLogger("normscope")


class NormCallback(TrainerCallback):
    """Logs norms and effective rates of embeddings every `logging_steps` of a `Trainer`.

    The numbers go through `trainer.log`, so to all that `report_to` names, as `norms/norm_mean`
    and so on. Alarms are lines of the Python logger `normscope`. Nothing is kept between log
    points. With several processes the numbers and alarms are those of the first one's rows.

    Its state is in each checkpoint's folder, and is read when training resumes from a folder in
    `output_dir`; from elsewhere the monitor starts from nothing, and says so.

    A `GradScale` is found in the embeddings' graph, so that there is no power to give. With
    accumulated gradients the last micro-batch is observed.

    Args:
        trainer: the one that the callback is added to: `trainer.add_callback(callback)`.
        modules: a name or names of the model's modules whose outputs are the embeddings: tensors,
            (n, d), or a sentence-transformers module's features. Each forward pass of a step is a
            view; each view's targets are the next view's rows.
        views: how many views lie one after another in one output.
        weights: names of scale-invariant parameters (`ns.scale_invariant_parameters`).
        layers: whether to measure the angle by which weights turn. It costs a copy of all trained
            weights, in memory and in the checkpoint.
    """

    def __init__(
        self,
        trainer: Trainer,
        modules: str | Sequence[str],
        *,
        views: int = 1,
        weights: Collection[str] = (),
        layers: bool = True,
    ) -> None:
        self._trainer = trainer
        self._outputs = ModuleOutputs(modules, views=views, weights=weights, layers=layers)
        self._record: dict[str, Any] = {}

    @property
    def monitor(self) -> NormMonitor:
        """The monitor: `.summary()`, `.alarms`, `.diagnosis()`."""
        return self._outputs.monitor

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Find the modules by their names."""
        del control
        if args.n_gpu > 1:
            advice = "Start with torchrun or accelerate, one process per GPU."
            raise invalid("n_gpu", "1 for each process", args.n_gpu, advice)
        if state.global_step:
            self._load(Path(str(args.output_dir)) / f"checkpoint-{state.global_step}" / _STATE)
        self._outputs.attach(kwargs["model"], step=state.global_step)

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Keep the embeddings of steps that are logged."""
        del args, control, kwargs
        if (state.global_step + 1) % max(state.logging_steps, 1) == 0:
            self._outputs.expect()

    def on_substep_end(self, *args: Any, **kwargs: Any) -> None:
        """Drop the embeddings of a micro-batch that is not the step's last."""
        del args, kwargs
        if self._outputs.waiting:
            self._outputs.expect()

    def on_pre_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Observe them, after the backward pass."""
        del control
        if not self._outputs.waiting:
            return
        scaler = getattr(self._trainer.accelerator, "scaler", None)
        scale = args.world_size * (scaler.get_scale() if scaler is not None else 1.0)
        lr = float(kwargs["optimizer"].param_groups[0]["lr"])
        self._record = self._outputs.observe(step=state.global_step, lr=lr, share=1 / scale)

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Log them, with the number of steps that the trainer's own log has."""
        del args, state, kwargs
        found, self._record = scalars(self._record), {}
        if found:
            logs = control.should_log
            # its state is written as JSON, which has no NaN
            self._trainer.log({k: v for k, v in found.items() if math.isfinite(v)})
            control.should_log = logs  # logging takes it for done

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Keep the monitor's state beside the checkpoint's."""
        del control, kwargs
        folder = Path(str(args.output_dir)) / f"checkpoint-{state.global_step}"
        if state.is_world_process_zero and folder.is_dir():
            with whole_file(folder / _STATE) as path:
                torch.save(self._outputs.state_dict(), path)

    def on_train_end(self, *args: Any, **kwargs: Any) -> None:
        """Leave the modules as they were."""
        del args, kwargs
        self._outputs.detach()

    def _load(self, path: Path) -> None:
        if path.exists():
            self._outputs.load_state_dict(torch.load(path, weights_only=True, map_location="cpu"))
        else:
            _log.warning("%s is not there: norms are compared with those from here on.", path)
