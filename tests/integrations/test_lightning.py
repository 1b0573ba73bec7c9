"""NormCallback and the range test in real Lightning trainers."""

import logging
import math
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("lightning", reason="needs the extra lightning")

import lightning.pytorch as pl
from tests.integrations.lightning_modules import (  # pyright: ignore[reportMissingImports]
    ROWS,
    Contrastive,
    batches,
    trainer,
)

import normscope as ns
from normscope.integrations.lightning import NormCallback, range_test

ROOT = Path(__file__).parents[2]
# Lightning's own, on torch's versions, few workers and short epochs
pytestmark = pytest.mark.filterwarnings(
    "ignore:.*LeafSpec", "ignore:.*many workers", "ignore:.*smaller than the logging interval"
)


class Stacked(Contrastive):
    """Both views in one forward pass."""

    def training_step(self, x: torch.Tensor, _: int) -> Any:
        z1, z2 = self.net(torch.cat([x, x.flip(1)])).chunk(2)
        return ns.losses.info_nce(z1, z2)


@pytest.fixture(autouse=True)
def quiet() -> None:
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


def test_callback_logs_what_a_monitor_in_a_plain_loop_sees() -> None:
    norms = NormCallback("net", weights=["net.0.weight"])
    fitted = trainer(norms, epochs=2)
    fitted.fit(Contrastive(power=0.5), batches())

    module, seen = Contrastive(power=0.5), {}
    layers = {n: p for n, p in module.named_parameters() if p.ndim > 1}
    first = {"net.0.weight": module.net[0].weight}
    monitor = ns.NormMonitor(power=0.5, weights=first, layers=layers)
    (optimizer,), (schedule,) = module.configure_optimizers()
    module.log = lambda *_: None
    monitor.start()
    for _ in range(2):
        for x in batches():
            outputs: list[torch.Tensor] = []
            hook = module.net.register_forward_hook(lambda *a, to=outputs: to.append(a[2]))
            loss = module.training_step(x, 0)["loss"]
            hook.remove()
            z = torch.cat(outputs)
            grad = torch.autograd.grad(loss, outputs, retain_graph=True)
            optimizer.zero_grad()
            loss.backward()
            lr = optimizer.param_groups[0]["lr"]
            monitor.observe(z, lr=lr, targets=z.detach().roll(16, 0), grad=torch.cat(grad))
            seen = monitor.summary()
            optimizer.step()
            schedule["scheduler"].step()
    logged = {k.removeprefix("norms/"): float(v) for k, v in fitted.logged_metrics.items()}
    assert norms.monitor.power == 0.5
    shown = {"norm_mean", "growth_predicted", "growth_seen", "alignment", "rad_per_step", "rank"}
    assert {*shown, "lr_over_weight_squared"} <= logged.keys()
    for name in logged.keys() - {"loss"}:
        assert logged[name] == pytest.approx(seen[name], rel=1e-4, abs=1e-6), name


def test_callback_observes_at_log_points_alone_and_leaves_no_hook() -> None:
    norms, module = NormCallback("net"), Contrastive()
    trainer(norms, epochs=2, every=3).fit(module, batches())
    assert norms.monitor.summary()["step"] == 5  # of 0 ... 7, the third and the sixth
    assert not module.net._forward_hooks
    norms = NormCallback("net")
    with pytest.raises(ValueError, match="layers must be"):
        trainer(norms).fit(_Broken(), batches())
    assert not norms._outputs._hooks


class _Broken(Contrastive):
    def on_train_epoch_start(self) -> None:
        raise ValueError("layers must be whole, got none. Mend them.")


def test_views_that_lie_in_one_output_and_modules_of_their_own_are_views() -> None:
    stacked, apart = NormCallback("net", views=2), NormCallback(["net.3", "net.4"])
    trainer(stacked, max_steps=1).fit(Stacked(), batches())
    trainer(apart, max_steps=1).fit(Stacked(), batches())
    net = Stacked().net
    z1, z2 = net(torch.cat([ROWS[:16], ROWS[:16].flip(1)])).chunk(2)
    between = (torch.nn.functional.normalize(z1) - torch.nn.functional.normalize(z2)).square()
    assert stacked.monitor.summary()["alignment"] == pytest.approx(
        float(between.sum(1).mean().detach())
    )
    assert apart.monitor.summary()["alignment"] == pytest.approx(0.0)  # the scale is the identity


