"""NormCallback in transformers' own Trainer."""

import logging
import runpy
from pathlib import Path

import pytest
import torch

pytest.importorskip("transformers", reason="needs the extra huggingface")
pytest.importorskip("accelerate", reason="the Trainer needs accelerate")

from transformers import Trainer, TrainingArguments

import normscope as ns
from normscope.integrations.huggingface import NormCallback

ROOT = Path(__file__).parents[2]
# the trainer's own, on CPUs without pinned memory and on its scheduler's order
pytestmark = pytest.mark.filterwarnings("ignore:.*pin_memory", "ignore:.*lr_scheduler.step")


class Network(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Linear(8, 4))
        self.net.append(ns.GradScale(0.5))

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        z1, z2 = self.net(x), self.net(x.flip(1))
        return {"loss": ns.losses.info_nce(z1, z2)}


ROWS = [{"x": x} for x in torch.randn(32, 6, generator=torch.Generator().manual_seed(0))]


def trainer_of(folder: Path, **options) -> Trainer:
    logging.getLogger("transformers").setLevel(logging.ERROR)
    batch = {"per_device_train_batch_size": 8, "optim": "sgd", "learning_rate": 0.1}
    arguments = TrainingArguments(
        output_dir=str(folder),
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
        lr_scheduler_type="constant",
        **batch,
        **options,
    )
    return Trainer(Network(), arguments, train_dataset=ROWS)


@pytest.mark.parametrize("micro_batches", [1, 2])
def test_numbers_are_those_of_the_steps_last_micro_batch(tmp_path, micro_batches: int) -> None:
    accumulate = {"gradient_accumulation_steps": micro_batches}
    trainer = trainer_of(tmp_path, max_steps=1, logging_steps=1, **accumulate)
    norms, seen = NormCallback(trainer, "net", weights=["net.1.weight"]), []
    trainer.add_callback(norms)
    trainer.model.net.register_forward_hook(lambda *a: seen.append(a[2].detach()))
    trainer.train()
    assert len(seen) == 2 * micro_batches
    z1, z2 = (z.requires_grad_() for z in seen[-2:])
    (ns.losses.info_nce(z1, z2) / micro_batches).backward()
    plain = ns.NormMonitor(power=0.5, weights={"w": Network().net[1].weight})
    grad = torch.cat([z1.grad, z2.grad])
    plain.observe(torch.cat([z1, z2]).detach(), lr=0.1, targets=torch.cat([z2, z1]), grad=grad)
    found, expected = norms.monitor.summary(), plain.summary()
    assert {"growth_predicted", "alignment"} <= found.keys()
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, rel=1e-4, abs=1e-5), name
    (row,) = [row for row in trainer.state.log_history if "norms/norm_mean" in row]
    assert row["step"] == 1
    assert row["norms/norm_mean"] == found["norm_mean"]


def test_alarms_are_warnings_of_the_logger_normscope(tmp_path: Path, caplog) -> None:
    wild = trainer_of(tmp_path, num_train_epochs=3, logging_steps=1)
    wild.args.learning_rate = 1e5
    norms = NormCallback(wild, "net")
    wild.add_callback(norms)
    with caplog.at_level(logging.WARNING, "normscope"):
        wild.train()
    lines = [r.getMessage() for r in caplog.records if r.name == "normscope"]
    assert lines == norms.monitor.alarms != []


def test_several_devices_in_one_process_are_refused(tmp_path: Path) -> None:
    trainer = trainer_of(tmp_path, max_steps=1)
    callback = NormCallback(trainer, "net")
    trainer.args._n_gpu = 2
    with pytest.raises(ValueError, match="n_gpu must be 1 for each process, got 2"):
        callback.on_train_begin(trainer.args, trainer.state, trainer.control, model=trainer.model)


def test_the_example_is_short_and_trains(tmp_path: Path, monkeypatch, capsys) -> None:
    script = ROOT / "examples/huggingface_loop.py"
    assert len(script.read_text().splitlines()) < 30
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(script))
    assert "mean norm" in capsys.readouterr().out.splitlines()[-1]