def test_alarms_are_warnings_of_the_logger_normscope(caplog) -> None:
    class Diverging(Contrastive):
        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=1e4)

    norms = NormCallback("net")
    with caplog.at_level(logging.WARNING, "normscope"):
        trainer(norms, epochs=3).fit(Diverging(), batches())
    lines = [r.getMessage() for r in caplog.records if r.name == "normscope"]
    assert lines == norms.monitor.alarms
    assert lines


def test_training_resumed_from_a_checkpoint_ends_with_the_same_bits(tmp_path: Path) -> None:
    def norms() -> NormCallback:
        return NormCallback("net", weights=["net.0.weight"])

    pl.seed_everything(0)
    whole = Contrastive(cut=3.0, power=1.0)
    once = norms()
    trainer(once, epochs=4).fit(whole, batches())

    pl.seed_everything(0)
    half = trainer(norms(), epochs=2)
    half.fit(Contrastive(cut=3.0, power=1.0), batches())
    half.save_checkpoint(tmp_path / "half.ckpt")
    resumed, again = Contrastive(cut=3.0, power=1.0), norms()
    path = str(tmp_path / "half.ckpt")
    trainer(again, epochs=4).fit(resumed, batches(), ckpt_path=path)
    for name, w in whole.state_dict().items():
        assert torch.equal(w, resumed.state_dict()[name]), name
    first, second = once.monitor.summary(), again.monitor.summary()
    del first["norm_mean_trend"], second["norm_mean_trend"]  # over records of one sitting
    assert first == second
    trainer(again, epochs=2).fit(Contrastive(cut=3.0, power=1.0), batches())
    assert again.monitor.summary() != second  # anew, not from the checkpoint again
    assert again.monitor.summary()["step"] == 7


def test_interventions_survive_load_from_checkpoint(tmp_path: Path) -> None:
    module = Contrastive(cut=3.0, power=0.5)
    fitted = trainer()
    fitted.fit(module, batches())
    fitted.save_checkpoint(tmp_path / "cut.ckpt")
    loaded = Contrastive.load_from_checkpoint(tmp_path / "cut.ckpt")
    assert float(loaded.net.cut_init_c) == 3
    assert loaded.net[-1].power == 0.5
    for name, w in module.state_dict().items():
        assert torch.equal(w, loaded.state_dict()[name])
    with pytest.raises(RuntimeError, match="cut already"):
        ns.cut_init_(loaded)
    with pytest.raises(RuntimeError, match="cut_init_c"):  # a cut outside of __init__
        Contrastive.load_from_checkpoint(tmp_path / "cut.ckpt", cut=1.0)


@pytest.mark.parametrize("optimizer", ["lars", "angular"])
def test_own_optimizers_take_lightnings_closures(optimizer: str) -> None:
    module = Contrastive(optimizer=optimizer)
    fitted = trainer(epochs=4)
    fitted.fit(module, batches())
    plain = trainer(epochs=4)
    plain.fit(Contrastive(), batches())
    assert fitted.logged_metrics["loss"] < 0
    assert fitted.logged_metrics["loss"] != plain.logged_metrics["loss"]


def test_range_test_reads_a_module_and_leaves_it_as_it_was() -> None:
    module = Stacked()
    before = {name: w.clone() for name, w in module.state_dict().items()}
    found = range_test(module, batches())
    assert found.lr == 0.1
    assert math.isfinite(found.advised.lr)
    assert all(torch.equal(w, before[name]) for name, w in module.state_dict().items())


def test_range_test_refuses_what_it_cannot_test() -> None:
    class Two(Contrastive):
        def configure_optimizers(self) -> Any:
            return [torch.optim.SGD(self.parameters(), lr=0.1) for _ in range(2)]

    class Manual(Contrastive):
        automatic_optimization = False

    class Lossless(Contrastive):
        def training_step(self, x: torch.Tensor, _: int) -> None:
            del x

    with pytest.raises(ValueError, match="configure_optimizers must be of one optimizer"):
        range_test(Two(), batches())
    with pytest.raises(ValueError, match="one with automatic optimization"):
        range_test(Manual(), batches())
    with pytest.raises(ValueError, match="one whose training_step returns a loss, got None"):
        range_test(Lossless(), batches())
    with pytest.raises(ValueError, match="batches must be a DataLoader or list"):
        range_test(Contrastive(), [])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"modules": "nett"}, "modules must be names in the network, got 'nett'. Like: net"),
        ({"modules": "net", "weights": ["net.0"]}, "weights must be names in the network"),
        ({"modules": "net.0.weight"}, "modules must be names"),
        ({"modules": []}, "modules must be names of modules"),
        ({"modules": "net", "views": 0}, "views must be an integer of at least 1"),
    ],
)
def test_names_that_are_not_there_are_refused(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        trainer(NormCallback(**options)).fit(Contrastive(), batches())


def test_a_module_without_rows_of_embeddings_is_refused() -> None:
    class Tokens(Contrastive):
        def training_step(self, x: torch.Tensor, _: int) -> torch.Tensor:
            return self.net[0](x[:, None]).sum()

    with pytest.raises(ValueError, match="a named module's output must be a floating-point"):
        trainer(NormCallback("net.0")).fit(Tokens(), batches())


@pytest.mark.skipif(sys.platform == "win32", reason="processes are forked")
def test_each_of_two_processes_sees_its_rows_and_its_share_of_the_gradient(tmp_path: Path) -> None:
    worker = Path(__file__).with_name("lightning_modules.py")
    done = subprocess.run([sys.executable, worker, tmp_path], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    ranks = [torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in range(2)]
    net = Contrastive(power=1.0).net
    net[1].eval()
    z = torch.cat([net(ROWS), net(ROWS.flip(1))])
    z.retain_grad()
    z1, z2 = z.chunk(2)
    loss = ns.losses.negative_cosine(z1, z2.detach()) + ns.losses.negative_cosine(z2, z1.detach())
    loss.backward()
    joined = ns.NormMonitor()
    joined.observe(z, lr=0.1)
    for name in ("norm_mean", "growth_predicted"):
        of_ranks = [rank["summary"][name] for rank in ranks]
        assert of_ranks[0] != of_ranks[1]
        assert sum(of_ranks) / 2 == pytest.approx(joined.summary()[name], rel=1e-4)
    assert ranks[0]["logged"]["norms/norm_mean"] == ranks[0]["summary"]["norm_mean"]


def test_callback_works_in_a_trainer_of_pytorch_lightning() -> None:
    other = pytest.importorskip("pytorch_lightning", reason="needs pytorch_lightning")

    class Module(other.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = Contrastive().net

        def training_step(self, x: torch.Tensor, _: int) -> torch.Tensor:
            return ns.losses.info_nce(self.net(x), self.net(x.flip(1)))

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    norms = NormCallback("net")
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "logger": False}
    fitted = other.Trainer(
        max_steps=2,
        log_every_n_steps=1,
        callbacks=[norms],
        accelerator="cpu",
        enable_checkpointing=False,
        **quiet,
    )
    fitted.fit(Module(), batches())
    assert "norms/norm_mean" in fitted.logged_metrics


def test_the_example_is_short_and_trains(tmp_path: Path, monkeypatch, capsys) -> None:
    script = ROOT / "examples/lightning_loop.py"
    assert len(script.read_text().splitlines()) < 30
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(script))
    advice, diagnosis = capsys.readouterr().out.splitlines()[-2:]
    assert advice.startswith("raise the lr")
    assert "no alarm stands" in diagnosis
